//! `pegel values`: the current values of all or of the named series.

use crate::agent_query::{self, AgentQueryArgs};
use crate::command_error::CommandError;
use crate::counter_rates;
use crate::format::{self, OutputFormat};
use crate::node_access::PerNodeArgs;

/// Show the current values of all or of the named series
///
/// NAMES are names, globs or matchers: a name without labels selects all its series.
#[derive(Debug, clap::Args)]
pub(crate) struct ValuesArgs {
    /// Comma-separated names, globs or matchers: node_load1, 'node_cpu*', '{mode="idle"}' [default:
    /// all]
    names: Vec<String>,
    #[command(flatten)]
    query: AgentQueryArgs,
    #[command(flatten)]
    nodes: PerNodeArgs,
}

pub(crate) fn run(args: &ValuesArgs) -> anyhow::Result<()> {
    show(&args.names, &args.query, args.nodes)
}

/// Prints the values of the series that names and patterns select.
pub(crate) fn show(
    names: &[String],
    args: &AgentQueryArgs,
    nodes: PerNodeArgs,
) -> anyhow::Result<()> {
    // Reject a malformed pattern before connecting.
    let query = args.series(names)?;
    let client = args.client()?.with_per_node(nodes.per_node);
    let mut readings = agent_query::fetch_values(&client, &query.parameters(true))?;
    let missing = query.unmatched(readings.iter().map(|reading| reading.name.as_str()));
    readings.retain(|reading| query.matches(&reading.name));
    if readings.is_empty() && query.selects_everything() {
        return Err(CommandError::nothing_matched("the agent has no values"));
    }
    if readings.is_empty() {
        return Err(agent_query::no_match_error(&client, &query, &missing));
    }
    let format = args.format();
    let text = match format {
        // The formats for programs have fixed fields.
        OutputFormat::Md => {
            let rates = counter_rates::fetch(&client, &query, &readings);
            let context = args.display_context();
            match nodes.per_node {
                true => format::values_per_node(&readings, &rates, context),
                false => format::values_with_rates(&readings, &rates, context),
            }
        }
        _ => format::values(format, &readings, args.display_context()),
    };
    args.write(&text)?;
    agent_query::partial_match(&client, &query, &missing)
}
