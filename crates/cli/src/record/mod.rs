//! `pegel record`: describes, checks and prints the record of a task, without an agent.

mod cat;
mod check;
mod info;
mod openmetrics;
mod record_info;
mod sample_filter;
mod sample_lines;
mod source;
mod trace;
mod trace_fields;

/// Read the record of a task; requires no agent
///
/// RECORD is a part (record-00000.pgl), the folder with the parts of a record, a URL of either, or
/// - for standard input.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    #[command(subcommand)]
    action: RecordAction,
}

#[derive(Debug, clap::Subcommand)]
enum RecordAction {
    Info(info::InfoArgs),
    Check(check::CheckArgs),
    Cat(cat::CatArgs),
    Trace(trace::TraceArgs),
}

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    match &args.action {
        RecordAction::Info(args) => info::run(args),
        RecordAction::Check(args) => check::run(args),
        RecordAction::Cat(args) => cat::run(args),
        RecordAction::Trace(args) => trace::run(args),
    }
}
