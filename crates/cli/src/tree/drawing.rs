//! Draws the tree with indented lines. Many nodes without children are folded to one line.

use pegel_metric::escape_unprintable;
use serde_json::Value;

use crate::listed_node::natural_order;
use crate::nodes::state_counts;

/// More leaves than these below one node are drawn as one line.
const LEAVES_MAX: usize = 12;

/// A node and the nodes below it, sorted by name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TreeNode {
    pub name: String,
    pub state: String,
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    pub(super) fn parse(json: &Value) -> TreeNode {
        let text = |key: &str| {
            let text = json[key].as_str().unwrap_or("?");
            escape_unprintable(text).into_owned()
        };
        let children = json["children"].as_array().into_iter().flatten();
        let mut children: Vec<TreeNode> = children.map(TreeNode::parse).collect();
        children.sort_by(|a, b| natural_order(&a.name, &b.name));
        TreeNode {
            name: text("node"),
            state: text("state"),
            children,
        }
    }

    /// Calls `visit` for this node and all nodes below it.
    pub(super) fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a TreeNode)) {
        visit(self);
        for child in &self.children {
            child.visit(visit);
        }
    }

    /// Returns `name  state (8 nodes: 7 up, 1 lost)`, without what is usual.
    fn title(&self) -> String {
        let state = match self.state.as_str() {
            "up" => String::new(),
            state => format!("  {state}"),
        };
        if self.children.is_empty() {
            return format!("{}{state}", self.name);
        }
        let mut states = Vec::new();
        self.visit(&mut |node| states.push(node.state.as_str()));
        format!("{}{state} ({})", self.name, counts(&states))
    }
}

fn counts(states: &[&str]) -> String {
    let count = states.len();
    format!("{count} nodes: {}", state_counts(states.iter().copied()))
}

pub(super) fn draw(tree: &TreeNode) -> String {
    let mut out = format!("{}\n", tree.title());
    draw_children(tree, "", &mut out);
    out
}

fn draw_children(node: &TreeNode, indent: &str, out: &mut String) {
    let is_leaf = |child: &&TreeNode| child.children.is_empty();
    let leaves: Vec<&TreeNode> = node.children.iter().filter(is_leaf).collect();
    let is_folded = leaves.len() > LEAVES_MAX;
    let shown = node.children.iter();
    let shown: Vec<&TreeNode> = shown
        .filter(|child| !is_folded || !is_leaf(child))
        .collect();
    let count = shown.len() + usize::from(is_folded);
    for (index, child) in shown.into_iter().enumerate() {
        let is_last = index + 1 == count;
        let (branch, below) = if is_last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        out.push_str(&format!("{indent}{branch}{}\n", child.title()));
        draw_children(child, &format!("{indent}{below}"), out);
    }
    if let ([first, .., last], true) = (leaves.as_slice(), is_folded) {
        let states: Vec<&str> = leaves.iter().map(|leaf| leaf.state.as_str()).collect();
        let (first, last, counts) = (&first.name, &last.name, counts(&states));
        out.push_str(&format!("{indent}└─ {first} … {last} ({counts})\n"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leaves_are_folded_above_a_number() {
        let tree = |count: usize| {
            let leaf = |n: usize| json!({"node": format!("n{n}"), "state": "up"});
            let leaves: Vec<Value> = (0..count).rev().map(leaf).collect();
            draw(&TreeNode::parse(
                &json!({"node": "h", "state": "up", "children": leaves}),
            ))
        };
        assert_eq!(tree(0), "h\n");
        assert_eq!(tree(2), "h (3 nodes: 3 up)\n├─ n0\n└─ n1\n");
        assert_eq!(tree(LEAVES_MAX).lines().count(), LEAVES_MAX + 1);
        assert_eq!(
            tree(13),
            "h (14 nodes: 14 up)\n└─ n0 … n12 (13 nodes: 13 up)\n"
        );
        let mixed = json!({"node": "h", "state": "up", "children": [
            {"node": "b", "state": "lost", "children": [{"node": "c\u{1b}", "state": "late"}]}, {"node": "a", "state": "up"}]});
        assert_eq!(
            draw(&TreeNode::parse(&mixed)),
            "h (4 nodes: 2 up, 1 late, 1 lost)\n├─ a\n└─ b  lost (2 nodes: 1 late, 1 lost)\n   └─ c\\u{1b}  late\n"
        );
    }
}
