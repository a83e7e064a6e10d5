//! `tau_metric_proxy_run`: `pegel run` with the options of TAU's wrapper, for existing scripts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use super::RunArgs;
use crate::command_error::{CommandError, clap_message};
use crate::{output, tau_proxy};

pub(crate) const NAME: &str = "tau_metric_proxy_run";

const HELP: &str = "\
tau_metric_proxy_run -m -s -v -h -u [PATH] -S [PID] -- [COMMAND]

Wrapper to run commands instrumented for the tau_metric_proxy.

-m: enable MPI profiling
-s: enable strace profiling (requires tau_strace in path)
-S [PID]: attach tau_strace to a running process id (COMMAND is ignored, no MPI instrum)
-u [PATH]: specify path to tau_metric_proxy push gateway UNIX socket
-v: enable verbose output
-h: show this help
";

#[derive(Debug, Parser)]
#[command(name = NAME, disable_help_flag = true)]
struct TauRunArgs {
    #[arg(short = 'm')]
    mpi: bool,
    #[arg(short = 's')]
    syscalls: bool,
    #[arg(short = 'S', allow_negative_numbers = true)]
    pid: Option<i32>,
    #[arg(short = 'u')]
    socket: Option<PathBuf>,
    #[arg(short = 'v')]
    verbose: bool,
    #[arg(short = 'h')]
    help: bool,
    // Without hyphen values: an argument with a leading hyphen is an unknown option.
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let old =
        TauRunArgs::try_parse_from(arguments).map_err(|error| usage(&clap_message(&error)))?;
    if old.help {
        return output::write(None, HELP);
    }
    if old.command.is_empty() && old.pid.is_none() {
        return Err(usage("no command given"));
    }
    super::run(&RunArgs {
        // Ignored with -S.
        mpi: old.mpi && old.pid.is_none(),
        command: match old.pid {
            Some(_) => Vec::new(),
            None => old.command,
        },
        syscalls: old.syscalls,
        pid: old.pid,
        verbose: old.verbose,
        socket: old.socket.or_else(tau_socket_if_present),
        job: None,
        method: None,
        io_only: false,
        no_time: false,
        agent: false,
        report: None,
        summary: None,
        quiet: false,
    })
}

/// Returns the socket of this user's tau_metric_proxy if it exists and $PEGEL_SOCKET is not set.
fn tau_socket_if_present() -> Option<PathBuf> {
    let is_named = std::env::var_os("PEGEL_SOCKET").is_some_and(|path| !path.is_empty());
    let usual = tau_proxy::default_socket();
    (!is_named && usual.exists()).then_some(usual)
}

fn usage(message: &str) -> anyhow::Error {
    CommandError::usage(format!("{NAME}: {message}\n\n{HELP}"))
}
