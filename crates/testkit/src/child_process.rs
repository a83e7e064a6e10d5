//! Child processes with recorded output.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::{TempDir, assert_token_absent};

/// A child process whose output is written to files; killed on drop.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Holds the two files.
    _outputs: TempDir,
}

/// The exit status and the output of a process.
#[derive(Debug)]
pub struct FinishedProcess {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl FinishedProcess {
    /// Returns the exit code; None after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl fmt::Display for FinishedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.status, self.stdout, self.stderr
        )
    }
}

impl ChildProcess {
    pub fn start(command: &mut Command) -> ChildProcess {
        let outputs = TempDir::new();
        let (stdout, stderr) = (outputs.join("stdout"), outputs.join("stderr"));
        let create = |path: &Path| -> Stdio {
            fs::File::create(path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
                .into()
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(create(&stdout))
            .stderr(create(&stderr))
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        ChildProcess {
            child,
            stdout,
            stderr,
            _outputs: outputs,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .unwrap_or_else(|e| panic!("cannot send {signal:?} to {pid:?}: {e}"));
    }

    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the process is ours")
            .is_some()
    }

    /// Waits for the exit; fails the test if the process runs longer than `bound`.
    pub fn wait(mut self, bound: Duration) -> FinishedProcess {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                let (stdout, stderr) = (self.stdout(), self.stderr());
                return FinishedProcess {
                    status,
                    stdout,
                    stderr,
                };
            }
            assert!(
                started.elapsed() < bound,
                "still running after {bound:?}\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(mut self) -> FinishedProcess {
        // It may have exited by itself; `wait` returns its status.
        let _ = self.child.kill();
        self.wait(Duration::from_secs(20))
    }

    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Returns both outputs so far, for a message.
    pub fn output(&self) -> String {
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout(),
            self.stderr()
        )
    }
}

impl Drop for ChildProcess {
    #[allow(clippy::print_stderr)] // The test runner shows it for failed tests only.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert_token_absent("a process", self.output().as_bytes());
        if std::thread::panicking() {
            eprintln!("process {}:\n{}", self.pid(), self.output());
        }
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_output_come_back() {
        let process =
            ChildProcess::start(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]));
        let finished = process.wait(Duration::from_secs(20));
        assert_eq!(finished.code(), Some(7));
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("out\n", "err\n")
        );
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = ChildProcess::start(Command::new("sleep").arg("1000"));
        let pid = Pid::from_child(&process.child);
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
