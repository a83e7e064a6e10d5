//! `pegel get`: the current values of the named series.

use crate::agent_query::AgentQueryArgs;
use crate::node_access::PerNodeArgs;
use crate::values;

/// Show the current values of named series
///
/// NAMES are names, globs or matchers: a name without labels selects all its series. Exits with 4
/// if none of them has a series, and with 5 if only some have.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Comma-separated names, globs or matchers: node_load1, 'node_cpu*',
    /// 'node_cpu_seconds_total{mode="idle"}'
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    query: AgentQueryArgs,
    #[command(flatten)]
    nodes: PerNodeArgs,
}

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<()> {
    values::show(&args.names, &args.query, args.nodes)
}
