//! `pegel values`: the current value of every series.

use crate::agent_query::{self, AgentQueryArgs};
use crate::command_error::CommandError;
use crate::format;

/// Show the current value of every series
#[derive(Debug, clap::Args)]
pub(crate) struct ValuesArgs {
    #[command(flatten)]
    query: AgentQueryArgs,
}

pub(crate) fn run(args: &ValuesArgs) -> anyhow::Result<()> {
    // Reject a malformed pattern before connecting.
    args.query.selector()?;
    let query: Vec<(&str, &str)> = args
        .query
        .pattern
        .iter()
        .map(|pattern| ("match", pattern.as_str()))
        .collect();
    let readings = agent_query::fetch_values(&args.query.client()?, &query)?;
    if readings.is_empty() {
        return Err(CommandError::nothing_matched(match &args.query.pattern {
            Some(pattern) => format!("no series matches \"{pattern}\"; `pegel list` lists all"),
            None => "the agent has no values".to_owned(),
        }));
    }
    args.query.write(&format::values(
        args.query.format(),
        &readings,
        args.query.display_context(),
    ))
}
