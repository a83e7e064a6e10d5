//! `pegel list`: the agent's series with type, unit and help text.

use crate::agent_query::{AgentQueryArgs, fetch_series_list, series_matches};
use crate::command_error::CommandError;
use crate::format;

/// List the series with type, unit and help text
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    query: AgentQueryArgs,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<()> {
    let selector = args.query.selector()?;
    let mut listed = fetch_series_list(&args.query.client()?)?;
    let total = listed.len();
    if let Some(selector) = &selector {
        listed.retain(|item| series_matches(selector, &item.name));
    }
    if listed.is_empty() {
        return Err(CommandError::nothing_matched(match &args.query.pattern {
            Some(pattern) => format!("none of {total} series matches \"{pattern}\""),
            None => "the agent has no series".to_owned(),
        }));
    }
    let title = format!("List of pegel metrics ({} of {total})", listed.len());
    args.query
        .write(&format::list(args.query.format(), &listed, &title))
}
