//! `pegel get`: the current values of the named series.

use crate::agent_query::{self, AgentQueryArgs};
use crate::command_error::CommandError;
use crate::{format, output};

/// Show the current values of named series
///
/// A name without labels selects all its series.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Comma-separated names or series: node_load1,node_cpu_seconds_total{cpu="0",mode="idle"}
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    query: AgentQueryArgs,
}

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<()> {
    let names = agent_query::parse_names(&args.names)?;
    let selector = args.query.selector()?;
    let mut readings =
        agent_query::fetch_values(&args.query.client()?, &[("names", &names.join(","))])?;
    let missing = agent_query::unmatched_names(&names, &readings);
    if let Some(selector) = &selector {
        readings.retain(|reading| agent_query::series_matches(selector, &reading.name));
    }
    if readings.is_empty() {
        let message = format!(
            "no series named {}; `pegel list` lists all",
            names.join(", ")
        );
        return Err(CommandError::nothing_matched(message));
    }
    args.query.write(&format::values(
        args.query.format(),
        &readings,
        args.query.display_context(),
    ))?;
    for name in missing {
        output::print_message(&format!("pegel: no series named {name}"));
    }
    Ok(())
}
