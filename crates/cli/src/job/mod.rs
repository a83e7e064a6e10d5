//! `pegel job`: starts an agent on every node of the allocation, runs the command, and stops
//! everything at its end.
//!
//! The head is an agent on this machine, a child process whose standard input is held open: its end
//! is the end of the job, also if this process is killed. The agents of the other nodes end when
//! the head is gone, so that nothing depends on an orderly end.

pub(crate) mod collect;
mod command_process;
mod credentials;
mod events;
mod head_process;
mod job_reports;
mod launched_agents;
pub(crate) mod node_agent;
mod node_directory;
mod participants;
mod plan;
mod reverse_tunnel;
mod sqlite_dump;
mod sqlite_import;
mod summary;
pub(crate) mod view;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pegel_config::TimeSpan;

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;
use crate::output;
use command_process::CommandProcess;
use events::{JobEvent, JobEvents};
use head_process::HeadProcess;
use job_reports::JobReports;
use launched_agents::LaunchedAgents;
use participants::ParticipantWatch;
use plan::JobPlan;
use reverse_tunnel::ReverseTunnel;

/// How long the agents may take to end by themselves after the head ended.
const END_TIME: Duration = Duration::from_secs(20);
/// The same if they copy their samples to a shared directory.
const COPY_TIME: Duration = Duration::from_secs(600);
/// How often the tunnel is checked.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The number of missing nodes that are named.
const NAMED_MAX: usize = 10;

/// Run a command with an agent on every node of the allocation
///
/// Finds the nodes (Slurm, Flux, PBS, LSF, --hosts, --hostfile, else this machine), starts an agent
/// on each with the launcher of the site, runs COMMAND, and stops the agents at its end. Exits with
/// the code of COMMAND; with 2 if no agent can be started on the other nodes.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pegel job [OPTIONS] -- COMMAND...")]
pub(crate) struct JobArgs {
    /// Nodes: n1,n2 or 'nid[0001-0004]' [default: those of the allocation]
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// File with one node per line
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Program that starts the agents: srun, flux, pbsdsh, blaunch, mpirun or ssh, also with a path
    /// and options [default: that of the site]
    #[arg(long, value_name = "PROGRAM")]
    launcher: Option<String>,
    /// Path of pegel on the other nodes [default: the path of this program]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// How long to wait for all nodes before the command is started without the missing ones
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: TimeSpan,
    /// Network interface or address at which the nodes reach this one [default: the fastest link]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Highest metric level to keep, 0 to 4
    #[arg(long, value_name = "N")]
    level: Option<String>,
    /// Sampling interval: 500ms, 5s; a plain number means seconds
    #[arg(long, value_name = "TIME")]
    rate: Option<String>,
    /// Configuration file of the agents [default: $PEGEL_CONFIG, $DRAGON_TELEMETRY_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory on storage of the nodes, in which the agents keep their samples [default: /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory that all nodes share, for the job's secrets while it starts; not used with ssh
    /// [default: ~/.local/state/pegel/jobs]
    #[arg(long, value_name = "DIR")]
    shared: Option<PathBuf>,
    /// Copy the samples of every node to DIR/NODE at the end; all nodes must share it
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write the samples of every node to DIR/ts_NODE.db, as Dragon's telemetry does
    #[arg(long, requires = "out")]
    sqlite: bool,
    /// Children of one parent in the tree
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    fan_out: u16,
    /// Host through which you reach this node, for the printed tunnel [default: the host from which
    /// the job was submitted]
    #[arg(long, value_name = "HOST")]
    login: Option<String>,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// Program and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Returns the name of this machine.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

pub(crate) fn run(args: &JobArgs) -> anyhow::Result<()> {
    let plan = JobPlan::new(args)?;
    let events = JobEvents::start()?;
    let mut job = RunningJob::start(args, plan, events)?;
    let ended = job.run();
    job.stop();
    match ended? {
        0 => Ok(()),
        // The command printed what there is to say.
        code => Err(CommandError::silent(code)),
    }
}

/// The agents of a job, from their start to their end.
struct RunningJob<'a> {
    args: &'a JobArgs,
    plan: JobPlan,
    events: JobEvents,
    head: HeadProcess,
    agents: LaunchedAgents,
    started: Instant,
    /// Milliseconds since 1970.
    started_at: i64,
    is_telemetry_over: bool,
    tunnel: Option<ReverseTunnel>,
}

impl<'a> RunningJob<'a> {
    /// Starts the head and the launchers. On error nothing stays.
    fn start(
        args: &'a JobArgs,
        mut plan: JobPlan,
        events: JobEvents,
    ) -> anyhow::Result<RunningJob<'a>> {
        let started = Instant::now();
        let head = HeadProcess::start(&plan.file, &events)?;
        plan.file.head_address = head.children_address();
        let mut job = RunningJob {
            args,
            plan,
            events,
            head,
            agents: LaunchedAgents::default(),
            started,
            started_at: jiff::Timestamp::now().as_millisecond(),
            is_telemetry_over: false,
            tunnel: None,
        };
        match job.launch() {
            Ok(()) => Ok(job),
            Err(error) => {
                job.stop();
                Err(error)
            }
        }
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        let Some(launcher) = &self.plan.launcher else {
            return Ok(());
        };
        self.agents.start(launcher, &self.plan, &self.events)?;
        Ok(())
    }

    fn client(&self) -> anyhow::Result<AgentClient> {
        AgentClient::find(Some(self.head.socket()), &[])
    }

    fn print(&self, text: &str) {
        if !self.args.quiet {
            output::print_message(&format!("pegel: {text}"));
        }
    }

    /// Waits for the nodes, runs the command and returns its exit code.
    fn run(&mut self) -> anyhow::Result<u8> {
        if let Some(code) = self.wait_for_nodes()? {
            return Ok(code);
        }
        for line in self.plan.access_lines(&self.head) {
            self.print(&line);
        }
        if let Some(tunnel) = self.plan.reverse_tunnel(&self.head) {
            match ReverseTunnel::start(&tunnel) {
                Ok(opened) => {
                    self.print(&format!("tunnel: {}", tunnel.join(" ")));
                    self.tunnel = Some(opened);
                }
                Err(error) => output::print_message(&format!("pegel: {error:#}")),
            }
        }
        let variables = self.plan.variables();
        let command = CommandProcess::start(&self.args.command, &variables, &self.events)?;
        let reports = JobReports::begin(self.plan.job_id(), self.head.socket());
        self.watch(&command, reports)
    }

    /// Waits until all nodes are up, or for the timeout. Returns an exit code if a signal ends the
    /// job before its command is started.
    fn wait_for_nodes(&mut self) -> anyhow::Result<Option<u8>> {
        let client = self.client()?;
        let deadline = self.started + self.args.timeout.duration();
        let all = self.plan.all_nodes();
        let known = all.iter().cloned().collect();
        let (up, missing) = loop {
            let asked = Instant::now();
            let up = launched_agents::nodes_up(&client, &known)?;
            let pause = launched_agents::listing_pause(asked.elapsed());
            let missing = all.iter().filter(|node| !up.contains(*node));
            let missing: Vec<&str> = missing.map(String::as_str).collect();
            if self.agents.have_given_up(&missing) || Instant::now() >= deadline {
                break (up, missing);
            }
            match self.events.next(pause) {
                Some(JobEvent::Signal(signal)) => return Ok(Some(exit_code_of(signal))),
                Some(JobEvent::HeadEnded) => anyhow::bail!("{}", self.head.failure()),
                Some(JobEvent::LauncherEnded(index, status)) => {
                    self.agents.on_end(index, status);
                }
                _ => {}
            }
        };
        self.plan.remove_job_file();
        let seconds = self.started.elapsed().as_secs_f64();
        let is_alone = up.iter().all(|node| *node == self.plan.file.head);
        if !missing.is_empty() && is_alone && self.agents.have_failed() {
            return Err(CommandError::usage(self.agents.failure_text()));
        }
        self.print(&format!(
            "{} of {} nodes up in {seconds:.1} s",
            up.len(),
            all.len()
        ));
        self.agents.set_missing(&missing);
        if !missing.is_empty() {
            let text = launched_agents::named(&missing, NAMED_MAX);
            output::print_message(&format!("pegel: missing: {text}"));
            for reason in self.agents.failures_of(&missing) {
                output::print_message(&format!("pegel: {reason}"));
            }
        }
        Ok(None)
    }

    /// Watches the command until its end; returns its exit code.
    fn watch(&mut self, command: &CommandProcess, reports: JobReports) -> anyhow::Result<u8> {
        // If the head ended already, its end is reported below; the command continues.
        let watch = ParticipantWatch::start(self.head.socket(), &self.plan, &self.events);
        let mut watch = watch
            .inspect_err(|error| {
                output::print_message(&format!("pegel: participants are not watched: {error:#}"));
            })
            .ok();
        loop {
            match self.events.next(WATCH_INTERVAL) {
                Some(JobEvent::CommandEnded(status)) => {
                    drop(watch);
                    reports.end(status);
                    self.finish_telemetry();
                    return Ok(command_process::exit_code(status));
                }
                Some(JobEvent::Signal(signal)) => command.forward(signal),
                Some(JobEvent::HeadEnding) => {
                    self.end_early("the end of the telemetry was requested; the command continues");
                }
                Some(JobEvent::ParticipantsDone) => self.end_early(
                    "all participants are done; the command continues without telemetry",
                ),
                Some(JobEvent::HeadEnded) if !self.is_telemetry_over => {
                    self.is_telemetry_over = true;
                    let reason = self.head.failure();
                    output::print_message(&format!(
                        "pegel: {reason}; the command continues without telemetry"
                    ));
                }
                Some(JobEvent::LauncherEnded(index, status)) => {
                    self.agents.on_end(index, status);
                    if let Some(text) = self.agents.loss_text(index, self.is_telemetry_over) {
                        output::print_message(&format!("pegel: {text}"));
                    }
                }
                Some(JobEvent::HeadEnded) | None => {}
            }
            if self.is_telemetry_over {
                watch = None;
            }
            self.report_lost_tunnel();
        }
    }

    /// Ends the telemetry while the command continues.
    fn end_early(&mut self, reason: &str) {
        if self.is_telemetry_over {
            return;
        }
        self.print(reason);
        self.finish_telemetry();
        self.stop();
    }

    /// Reports a tunnel to the login host that has ended.
    fn report_lost_tunnel(&mut self) {
        let reason = self.tunnel.as_mut().and_then(ReverseTunnel::end_reason);
        if let Some(reason) = reason {
            output::print_message(&format!("pegel: {reason}"));
            self.tunnel = None;
        }
    }

    /// Reads what the summary needs, and prints it.
    fn finish_telemetry(&mut self) {
        if std::mem::replace(&mut self.is_telemetry_over, true) {
            return;
        }
        let elapsed = self.started.elapsed();
        // The nodes take their last samples of the program.
        std::thread::sleep(self.plan.last_sample_time());
        let line = match self.client() {
            Ok(client) => summary::summary_line(&client, &self.plan, elapsed),
            Err(error) => format!("no summary: {error:#}"),
        };
        self.print(&line);
        self.write_databases();
    }

    /// Writes the files for Dragon's tools, through the tree.
    fn write_databases(&self) {
        let files = self.plan.database_files(self.args.sqlite);
        if files.is_empty() {
            return;
        }
        let end = jiff::Timestamp::now().as_millisecond();
        for (node, path) in files {
            let dumped = self.client().and_then(|client| {
                sqlite_dump::dump_node(&client, &node, (self.started_at, end), &path)
            });
            if let Err(error) = dumped {
                output::print_message(&format!("pegel: {node}: {error:#}"));
            }
        }
    }

    /// Ends the head and thereby all agents, and waits for them. May be called again.
    fn stop(&mut self) {
        self.is_telemetry_over = true;
        self.plan.remove_job_file();
        self.report_lost_tunnel();
        self.tunnel = None;
        let bound = match self.plan.file.out.is_some() {
            true => COPY_TIME,
            false => END_TIME,
        };
        self.head.stop(bound);
        self.agents.stop(bound, &self.events);
        // The head removes its directory itself, unless it was killed.
        let dir = &self.plan.file.dir;
        if !self.plan.file.keeps_dir && self.head.was_killed() {
            let _ = fs::remove_dir_all(dir.join("head"));
            let _ = fs::remove_dir_all(dir.join("primary"));
            let _ = fs::remove_dir_all(&self.plan.file.lanes);
            let _ = fs::remove_dir(dir);
        }
        if let Some(text) = self.plan.missing_copies() {
            output::print_message(&format!("pegel: {text}"));
        }
    }
}

/// Returns the exit code of a process that a signal ended.
fn exit_code_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}
