//! `pegel run`: launches a program, or attaches to a process, and counts its MPI and system calls.

mod agent;
mod job_reporter;
mod local_rank;
mod rank_group;
mod report;
mod run_end;
mod summary_text;
pub(crate) mod tau_run;

use std::ffi::OsString;
use std::path::PathBuf;

use pegel_run::{
    AttachOptions, CallTiming, CountingAgents, CountingMethod, CountingOptions, Launch,
    ProgramSummary,
};

use self::run_end::RunEnd;
use crate::command_error::CommandError;
use crate::{agent_client, output};

/// Run a program and count its MPI calls and system calls
///
/// The program runs as if it were not wrapped: same exit code, signals, terminal and environment.
/// The counts go to the agent of this node; without an agent the program runs unchanged, and an
/// agent that starts later receives the totals. Exits with 127 if COMMAND is not found, and with
/// 126 if it cannot be executed.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pegel run [OPTIONS] -- COMMAND...\n       pegel run [OPTIONS] -S PID")]
pub(crate) struct RunArgs {
    /// Count MPI calls, their bytes and their time
    #[arg(short)]
    pub mpi: bool,
    /// Count system calls, their bytes, time and errors
    #[arg(short)]
    pub syscalls: bool,
    /// Count the system calls of a running process; on interrupt, detach and leave it running
    #[arg(
        short = 'S',
        value_name = "PID",
        allow_negative_numbers = true,
        conflicts_with_all = ["mpi", "command"]
    )]
    pub pid: Option<i32>,
    /// Print what is counted and how
    #[arg(short)]
    pub verbose: bool,
    /// Socket of the agent that receives the counts [default: $PEGEL_SOCKET, the user's, the
    /// system's]
    #[arg(short = 'u', long = "unix", value_name = "SOCKET")]
    pub socket: Option<PathBuf>,
    /// Job ID of the counts [default: the scheduler's]
    #[arg(short, value_name = "JOB")]
    pub job: Option<String>,
    /// Method of counting system calls [default: ebpf if permitted, else ptrace]
    #[arg(long, value_enum, value_name = "METHOD")]
    pub method: Option<MethodName>,
    /// Count only calls that transfer bytes; requires --method seccomp
    #[arg(long)]
    pub io_only: bool,
    /// Count without measuring time, at half the cost; eBPF only
    #[arg(long)]
    pub no_time: bool,
    /// Start an agent if none is running; it exits with the last program [env: PEGEL_AUTO_AGENT=1]
    #[arg(long)]
    pub agent: bool,
    /// Write counts, CPU time, memory and I/O to FILE as JSON; each rank of an MPI job writes its
    /// own, with its number before the extension or in place of %r
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print a summary at the end, or append it to FILE; one for all ranks of an MPI job on a node
    /// [default: if standard error is a terminal] [env: PEGEL_SUMMARY=1]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub summary: Option<Option<PathBuf>>,
    /// Print no summary
    #[arg(short, long, conflicts_with_all = ["summary", "verbose"])]
    pub quiet: bool,
    /// Program and arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "pid"
    )]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum MethodName {
    /// In the kernel, at the lowest cost; requires CAP_BPF and CAP_PERFMON
    Ebpf,
    /// Stops the program at each call; requires no privilege
    Ptrace,
    /// With --io-only: like ptrace, but other calls run at full speed; see the manual for its risks
    Seccomp,
}

impl From<MethodName> for CountingMethod {
    fn from(name: MethodName) -> CountingMethod {
        match name {
            MethodName::Ebpf => CountingMethod::Ebpf,
            MethodName::Ptrace => CountingMethod::Ptrace,
            MethodName::Seccomp => CountingMethod::Seccomp,
        }
    }
}

impl RunArgs {
    fn time(&self) -> CallTiming {
        if self.no_time {
            CallTiming::Ignored
        } else {
            CallTiming::Measured
        }
    }
}

/// Returns only if the program could not be started, or after `-S`: a launched program's exit ends
/// this process.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    check(args)?;
    let is_verbose = args.verbose;
    let note = move |text: &str| {
        if is_verbose {
            output::print_message(&format!("pegel: {text}"));
        }
    };
    let run_end = RunEnd::new(args)?;
    set_environment(args, &note);
    agent::connect_or_start(args, &note);
    let agents = CountingAgents {
        // The counting process has another working directory.
        sockets: agent_client::candidate_sockets(args.socket.as_deref(), &[])
            .iter()
            .map(std::path::absolute)
            .collect::<Result<_, _>>()?,
        connect: agent_client::connect_trusted,
    };
    if let Some(pid) = args.pid {
        let target = AttachOptions {
            pid,
            method: args.method.map(CountingMethod::from),
            time: args.time(),
            agents,
            wants_summary: run_end.is_wanted(),
        };
        let summary = pegel_run::attach(&target, &note, &|threads, method| {
            let threads = match threads {
                1 => "one thread".to_owned(),
                threads => format!("{threads} threads"),
            };
            let text = format!("process {pid}: {threads}, counted by {method}");
            if output::stderr_is_terminal() {
                output::print_message(&format!("pegel: {text}; press Ctrl-C to detach"));
            } else {
                note(&text);
            }
        })?;
        run_end.on_end(&summary);
        return Ok(());
    }
    let launch = Launch {
        command: &args.command,
        syscalls: args.syscalls.then(|| CountingOptions {
            method: args.method.map(CountingMethod::from),
            time: args.time(),
            agents,
        }),
        mpi: args.mpi,
        note: &note,
        wants_summary: run_end.is_wanted(),
        on_start: &|| run_end.on_start(),
        finish: &|summary: &ProgramSummary| run_end.on_end(summary),
        keeps_stderr: is_verbose || run_end.prints(),
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
            "--method seccomp requires --io-only, and vice versa",
        ));
    }
    if args.pid.is_some() && is_seccomp {
        return Err(CommandError::usage(
            "-S requires --method ebpf or ptrace: a seccomp filter cannot be installed in a running process",
        ));
    }
    if args.no_time && matches!(args.method, Some(MethodName::Ptrace | MethodName::Seccomp)) {
        return Err(CommandError::usage(
            "--no-time requires --method ebpf: the other methods measure time at no extra cost",
        ));
    }
    if args
        .job
        .as_deref()
        .is_some_and(|job| job.is_empty() || job.chars().any(char::is_control))
    {
        return Err(CommandError::usage(
            "-j: job ID must not be empty or contain control characters",
        ));
    }
    Ok(())
}

/// Sets the environment variable that labels the program's counters with the job.
fn set_environment(args: &RunArgs, note: &dyn Fn(&str)) {
    if let Some(job) = &args.job {
        // SAFETY: set_var requires that no other thread accesses the environment; this process has
        // one thread.
        unsafe { std::env::set_var("PEGEL_JOB", job) };
    }
    if let Some(job) = pegel_lane::job_id() {
        note(&format!(
            "job {job}, rank {}",
            pegel_lane::rank().unwrap_or_else(|| "none".to_owned())
        ));
    }
}
