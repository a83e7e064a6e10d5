//! `pegel list`: the agent's series with type, unit and help text.

use crate::agent_query::{self, AgentQueryArgs, fetch_series_list};
use crate::command_error::CommandError;
use crate::format;
use crate::node_access::PerNodeArgs;

/// List the series with type, unit and help text
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Comma-separated names, globs or matchers: node_load1, 'node_cpu*', '{mode="idle"}' [default:
    /// all]
    names: Vec<String>,
    #[command(flatten)]
    query: AgentQueryArgs,
    #[command(flatten)]
    nodes: PerNodeArgs,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<()> {
    let query = args.query.series(&args.names)?;
    let client = args.query.client()?.with_per_node(args.nodes.per_node);
    // All of them: the title tells how many there are.
    let mut listed = fetch_series_list(&client)?;
    let total = listed.len();
    let missing = query.unmatched(listed.iter().map(|item| item.name.as_str()));
    listed.retain(|item| query.matches(&item.name));
    if listed.is_empty() && query.selects_everything() {
        return Err(CommandError::nothing_matched("the agent has no series"));
    }
    if listed.is_empty() {
        return Err(agent_query::no_match_error(&client, &query, &missing));
    }
    let title = format!("List of pegel metrics ({} of {total})", listed.len());
    args.query
        .write(&format::list(args.query.format(), &listed, &title))?;
    agent_query::partial_match(&client, &query, &missing)
}
