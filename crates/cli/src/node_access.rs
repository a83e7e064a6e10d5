//! Access to one node through its parent (`--node`), to all nodes one by one (`--per-node`), and
//! the header that states which nodes contributed to an answer.

use std::path::Path;

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;
use crate::listed_node::{NODES_PATH, NodeListing};
use crate::suggestions;

/// The header in which a parent states the nodes that answered, in lower case.
pub(crate) const NODES_HEADER: &str = "pegel-nodes";

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct NodeArgs {
    /// Read the node NAME below the agent, through the tree; `pegel nodes` lists them
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct PerNodeArgs {
    /// Show the series of each node instead of sums and means over all nodes
    #[arg(long, conflicts_with = "node")]
    pub per_node: bool,
}

impl NodeArgs {
    /// Finds the agent, and the node below it if one is named.
    pub(crate) fn client(&self, socket: Option<&Path>) -> anyhow::Result<AgentClient> {
        let client = AgentClient::find(socket, &[])?;
        match &self.node {
            Some(node) => select_node(client, node),
            None => Ok(client),
        }
    }
}

/// Returns a client of the node. An agent without nodes below it has only its own.
pub(crate) fn select_node(client: AgentClient, wanted: &str) -> anyhow::Result<AgentClient> {
    let listing = list_nodes(&client)?;
    let names = || listing.nodes.iter().map(|node| node.node.as_str());
    if !names().any(|name| name == wanted) {
        return Err(unknown_node(&listing.own, wanted, names()));
    }
    Ok(match listing.is_single() {
        true => client,
        false => client.through_node(wanted),
    })
}

/// Fetches the nodes. An agent without this route has only itself.
pub(crate) fn list_nodes(client: &AgentClient) -> anyhow::Result<NodeListing> {
    let response = client.request(NODES_PATH, &[])?;
    if response.status != 404 {
        return NodeListing::parse(&client.read_json(response)?);
    }
    let status = client.get("/status", &[])?;
    let own = status["node"].as_str().unwrap_or_default().to_owned();
    let node = crate::listed_node::ListedNode {
        node: own.clone(),
        state: "up".to_owned(),
        ..Default::default()
    };
    Ok(NodeListing {
        own,
        nodes: vec![node],
    })
}

/// Returns the error for a name that no node has, with similar names.
pub(crate) fn unknown_node<'a>(
    own: &str,
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
) -> anyhow::Error {
    let names: Vec<&str> = names.collect();
    let rest = match suggestions::similar(wanted, &names) {
        _ if names.len() <= 1 => format!("this agent serves {own}"),
        Some(similar) => similar,
        None => "`pegel nodes` lists all".to_owned(),
    };
    CommandError::nothing_matched(format!("no node named {wanted}; {rest}"))
}

/// The nodes that contributed to an answer, from the header of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnsweringNodes {
    pub answered: u64,
    pub expected: u64,
    /// Names of nodes that did not answer, and how many more there are.
    late: Vec<String>,
    more: u64,
}

impl AnsweringNodes {
    /// Parses `answered=3 expected=4 late=n2,n3,+5`. Unknown fields are skipped.
    pub(crate) fn parse(header: &str) -> Option<AnsweringNodes> {
        let (mut answered, mut expected) = (None, None);
        let mut nodes = AnsweringNodes::default();
        for field in header.split_whitespace() {
            match field.split_once('=') {
                Some(("answered", count)) => answered = count.parse().ok(),
                Some(("expected", count)) => expected = count.parse().ok(),
                Some(("late", names)) => {
                    for name in names.split(',').filter(|name| !name.is_empty()) {
                        match name
                            .strip_prefix('+')
                            .and_then(|more| more.parse::<u64>().ok())
                        {
                            Some(more) => nodes.more += more,
                            None => nodes.late.push(name.to_owned()),
                        }
                    }
                }
                _ => {}
            }
        }
        (nodes.answered, nodes.expected) = (answered?, expected?);
        Some(nodes)
    }

    /// Describes missing nodes in one line; `None` if all answered.
    pub(crate) fn missing_text(&self) -> Option<String> {
        if self.answered >= self.expected {
            return None;
        }
        let mut text = format!("{} of {} nodes answered", self.answered, self.expected);
        if !self.late.is_empty() {
            text.push_str(&format!("; missing: {}", self.late.join(", ")));
        }
        if self.more > 0 {
            text.push_str(&format!(" and {} more", self.more));
        }
        Some(pegel_metric::escape_unprintable(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_nodes_are_described() {
        for (header, text) in [
            ("answered=4 expected=4", None),
            (
                "answered=3 expected=4 late=n2",
                Some("3 of 4 nodes answered; missing: n2"),
            ),
            (
                "answered=1 expected=9 late=n2,n3,+6 future=x",
                Some("1 of 9 nodes answered; missing: n2, n3 and 6 more"),
            ),
            ("answered=1 expected=2", Some("1 of 2 nodes answered")),
        ] {
            let nodes = AnsweringNodes::parse(header).expect(header);
            assert_eq!(nodes.missing_text().as_deref(), text, "{header}");
        }
        for header in ["", "answered=x expected=4", "expected=4"] {
            assert_eq!(AnsweringNodes::parse(header), None, "{header}");
        }
    }

    #[test]
    fn an_unknown_node_is_an_error_with_suggestions() {
        let text = |names: &[&str], wanted: &str| {
            unknown_node("h", wanted, names.iter().copied()).to_string()
        };
        assert_eq!(
            text(&["h", "nid0001", "nid0002"], "nid001"),
            "no node named nid001; did you mean nid0001?"
        );
        assert_eq!(
            text(&["h", "n1"], "quite-different"),
            "no node named quite-different; `pegel nodes` lists all"
        );
        assert_eq!(text(&["h"], "i"), "no node named i; this agent serves h");
    }
}
