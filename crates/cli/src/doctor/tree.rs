//! Checks the tree of agents: parents, nodes below, clocks, refused children.

use serde_json::Value;

use super::finding::Finding;
use super::pluralize::pluralized;
use crate::agent_client::AgentClient;
use crate::listed_node::{ListedNode, NodeListing, milliseconds, natural_order};
use crate::node_access;
use crate::tree;

/// The number of nodes that a finding names; all of them are in its details.
const NAMED_MAX: usize = 5;

/// The agent's answers about the tree.
#[derive(Debug)]
pub(super) struct TreeProbe {
    tree: Value,
    nodes: NodeListing,
}

/// Asks the agent; `None` if it is not part of a tree or does not answer.
pub(super) fn probe(client: &AgentClient) -> Option<TreeProbe> {
    let tree = tree::fetch(client).ok()??;
    let has_parents = tree["parents"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    if tree["accepts"].is_null() && !has_parents {
        return None;
    }
    let nodes = node_access::list_nodes(client).ok()?;
    Some(TreeProbe { tree, nodes })
}

pub(super) fn evaluate(probe: &TreeProbe) -> Vec<Finding> {
    let mut findings = parents(&probe.tree);
    if !probe.tree["accepts"].is_null() {
        findings.extend(nodes(&probe.nodes.nodes));
        findings.extend(clocks(&probe.nodes.nodes));
        let problems = probe.tree["problems"].as_array();
        findings.extend(problems.into_iter().flatten().map(refused));
    }
    findings
}

/// Reports whether the agent has a connection to one of its parents.
fn parents(tree: &Value) -> Vec<Finding> {
    let parents = tree["parents"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let connected = parents
        .iter()
        .position(|parent| parent["connected"] == true);
    match (parents.first(), connected) {
        (None, _) => Vec::new(),
        (_, Some(0)) => {
            let message = format!("connected to {}", text(&parents[0]["address"]));
            vec![Finding::ok("parent", message)]
        }
        (Some(first), Some(index)) => vec![Finding::better(
            "parent",
            format!(
                "connected to {}; {} is not reachable: {}",
                text(&parents[index]["address"]),
                text(&first["address"]),
                text(&first["last_error"])
            ),
            "start the preferred parent, or change the order of tree.parents",
        )],
        (Some(_), None) => {
            let errors = parents.iter().map(|parent| {
                let address = text(&parent["address"]);
                format!("{address}: {}", text(&parent["last_error"]))
            });
            vec![Finding::broken(
                "parent",
                format!(
                    "no parent is reachable; {}",
                    errors.collect::<Vec<_>>().join("; ")
                ),
                "check that the parent runs with --accept, and address, port, ca and token; samples are kept here and sent later",
            )]
        }
    }
}

/// Reports nodes that are late or lost.
fn nodes(nodes: &[ListedNode]) -> Vec<Finding> {
    let with = |state: &str| {
        nodes
            .iter()
            .filter(|n| n.state == state)
            .collect::<Vec<_>>()
    };
    let mut findings = Vec::new();
    for (state, fix) in [
        (
            "lost",
            "start the agents there, or check the network: pegel nodes --state lost",
        ),
        (
            "late",
            "see the load of these nodes and the network: pegel nodes --state late",
        ),
    ] {
        let found = with(state);
        if !found.is_empty() {
            let count = pluralized(found.len() as u64, "node");
            let (message, names) = (format!("{count} {state}: {}", named(&found)), names(&found));
            findings.push(Finding::better("nodes", message, fix).with_details(names));
        }
    }
    if findings.is_empty() {
        let count = pluralized(nodes.len() as u64, "node");
        findings.push(Finding::ok("nodes", format!("{count} up")));
    }
    findings
}

/// Reports clocks that differ from the parent's.
fn clocks(nodes: &[ListedNode]) -> Option<Finding> {
    let wrong: Vec<&ListedNode> = nodes.iter().filter(|node| node.has_wrong_clock()).collect();
    let offset = |node: &&ListedNode| node.clock_offset_ms.unwrap_or(0.0).abs();
    let largest = wrong.iter().map(offset).fold(0.0, f64::max);
    let message = format!(
        "the clocks of {} differ from their parent's, by up to {}: {}",
        pluralized(wrong.len() as u64, "node"),
        milliseconds(largest),
        named(&wrong)
    );
    let fix = "synchronise the clocks: chrony or systemd-timesyncd on every node";
    (!wrong.is_empty()).then(|| Finding::better("clocks", message, fix).with_details(names(&wrong)))
}

/// Reports a peer whose connection was refused.
fn refused(problem: &Value) -> Finding {
    let text = |key: &str| problem[key].as_str().unwrap_or("?");
    let count = pluralized(problem["count"].as_u64().unwrap_or(1), "time");
    let message = format!(
        "{} from {} was refused {count}: {}",
        text("node"),
        text("peer"),
        text("message")
    );
    Finding::better("children", message, tree::advice(text("reason")))
}

fn names(nodes: &[&ListedNode]) -> Vec<String> {
    let mut names: Vec<String> = nodes.iter().map(|node| node.node.clone()).collect();
    names.sort_by(|a, b| natural_order(a, b));
    names
}

fn named(nodes: &[&ListedNode]) -> String {
    let names = names(nodes);
    match names.len().saturating_sub(NAMED_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED_MAX].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::FindingState;
    use super::*;

    fn evaluated(tree: &Value, nodes: &Value) -> Vec<(FindingState, String)> {
        let probe = TreeProbe {
            tree: tree.clone(),
            nodes: NodeListing::parse(nodes).expect("valid"),
        };
        let findings = evaluate(&probe).into_iter();
        findings
            .map(|finding| (finding.state, finding.message))
            .collect()
    }

    #[test]
    fn a_healthy_tree_is_ok() {
        let tree = json!({"accepts": "127.0.0.1:1338", "problems": [],
                          "parents": [{"address": "top:1338", "connected": true}]});
        let nodes =
            json!({"node": "h", "nodes": [{"node": "h", "state": "up", "clock_offset_ms": 3}]});
        assert_eq!(
            evaluated(&tree, &nodes),
            [
                (FindingState::Ok, "connected to top:1338".to_owned()),
                (FindingState::Ok, "1 node up".to_owned())
            ]
        );
    }

    #[test]
    fn trouble_is_named() {
        let parent = |address: &str, connected: bool| json!({"address": address, "connected": connected, "last_error": "refused"});
        let tree = json!({"accepts": "127.0.0.1:1338",
            "problems": [{"peer": "10.0.0.7", "node": "n3", "reason": "duplicate", "message": "another n3", "count": 2}],
            "parents": [parent("a:1", false), parent("b:2", true)]});
        let nodes = json!({"node": "h", "nodes": [
            {"node": "n2", "state": "lost"}, {"node": "n1", "state": "late"},
            {"node": "n4", "state": "up", "clock_offset_ms": -2500}]});
        let messages: Vec<String> = evaluated(&tree, &nodes)
            .into_iter()
            .map(|(state, message)| {
                assert_eq!(state, FindingState::Better, "{message}");
                message
            })
            .collect();
        assert_eq!(
            messages,
            [
                "connected to b:2; a:1 is not reachable: refused",
                "1 node lost: n2",
                "1 node late: n1",
                "the clocks of 1 node differ from their parent's, by up to 2.5 s: n4",
                "n3 from 10.0.0.7 was refused 2 times: another n3",
            ]
        );
        let tree = json!({"accepts": null, "parents": [parent("a:1", false)]});
        let found = evaluated(&tree, &nodes);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, FindingState::Broken);
    }
}
