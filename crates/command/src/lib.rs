//! Starts the programs that a configuration names: receivers of alerts, `exec` inputs, `flux`.
//!
//! A program and its arguments come from the configuration and never from data; no shell is
//! involved. It runs in a process group of its own, with a small environment that contains none of
//! the agent's secrets. Its standard input is a file in memory, so that a program that does not
//! read it blocks nothing, and its standard output is read up to a limit. The whole group is
//! killed at the timeout, when the agent stops, at the limit, and when the program has ended: no
//! process that it left behind survives it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

/// The variables that a program gets from the agent's environment.
pub const VARIABLES: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];

/// How often a wait checks the stop flag.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How one program is run.
#[derive(Debug, Clone)]
pub struct CommandOptions<'a> {
    /// The program and its arguments.
    pub argv: &'a [String],
    /// The contents of its standard input.
    pub input: &'a [u8],
    /// Variables besides [`VARIABLES`].
    pub environment: &'a [(String, String)],
    /// When the process group is killed.
    pub timeout: Duration,
    /// The most bytes of its output. 0: the output is discarded.
    pub output_max: usize,
    /// Kills the process group soon after another thread sets it.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Why a program gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("no program is configured")]
    NoProgram,
    #[error("cannot start {program}: {source}")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot wait for the program: {0}")]
    Wait(#[from] io::Error),
    #[error("killed after {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("killed: its output exceeds {0} bytes")]
    OutputTooLarge(usize),
    #[error("killed: the agent is stopping")]
    Stopped,
    #[error("exited with status {0}")]
    Failed(i32),
    #[error("killed by signal {0}")]
    Signal(i32),
}

/// Runs a program to its end and returns its output.
pub fn run_command(options: &CommandOptions<'_>) -> Result<Vec<u8>, RunError> {
    let mut group = ProcessGroup::start(options)?;
    let mut output = Vec::new();
    let status = group.wait(options, &mut output)?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (Some(code), _) => Err(RunError::Failed(code)),
        (None, signal) => Err(RunError::Signal(signal.unwrap_or_default())),
    }
}

/// A running program. Its whole process group is killed when this is dropped.
struct ProcessGroup {
    child: Child,
    pid: Pid,
    output: Option<ChildStdout>,
    is_reaped: bool,
}

impl ProcessGroup {
    fn start(options: &CommandOptions<'_>) -> Result<ProcessGroup, RunError> {
        let (program, arguments) = options.argv.split_first().ok_or(RunError::NoProgram)?;
        let failed = |source| RunError::Start {
            program: program.clone(),
            source,
        };
        let input = memory_file(options.input).map_err(failed)?;
        let variables = VARIABLES
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables)
            .envs(options.environment.iter().map(|(key, value)| (key, value)))
            .current_dir("/")
            .stdin(Stdio::from(input))
            .stdout(match options.output_max {
                0 => Stdio::null(),
                _ => Stdio::piped(),
            })
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let group = ProcessGroup {
            pid: Pid::from_child(&child),
            output: child.stdout.take(),
            is_reaped: false,
            child,
        };
        if let Some(output) = &group.output {
            set_nonblocking(output)?;
        }
        Ok(group)
    }

    /// Reads the output until the program has ended. A process that it left behind may hold the
    /// pipe open: after the program's end, only what is in the pipe is read.
    fn wait(
        &mut self,
        options: &CommandOptions<'_>,
        output: &mut Vec<u8>,
    ) -> Result<ExitStatus, RunError> {
        let deadline = Instant::now() + options.timeout;
        let pidfd = pidfd_open(self.pid, PidfdFlags::empty()).map_err(io::Error::from)?;
        loop {
            let has_ended = self.has_ended()?;
            self.read_available(options.output_max, output)?;
            if has_ended {
                return Ok(self.reap()?);
            }
            let stop = options.stop.as_ref();
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(RunError::Stopped);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RunError::TimedOut(options.timeout));
            }
            let wait = stop.map_or(left, |_| left.min(STOP_POLL_INTERVAL));
            let wait = Timespec {
                tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            };
            let mut descriptors = vec![PollFd::new(&pidfd, PollFlags::IN)];
            let pipe = self.output.as_ref();
            descriptors.extend(pipe.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            // EINTR is treated as a timeout.
            let _ = poll(&mut descriptors, Some(&wait));
        }
    }

    /// Returns whether the program has ended. It stays a zombie, so that its id is not reused.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Kills the process group and collects the exit status.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        // Fails if the group is gone.
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.is_reaped = true;
        self.child.wait()
    }

    /// Reads what the pipe holds. At its end the pipe is closed.
    fn read_available(&mut self, max: usize, output: &mut Vec<u8>) -> Result<(), RunError> {
        let mut buffer = [0; 16 << 10];
        while let Some(pipe) = &mut self.output {
            match pipe.read(&mut buffer) {
                Ok(0) => self.output = None,
                Ok(count) if output.len() + count > max => {
                    return Err(RunError::OutputTooLarge(max));
                }
                Ok(count) => output.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_reaped {
            // The status of a killed program does not matter.
            let _ = self.reap();
        }
    }
}

fn memory_file(contents: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(contents)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn set_nonblocking(pipe: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&pipe)?;
    Ok(fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::{TempDir, eventually};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn options(argv: &[String]) -> CommandOptions<'_> {
        CommandOptions {
            argv,
            input: b"",
            environment: &[],
            timeout: LONG,
            output_max: 1 << 20,
            stop: None,
        }
    }

    fn message(result: Result<Vec<u8>, RunError>) -> String {
        result.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn input_and_output_are_complete_and_secrets_are_not_in_the_environment() {
        let input = vec![b'x'; 1 << 20];
        let argv = shell("cat");
        let echoed = run_command(&CommandOptions {
            input: &input,
            ..options(&argv)
        });
        assert_eq!(echoed.expect("echoed"), input);
        let argv = shell("env");
        let environment = [("FLUX_URI".to_owned(), "local:///x".to_owned())];
        let shown = run_command(&CommandOptions {
            environment: &environment,
            ..options(&argv)
        });
        let shown = String::from_utf8(shown.expect("ran")).expect("UTF-8");
        assert!(shown.contains("FLUX_URI=local:///x"), "{shown}");
        let known = |line: &&str| {
            let name = line.split('=').next().unwrap_or_default();
            VARIABLES.contains(&name) || ["PWD", "OLDPWD", "SHLVL", "_", "FLUX_URI"].contains(&name)
        };
        let unknown: Vec<&str> = shown.lines().filter(|line| !known(line)).collect();
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn failures_are_described() {
        for (script, expected) in [
            ("exit 3", "exited with status 3"),
            ("kill -9 $$", "killed by signal 9"),
            ("yes", "killed: its output exceeds 1048576 bytes"),
        ] {
            assert_eq!(message(run_command(&options(&shell(script)))), expected);
        }
        let missing = ["/no/such/program".to_owned()];
        let error = message(run_command(&options(&missing)));
        assert!(error.contains("/no/such/program: No such file"), "{error}");
        assert_eq!(
            message(run_command(&options(&[]))),
            "no program is configured"
        );
        let argv = shell("sleep 1000 & sleep 1000");
        let hanging = run_command(&CommandOptions {
            timeout: Duration::from_millis(50),
            ..options(&argv)
        });
        assert_eq!(message(hanging), "killed after 0.05 s");
        let stopped = run_command(&CommandOptions {
            stop: Some(Arc::new(AtomicBool::new(true))),
            ..options(&argv)
        });
        assert_eq!(message(stopped), "killed: the agent is stopping");
    }

    #[test]
    fn processes_that_a_program_leaves_behind_are_killed_and_not_waited_for() {
        let dir = TempDir::new();
        let pid_file = dir.join("pid");
        let script = format!("sleep 1000 & echo $! > {}; echo done", pid_file.display());
        let output = run_command(&options(&shell(&script))).expect("ran");
        assert_eq!(output, b"done\n");
        let pid = fs::read_to_string(&pid_file).expect("written");
        let stat = format!("/proc/{}/stat", pid.trim());
        eventually("the process left behind is killed", || {
            match fs::read_to_string(&stat) {
                // A zombie has no parent that waits for it in a container without an init.
                Ok(state) if !state.contains(") Z ") => Err(state),
                _ => Ok(()),
            }
        });
    }
}
