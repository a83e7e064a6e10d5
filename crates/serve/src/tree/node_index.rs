//! The nodes of the tree at the time of a request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pegel_tree_protocol::limits::LEVELS_MAX;
use pegel_tree_protocol::{NodeRow, NodeStatus};

use crate::api_error::ApiError;

/// The nodes that a request reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum NodeChoice {
    #[default]
    All,
    Named(Arc<BTreeSet<String>>),
}

impl NodeChoice {
    pub(crate) fn named(names: impl IntoIterator<Item = String>) -> NodeChoice {
        NodeChoice::Named(Arc::new(names.into_iter().collect()))
    }

    pub(crate) fn accepts(&self, node: &str) -> bool {
        match self {
            NodeChoice::All => true,
            NodeChoice::Named(names) => names.contains(node),
        }
    }
}

/// The nodes below this agent, each with the child that leads to it. Nodes whose connection is
/// refused are not part of the tree.
#[derive(Debug)]
pub(crate) struct NodeIndex {
    pub own: Arc<str>,
    nodes: BTreeMap<String, Arc<str>>,
    /// Children that are connected and send ticks.
    responsive: BTreeSet<Arc<str>>,
}

impl NodeIndex {
    pub(crate) fn new(own: &str, rows: &[NodeRow]) -> NodeIndex {
        let rows = rows.iter().filter(|row| row.status != NodeStatus::Refused);
        let rows: Vec<&NodeRow> = rows.filter(|row| row.node != own).collect();
        let parents: HashMap<&str, &str> = rows
            .iter()
            .map(|row| (row.node.as_str(), row.parent.as_str()))
            .collect();
        let mut children: HashMap<&str, Arc<str>> = HashMap::new();
        let mut nodes = BTreeMap::new();
        for row in &rows {
            if let Some(child) = child_above(&row.node, own, &parents) {
                let child = children.entry(child).or_insert_with(|| child.into());
                nodes.insert(row.node.clone(), child.clone());
            }
        }
        let is_responsive = |row: &&&NodeRow| row.status == NodeStatus::Up && row.parent == own;
        let responsive = rows.iter().filter(is_responsive);
        NodeIndex {
            own: own.into(),
            responsive: responsive.map(|row| row.node.as_str().into()).collect(),
            nodes,
        }
    }

    /// Returns the nodes below this agent.
    pub(crate) fn below(&self) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.nodes
            .iter()
            .map(|(node, child)| (node.as_str(), child))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether a node is this agent or below it.
    pub(crate) fn contains(&self, node: &str) -> bool {
        *node == *self.own || self.nodes.contains_key(node)
    }

    /// Returns whether a node is a child of this agent, or below that child.
    pub(crate) fn is_at_or_below(&self, node: &str, child: &str) -> bool {
        self.child_of(node) == Some(child)
    }

    /// Returns the child that leads to a node.
    pub(crate) fn child_of(&self, node: &str) -> Option<&str> {
        self.nodes.get(node).map(|child| &**child)
    }

    /// Returns whether a child is connected and sends ticks. Others are not asked: a child that
    /// hangs would delay every response.
    pub(crate) fn is_responsive(&self, child: &str) -> bool {
        self.responsive.contains(child)
    }

    /// Checks the names that a client gave.
    pub(crate) fn check(&self, choice: &NodeChoice) -> Result<(), ApiError> {
        let NodeChoice::Named(names) = choice else {
            return Ok(());
        };
        match names.iter().find(|name| !self.contains(name)) {
            None => Ok(()),
            Some(name) => Err(ApiError::unknown_node(name)),
        }
    }
}

/// Returns the child of `own` that is a node itself or above it.
fn child_above<'a>(node: &'a str, own: &str, parents: &HashMap<&str, &'a str>) -> Option<&'a str> {
    let mut at = node;
    for _ in 0..LEVELS_MAX {
        match *parents.get(at)? {
            parent if parent == own => return Some(at),
            parent => at = parent,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: &str, parent: &str, status: NodeStatus) -> NodeRow {
        NodeRow {
            node: node.into(),
            parent: parent.into(),
            status,
            lag_ms: None,
            clock_offset_ms: None,
            version: String::new(),
            is_parent: false,
            overview: Default::default(),
            outliers: Vec::new(),
            problem: String::new(),
        }
    }

    #[test]
    fn nodes_belong_to_the_child_that_leads_to_them() {
        let rows = [
            row("head", "", NodeStatus::Up),
            row("a", "head", NodeStatus::Up),
            row("b", "head", NodeStatus::Late),
            row("a1", "a", NodeStatus::Lost),
            row("a11", "a1", NodeStatus::Up),
            row("stray", "nowhere", NodeStatus::Up),
            row("loop1", "loop2", NodeStatus::Up),
            row("loop2", "loop1", NodeStatus::Up),
            row("twin", "head", NodeStatus::Refused),
        ];
        let index = NodeIndex::new("head", &rows);
        let below: Vec<(&str, &str)> = index
            .below()
            .map(|(node, child)| (node, &**child))
            .collect();
        assert_eq!(below, [("a", "a"), ("a1", "a"), ("a11", "a"), ("b", "b")]);
        assert!(index.is_at_or_below("a11", "a") && !index.is_at_or_below("a11", "b"));
        assert!(index.contains("head") && !index.contains("twin"));
        assert!(index.is_responsive("a") && !index.is_responsive("b"));
        assert!(
            index
                .check(&NodeChoice::named(["a1".to_owned(), "head".to_owned()]))
                .is_ok()
        );
        assert!(
            index
                .check(&NodeChoice::named(["twin".to_owned()]))
                .is_err()
        );
    }
}
