//! `pegel nodes`: every node of the tree with its state and what stands out.

mod formats;
mod table;

use std::path::PathBuf;

use pegel_metric::glob_matches;

use crate::agent_query::display_context;
use crate::command_error::{CommandError, FAILED};
use crate::format::OutputFormat;
use crate::listed_node::{ListedNode, NodeListing};
use crate::node_access::{self, NodeArgs};
use crate::output;
pub(crate) use table::state_counts;

/// The number of nodes that the message of `--check` names.
const NAMED_MAX: usize = 10;

/// Show every node of the tree: state, lag, clock, load and what stands out
///
/// Nodes with problems come first, then those with figures far from the median of all nodes, then
/// the others by name. An agent without nodes below it shows itself.
#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// Comma-separated names or globs: nid0001, 'nid00*' [default: all]
    names: Vec<String>,
    /// Show only nodes in this state; may be repeated
    #[arg(long, value_enum, value_name = "STATE")]
    state: Vec<StateFilter>,
    /// Exit with 1 if any of the named nodes is not up
    #[arg(long)]
    check: bool,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// Output format [default: by the extension of FILE, else md]
    #[arg(short, long, value_enum)]
    format: Option<OutputFormat>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StateFilter {
    /// Connected; values arrive in time
    Up,
    /// Connected; no values arrive
    Late,
    /// Not connected
    Lost,
    /// Its connection is refused
    Refused,
}

impl StateFilter {
    fn as_str(self) -> &'static str {
        match self {
            StateFilter::Up => "up",
            StateFilter::Late => "late",
            StateFilter::Lost => "lost",
            StateFilter::Refused => "refused",
        }
    }
}

pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<()> {
    let client = NodeArgs::default().client(args.socket.as_deref())?;
    let listing = node_access::list_nodes(&client)?;
    let named = named_nodes(&listing, &args.names)?;
    let is_shown = |node: &&ListedNode| {
        let mut states = args.state.iter();
        args.state.is_empty() || states.any(|state| state.as_str() == node.state)
    };
    let mut shown: Vec<&ListedNode> = named.iter().copied().filter(is_shown).collect();
    shown.sort_by(|a, b| a.problems_first(b));
    let format = OutputFormat::choose(args.format, args.output.as_deref(), OutputFormat::Md);
    let text = match format {
        OutputFormat::Md if shown.is_empty() => "no node is in this state\n".to_owned(),
        OutputFormat::Md => {
            let context = display_context(args.output.as_deref());
            table::write(&shown, named.len(), context.width)
        }
        format => formats::write(format, &shown),
    };
    output::write(args.output.as_deref(), &text)?;
    match not_up_message(&named).filter(|_| args.check) {
        Some(message) => Err(CommandError::with_code(FAILED, message)),
        None => Ok(()),
    }
}

/// Returns the nodes that the names and globs select. One without a node is an error.
fn named_nodes<'a>(
    listing: &'a NodeListing,
    names: &[String],
) -> anyhow::Result<Vec<&'a ListedNode>> {
    let patterns = names.iter().flat_map(|list| list.split(','));
    let patterns: Vec<&str> = patterns.map(str::trim).filter(|p| !p.is_empty()).collect();
    if patterns.is_empty() {
        return Ok(listing.nodes.iter().collect());
    }
    let all = || listing.nodes.iter();
    if let Some(missing) = patterns
        .iter()
        .find(|pattern| !all().any(|node| glob_matches(pattern, &node.node)))
    {
        let known = all().map(|node| node.node.as_str());
        return Err(node_access::unknown_node(&listing.own, missing, known));
    }
    let is_named = |node: &&ListedNode| patterns.iter().any(|p| glob_matches(p, &node.node));
    Ok(all().filter(is_named).collect())
}

/// Names the nodes that are not up; `None` if all are.
fn not_up_message(nodes: &[&ListedNode]) -> Option<String> {
    let mut names: Vec<&ListedNode> = nodes.iter().copied().filter(|n| !n.is_up()).collect();
    names.sort_by(|a, b| a.problems_first(b));
    let count = names.len();
    let texts = names.iter().take(NAMED_MAX);
    let texts: Vec<String> = texts
        .map(|node| format!("{} ({})", node.node, node.state))
        .collect();
    let more = match count.saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if count == 1 { "is" } else { "are" };
    let all = nodes.len();
    (count > 0).then(|| {
        format!(
            "{count} of {all} nodes {verb} not up: {}{more}",
            texts.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> NodeListing {
        let node = |name: &str, state: &str| ListedNode {
            node: name.to_owned(),
            state: state.to_owned(),
            ..ListedNode::default()
        };
        NodeListing {
            own: "head1".to_owned(),
            nodes: vec![node("head1", "up"), node("n1", "up"), node("n2", "lost")],
        }
    }

    #[test]
    fn names_and_globs_select_nodes() {
        let listing = listing();
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            named_nodes(&listing, &names).map(|nodes| nodes.len())
        };
        assert_eq!(named(&[]).expect("all"), 3);
        assert_eq!(named(&["n*"]).expect("two"), 2);
        assert_eq!(named(&["n1,head1"]).expect("two"), 2);
        let error = named(&["n1", "head2"]).expect_err("unknown").to_string();
        assert_eq!(error, "no node named head2; did you mean head1?");
    }

    #[test]
    fn a_check_names_the_nodes_that_are_not_up() {
        let listing = listing();
        let nodes: Vec<&ListedNode> = listing.nodes.iter().collect();
        assert_eq!(
            not_up_message(&nodes).as_deref(),
            Some("1 of 3 nodes is not up: n2 (lost)")
        );
        assert_eq!(not_up_message(&nodes[..2]), None);
    }
}
