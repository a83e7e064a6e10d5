//! `pegel`: one file per command.

mod agent;
mod answer;
mod ask;
mod client;
mod completions;
mod config;
mod doctor;
mod failure;
mod format;
mod get;
mod grafana;
mod list;
mod logging;
mod man;
mod output;
mod prometheus_config;
mod push;
mod run;
mod snapshot;
mod tau;
mod tau_proxy;
mod top;
mod track;
mod values;
mod version;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use failure::{OK, USAGE};

/// What compute nodes and the programs on them do, while they do it and afterwards
///
/// Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 no agent, 4 nothing matched.
#[derive(Debug, Parser)]
#[command(name = "pegel", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Agent(Box<agent::Args>),
    Run(run::Args),
    List(list::Args),
    Values(values::Args),
    Get(get::Args),
    Track(track::Args),
    Top(top::Args),
    Push(push::Args),
    Snapshot(snapshot::Args),
    Grafana(grafana::Args),
    PrometheusConfig(prometheus_config::Args),
    Config(config::Args),
    Doctor(doctor::Args),
    Version(version::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// The command line, for completions and manual pages.
fn command() -> clap::Command {
    Cli::command()
}

fn main() -> ExitCode {
    // One provider of cryptography for the whole process. It fails only when there is one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    if called == Some(tau::NAME.as_ref()) {
        return end(tau::run(arguments.into_iter()), None);
    }
    if called == Some(run::tau::NAME.as_ref()) {
        return end(run::tau::run(arguments.into_iter()), None);
    }
    if called == Some(tau_proxy::NAME.as_ref()) {
        return end(tau_proxy::run(arguments.into_iter()), None);
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not mistakes. A closed pipe is no reason to complain.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { OK });
        }
    };
    let result = match &cli.command {
        Command::Agent(args) => agent::run(args),
        Command::Run(args) => run::run(args),
        Command::List(args) => list::run(args),
        Command::Values(args) => values::run(args),
        Command::Get(args) => get::run(args),
        Command::Track(args) => track::run(args),
        Command::Top(args) => top::run(args),
        Command::Push(args) => push::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Grafana(args) => grafana::run(args),
        Command::PrometheusConfig(args) => prometheus_config::run(args),
        Command::Config(args) => config::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Version(args) => version::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    };
    end(result, Some("pegel"))
}

/// Says what went wrong, with all its causes, and chooses the exit code.
fn end(result: anyhow::Result<()>, name: Option<&str>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::from(OK);
    };
    let (code, is_said) = failure::judge(&error);
    if is_said {
        match name {
            Some(name) => output::note(&format!("{name}: {error:#}")),
            None => output::note(&format!("{error:#}")),
        }
    }
    ExitCode::from(code)
}
