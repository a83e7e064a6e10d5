//! `pegel run`: a program, watched.

mod agent;
mod report;
pub mod tau_run;

use std::ffi::OsString;
use std::path::PathBuf;

use pegel_run::{Agents, Attach, Counting, Launch, Method, Summary, Time};

use crate::command_error::CommandError;
use crate::{agent_client, output};

/// Run a program and count its MPI calls and system calls
///
/// The program runs as if it were not wrapped: the same exit code, signals, terminal and environment. What it counts
/// goes to the agent of this node; with none it runs all the same, and an agent that starts later gets the totals.
/// A command that is not found exits with 127, one that cannot be executed with 126.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pegel run [OPTIONS] -- COMMAND...\n       pegel run [OPTIONS] -S PID")]
pub struct RunArgs {
    /// Count MPI calls: how often, how many bytes, how long
    #[arg(short)]
    pub mpi: bool,
    /// Count system calls: how often, how many bytes, how long, how many errors
    #[arg(short)]
    pub syscalls: bool,
    /// Count the system calls of a running process; an interrupt lets it live on
    #[arg(
        short = 'S',
        value_name = "PID",
        allow_negative_numbers = true,
        conflicts_with_all = ["mpi", "command"]
    )]
    pub pid: Option<i32>,
    /// Say what is counted and how
    #[arg(short)]
    pub verbose: bool,
    /// The socket of the agent that is to have the counts [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', long = "unix", value_name = "SOCKET")]
    pub socket: Option<PathBuf>,
    /// The job that the counts belong to [default: the scheduler's]
    #[arg(short, value_name = "JOB")]
    pub job: Option<String>,
    /// How to count system calls [default: the first of these that this machine allows: ebpf, ptrace]
    #[arg(long, value_enum, value_name = "METHOD")]
    pub method: Option<MethodName>,
    /// Count only calls that move bytes; needs --method seccomp
    #[arg(long)]
    pub io_only: bool,
    /// Count without measuring time, which halves the cost; by eBPF only
    #[arg(long)]
    pub no_time: bool,
    /// Start an agent if there is none; it ends with the last program [env: PEGEL_AUTO_AGENT=1]
    #[arg(long)]
    pub agent: bool,
    /// Write what was counted to FILE, as JSON; needs -s or -S
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "pid"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum MethodName {
    /// In the kernel, cheapest; needs CAP_BPF and CAP_PERFMON
    Ebpf,
    /// From outside, call by call; needs no privilege
    Ptrace,
    /// With --io-only: as ptrace, but other calls run at full speed; see the manual for its hazards
    Seccomp,
}

impl From<MethodName> for Method {
    fn from(name: MethodName) -> Method {
        match name {
            MethodName::Ebpf => Method::Ebpf,
            MethodName::Ptrace => Method::Ptrace,
            MethodName::Seccomp => Method::Seccomp,
        }
    }
}

impl RunArgs {
    fn time(&self) -> Time {
        match self.no_time {
            true => Time::Ignored,
            false => Time::Measured,
        }
    }
}

/// Returns only when the program could not be started, or when a process that ran already was watched.
pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    check(args)?;
    let is_verbose = args.verbose;
    let note = move |text: &str| {
        if is_verbose {
            output::print_message(&format!("pegel: {text}"));
        }
    };
    let report = args
        .report
        .as_deref()
        .map(std::path::absolute)
        .transpose()?;
    set_environment(args, &note);
    agent::connect_or_start(args, &note);
    let finish = |summary: &Summary| {
        if is_verbose || output::stderr_is_terminal() {
            output::print_message(&format!("pegel: {}", report::summary_line(summary)));
        }
        if let Some(path) = &report
            && let Err(error) = output::write(Some(path), &report::json(summary, &args.command))
        {
            output::print_message(&format!("pegel: {error:#}"));
        }
    };
    let agents = Agents {
        // Whoever counts has another working directory.
        sockets: agent_client::candidate_sockets(args.socket.as_deref(), &[])
            .iter()
            .map(std::path::absolute)
            .collect::<Result<_, _>>()?,
        connect: agent_client::connect_trusted,
    };
    if let Some(pid) = args.pid {
        let target = Attach {
            pid,
            method: args.method.map(Method::from),
            time: args.time(),
            agents,
        };
        let summary = pegel_run::attach(&target, &note, &|threads, method| {
            let threads = match threads {
                1 => "one thread".to_owned(),
                threads => format!("{threads} threads"),
            };
            let text = format!("process {pid}: {threads}, counted by {method}");
            match output::stderr_is_terminal() {
                true => output::print_message(&format!("pegel: {text}; Ctrl-C lets it live on")),
                false => note(&text),
            }
        })?;
        finish(&summary);
        return Ok(());
    }
    let launch = Launch {
        command: &args.command,
        syscalls: args.syscalls.then(|| Counting {
            method: args.method.map(Method::from),
            time: args.time(),
            agents,
        }),
        mpi: args.mpi,
        note: &note,
        finish: &finish,
        keeps_stderr: is_verbose || args.report.is_some() || output::stderr_is_terminal(),
    };
    let Err(error) = launch.run();
    let code = error.exit_code();
    Err(CommandError::with_code(
        code,
        format!("{:#}", anyhow::Error::from(error)),
    ))
}

fn check(args: &RunArgs) -> anyhow::Result<()> {
    let is_seccomp = matches!(args.method, Some(MethodName::Seccomp));
    if is_seccomp != args.io_only {
        return Err(CommandError::usage(
            "--method seccomp and --io-only go together: the one counts nothing but the other",
        ));
    }
    if args.report.is_some() && !args.syscalls && args.pid.is_none() {
        return Err(CommandError::usage(
            "--report needs -s or -S: without them there is nothing to report",
        ));
    }
    if args.pid.is_some() && is_seccomp {
        return Err(CommandError::usage(
            "-S counts by ebpf or ptrace: no filter can be put into a process that runs",
        ));
    }
    if args.no_time && matches!(args.method, Some(MethodName::Ptrace | MethodName::Seccomp)) {
        return Err(CommandError::usage(
            "--no-time is for eBPF: the other methods measure time at no cost",
        ));
    }
    if args
        .job
        .as_deref()
        .is_some_and(|job| job.is_empty() || job.chars().any(char::is_control))
    {
        return Err(CommandError::usage(
            "-j: a job's name has at least one character, and no control characters",
        ));
    }
    Ok(())
}

/// What the program's own counters need, and nothing else.
fn set_environment(args: &RunArgs, note: &dyn Fn(&str)) {
    if let Some(job) = &args.job {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("PEGEL_JOB", job) };
    }
    if let Some(job) = pegel_lane::job_id() {
        note(&format!(
            "job {job}, rank {}",
            pegel_lane::rank().unwrap_or_else(|| "none".to_owned())
        ));
    }
}
