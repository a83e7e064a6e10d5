//! The binary `pegel`, one file per command. It parses the command line, runs the command and maps
//! the result to an exit code. Called as `tau_metric_client`, `tau_metric_proxy` or
//! `tau_metric_proxy_run`, it accepts the options of those programs instead.

mod agent;
mod agent_client;
mod agent_query;
mod agent_report;
mod alerts;
mod api_values;
mod bundle;
mod command_error;
mod completions;
mod config;
mod config_rows;
mod counter_rates;
mod doctor;
mod end_with_parent;
mod examples;
mod export;
mod format;
mod get;
mod grafana;
mod hook;
mod inputs;
mod job;
mod jobs;
mod list;
mod listed_node;
mod logging;
mod man;
mod mark;
mod metric_names;
mod node_access;
mod nodes;
mod output;
mod overview;
mod prometheus_config;
mod push;
mod query;
mod record;
mod rules;
mod run;
mod series_query;
mod session;
mod snapshot;
mod storage_access;
mod stuck;
mod suggestions;
mod tau_client;
mod tau_proxy;
mod top;
mod track;
mod tree;
mod tunnel;
mod values;
mod version;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use command_error::{OK, USAGE};

/// Sample, store and serve the metrics of a compute node and its programs
///
/// Without a command, shows the state of the agent and what to type next.
///
/// Exit codes: 0 success, 1 failure, 2 usage or configuration error, 3 no agent, 4 no match, 5 some
/// names without a match.
#[derive(Debug, Parser)]
#[command(name = "pegel", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum CliCommand {
    Agent(Box<agent::AgentArgs>),
    Run(run::RunArgs),
    Job(Box<job::JobArgs>),
    JobAgent(job::node_agent::JobAgentArgs),
    List(list::ListArgs),
    Values(values::ValuesArgs),
    Get(get::GetArgs),
    Query(query::QueryArgs),
    Track(track::TrackArgs),
    Top(top::TopArgs),
    Jobs(jobs::JobsArgs),
    Nodes(nodes::NodesArgs),
    Tree(tree::TreeArgs),
    Stuck(stuck::StuckArgs),
    Tunnel(tunnel::TunnelArgs),
    View(job::view::ViewArgs),
    Push(push::PushArgs),
    Mark(mark::MarkArgs),
    Alerts(alerts::AlertsArgs),
    Rules(rules::RulesArgs),
    Inputs(inputs::InputsArgs),
    Session(session::SessionArgs),
    Snapshot(snapshot::SnapshotArgs),
    Record(record::RecordArgs),
    Export(export::ExportArgs),
    Hook(hook::HookArgs),
    Bundle(bundle::BundleArgs),
    Grafana(grafana::GrafanaArgs),
    PrometheusConfig(prometheus_config::PrometheusConfigArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Version(version::VersionArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Returns the command line's definition, with the examples in its help.
fn command() -> clap::Command {
    examples::add_to_help(Cli::command(), &[])
}

fn main() -> ExitCode {
    // One crypto provider for the whole process. Installing fails only if one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    if program == Some(tau_client::NAME.as_ref()) {
        return report_result(tau_client::run(arguments.into_iter()), None);
    }
    if program == Some(run::tau_run::NAME.as_ref()) {
        return report_result(run::tau_run::run(arguments.into_iter()), None);
    }
    if program == Some(tau_proxy::NAME.as_ref()) {
        return report_result(tau_proxy::run(arguments.into_iter()), None);
    }
    // Not one of the commands: only the completion scripts call it.
    if arguments
        .get(1)
        .is_some_and(|name| name == metric_names::COMMAND)
    {
        return report_result(metric_names::run(arguments.into_iter().skip(1)), None);
    }
    let parsed = command().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are printed to stdout and exit with 0. Errors are ignored: the pipe
            // may be closed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { OK });
        }
    };
    let Some(command) = &cli.command else {
        return report_result(overview::run(), Some("pegel"));
    };
    let result = match command {
        CliCommand::Agent(args) => agent::run(args),
        CliCommand::Run(args) => run::run(args),
        CliCommand::Job(args) => job::run(args),
        CliCommand::JobAgent(args) => job::node_agent::run(args),
        CliCommand::List(args) => list::run(args),
        CliCommand::Values(args) => values::run(args),
        CliCommand::Get(args) => get::run(args),
        CliCommand::Query(args) => query::run(args),
        CliCommand::Track(args) => track::run(args),
        CliCommand::Top(args) => top::run(args),
        CliCommand::Jobs(args) => jobs::run(args),
        CliCommand::Nodes(args) => nodes::run(args),
        CliCommand::Tree(args) => tree::run(args),
        CliCommand::Stuck(args) => stuck::run(args),
        CliCommand::Tunnel(args) => tunnel::run(args),
        CliCommand::View(args) => job::view::run(args),
        CliCommand::Push(args) => push::run(args),
        CliCommand::Mark(args) => mark::run(args),
        CliCommand::Alerts(args) => alerts::run(args),
        CliCommand::Rules(args) => rules::run(args),
        CliCommand::Inputs(args) => inputs::run(args),
        CliCommand::Session(args) => session::run(args),
        CliCommand::Snapshot(args) => snapshot::run(args),
        CliCommand::Record(args) => record::run(args),
        CliCommand::Export(args) => export::run(args),
        CliCommand::Hook(args) => hook::run(args),
        CliCommand::Bundle(args) => bundle::run(args),
        CliCommand::Grafana(args) => grafana::run(args),
        CliCommand::PrometheusConfig(args) => prometheus_config::run(args),
        CliCommand::Config(args) => config::run(args),
        CliCommand::Doctor(args) => doctor::run(args),
        CliCommand::Version(args) => version::run(args),
        CliCommand::Completions(args) => completions::run(args),
        CliCommand::Man(args) => man::run(args),
    };
    report_result(result, Some("pegel"))
}

/// Prints an error with its causes and returns the exit code.
fn report_result(result: anyhow::Result<()>, name: Option<&str>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::from(OK);
    };
    let (code, is_printed) = command_error::exit_code(&error);
    if is_printed {
        match name {
            Some(name) => output::print_message(&format!("{name}: {error:#}")),
            None => output::print_message(&format!("{error:#}")),
        }
    }
    ExitCode::from(code)
}
