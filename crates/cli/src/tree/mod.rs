//! `pegel tree`: the shape of the tree and its problems; `pegel tree init` makes certificates.

mod drawing;
mod init;
mod problems;

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;

use crate::agent_client::AgentClient;
use crate::output;
use drawing::TreeNode;

pub(crate) use problems::advice;

pub(crate) const TREE_PATH: &str = "/api/v1/tree";

/// Show the shape of the tree of agents, with counts and problems
///
/// Shows the nodes below this agent and its parents. More than 12 nodes without nodes below them
/// are shown as one line.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    #[command(subcommand)]
    action: Option<TreeAction>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "txt")]
    format: TreeFormat,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum TreeAction {
    Init(init::InitArgs),
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TreeFormat {
    /// A drawing
    Txt,
    /// The agent's answer
    Json,
}

pub(crate) fn run(args: &TreeArgs) -> anyhow::Result<()> {
    if let Some(TreeAction::Init(args)) = &args.action {
        return init::run(args);
    }
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    let text = match (fetch(&client)?, args.format) {
        (None, _) => anyhow::bail!("this agent is older than the tree; restart it"),
        (Some(tree), TreeFormat::Json) => format!("{tree:#}\n"),
        (Some(tree), TreeFormat::Txt) => describe(&tree, Timestamp::now()),
    };
    output::write(None, &text)
}

/// Fetches the tree; `None` if the agent does not have this route.
pub(crate) fn fetch(client: &AgentClient) -> anyhow::Result<Option<Value>> {
    let response = client.request(TREE_PATH, &[])?;
    match response.status {
        404 => Ok(None),
        _ => client.read_json(response).map(Some),
    }
}

fn describe(json: &Value, now: Timestamp) -> String {
    let tree = TreeNode::parse(&json["tree"]);
    let mut parts = vec![drawing::draw(&tree) + &summary(json, &tree)];
    parts.extend(problems::parents(json, now));
    parts.extend(problems::list(json, &tree, now));
    parts.join("\n")
}

/// Describes what the agent accepts and reduces, in one line.
fn summary(json: &Value, tree: &TreeNode) -> String {
    let has_parents = json["parents"].as_array().is_some_and(|p| !p.is_empty());
    let Some(accepts) = json["accepts"].as_str() else {
        return match has_parents {
            true => String::new(),
            false => "\nno tree: this agent has no parent and accepts no children; start agents with --accept and --parent\n".to_owned(),
        };
    };
    let mut text = format!(
        "\naccepts children on {accepts} ({} of {})",
        tree.children.len(),
        json["children_max"]
    );
    if let Some(series) = json["reduced_series"].as_u64() {
        text.push_str(&format!(", {series} reduced series"));
    }
    if let Some(ticks) = json["dirty_ticks"].as_u64().filter(|ticks| *ticks > 0) {
        text.push_str(&format!(", {ticks} ticks to fill in"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tree_is_described_with_its_problems() {
        let leaves: Vec<Value> = (1..=64)
            .map(|n| {
                let state = match n {
                    7 => "late",
                    9 => "lost",
                    _ => "up",
                };
                json!({"node": format!("n{n}"), "state": state, "children": []})
            })
            .collect();
        let json = json!({
            "node": "head1", "accepts": "0.0.0.0:1338", "children_max": 64, "nodes": 68,
            "tree": {"node": "head1", "state": "up", "children": [
                {"node": "rack2", "state": "up", "children": [{"node": "m1", "state": "up"}]},
                {"node": "rack1", "state": "up", "children": leaves},
            ]},
            "problems": [{"peer": "10.0.0.7", "node": "n3", "reason": "duplicate",
                          "message": "another agent has the name n3", "count": 3, "last": 988.0}],
            "parents": [{"address": "top:1338", "connected": true, "since": 940.0},
                        {"address": "top2:1338", "connected": false, "last_error": "refused"}],
            "reduced_series": 300, "dirty_ticks": 4,
        });
        let now = Timestamp::from_second(1000).expect("valid");
        let expected = "\
head1 (68 nodes: 66 up, 1 late, 1 lost)
├─ rack1 (65 nodes: 63 up, 1 late, 1 lost)
│  └─ n1 … n64 (64 nodes: 62 up, 1 late, 1 lost)
└─ rack2 (2 nodes: 2 up)
   └─ m1

accepts children on 0.0.0.0:1338 (2 of 64), 300 reduced series, 4 ticks to fill in

Parents
  top:1338   connected for 1m 0s
  top2:1338  not connected: refused

Problems
  lost: n9
    fix: start the agent on the node, or check the network between it and its parent: pegel doctor there
  late: n7
    fix: the node is overloaded or the network is slow; see pegel nodes and the load of the node
  n3 from 10.0.0.7: duplicate, 3 times, last 12s ago: another agent has the name n3
    fix: give each agent a name of its own with --node; remove `tree-instance` from a copied directory
";
        assert_eq!(describe(&json, now), expected);
    }

    #[test]
    fn an_agent_without_a_tree_says_so() {
        let json = json!({"node": "a", "accepts": null, "parents": [], "problems": [],
                          "tree": {"node": "a", "state": "up", "children": []}});
        let text = describe(&json, Timestamp::now());
        assert!(text.starts_with("a\n\nno tree: "), "{text}");
    }
}
