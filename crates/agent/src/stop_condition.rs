//! Stops the agent with another process (`--until-pid`), with the last program that has a lane
//! (`--until-lanes-end`), or when a caller's check is true.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pegel_lane::reader::{LaneDirectoryHandle, LaneLimits, ProcessState};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

/// The condition on which the agent stops.
#[derive(Debug)]
pub struct StopCondition(StopTrigger);

#[derive(Debug)]
enum StopTrigger {
    /// The descriptor refers to this process even if its pid is reused.
    Process(OwnedFd),
    /// The directories of programs' lanes.
    Lanes(Vec<PathBuf>),
    Check(PolledCheck),
}

/// A check that is called until it returns true.
struct PolledCheck(Box<dyn FnMut() -> bool + Send>);

impl fmt::Debug for PolledCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolledCheck")
    }
}

/// How often to check for programs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait for the first program to appear.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// How long to wait for the next program: a job may have none between two of them.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Lanes beyond the number that an agent reads are ignored.
const LANES_MAX: usize = 65_536;
/// How often the check of a caller is called.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum StopConditionError {
    #[error("--until-pid {0}: no such process")]
    NoProcess(i32),
    #[error("--until-pid {pid}: cannot watch this process")]
    Io {
        pid: i32,
        #[source]
        source: io::Error,
    },
}

impl StopCondition {
    pub fn on_process_exit(pid: i32) -> Result<StopCondition, StopConditionError> {
        // `Pid::from_raw` does not accept negative numbers.
        let number = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let number = number.ok_or(StopConditionError::NoProcess(pid))?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(StopCondition(StopTrigger::Process(descriptor))),
            Err(rustix::io::Errno::SRCH) => Err(StopConditionError::NoProcess(pid)),
            Err(error) => Err(StopConditionError::Io {
                pid,
                source: error.into(),
            }),
        }
    }

    /// Stops when no program has a lane in any of these directories.
    pub fn on_lanes_end(directories: Vec<PathBuf>) -> StopCondition {
        StopCondition(StopTrigger::Lanes(directories))
    }

    /// Stops when `check` returns true; it is called five times a second.
    pub fn when(check: impl FnMut() -> bool + Send + 'static) -> StopCondition {
        StopCondition(StopTrigger::Check(PolledCheck(Box::new(check))))
    }

    /// Resolves when the condition is met.
    pub async fn wait_async(self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        // Uses a detached thread: it sleeps until that process or this one ends.
        std::thread::Builder::new()
            .name("until-pid".to_owned())
            .spawn(move || {
                let _ = sender.send(self.wait());
            })?;
        receiver.await.map_err(io::Error::other)?
    }

    fn wait(self) -> io::Result<()> {
        match self.0 {
            StopTrigger::Process(process) => wait_for_process(&process),
            StopTrigger::Lanes(directories) => {
                wait_for_lanes(&directories, FIRST_WAIT, LAST_WAIT);
                Ok(())
            }
            StopTrigger::Check(mut check) => {
                while !(check.0)() {
                    std::thread::sleep(CHECK_INTERVAL);
                }
                Ok(())
            }
        }
    }
}

fn wait_for_process(process: &OwnedFd) -> io::Result<()> {
    loop {
        let mut descriptors = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for_lanes(directories: &[PathBuf], first_wait: Duration, last_wait: Duration) {
    let mut deadline = Instant::now() + first_wait;
    while Instant::now() < deadline {
        if directories.iter().any(has_live_lanes) {
            deadline = Instant::now() + last_wait;
        }
        std::thread::sleep(POLL_INTERVAL.min(last_wait / 4));
    }
}

/// Whether a running program has a lane in the directory. One that called `exec` still runs.
fn has_live_lanes(directory: &PathBuf) -> bool {
    let Ok(directory) = LaneDirectoryHandle::open(directory) else {
        return false;
    };
    let listing = directory.list(LANES_MAX).unwrap_or_default();
    listing.lanes.iter().any(|found| {
        directory
            .open_lane(&found.name, &LaneLimits::default())
            .is_ok_and(|lane| match lane.process() {
                ProcessState::Alive => true,
                ProcessState::Gone => false,
                ProcessState::NotVisible => !lane.is_ended().unwrap_or(true),
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_said_so() {
        for pid in [i32::MAX, 0, -1] {
            let error = StopCondition::on_process_exit(pid).expect_err("no such process");
            assert_eq!(
                error.to_string(),
                format!("--until-pid {pid}: no such process")
            );
        }
    }

    #[test]
    fn the_end_of_the_last_program_with_a_lane_is_seen() {
        use pegel_lane::{Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};
        let dir = pegel_testkit::TempDir::new();
        let directories = [dir.path().to_owned()];
        let wait = |first: u64, last: u64| {
            let before = Instant::now();
            let bounds = (Duration::from_millis(first), Duration::from_millis(last));
            wait_for_lanes(&directories, bounds.0, bounds.1);
            before.elapsed()
        };
        assert!(wait(100, 10) < Duration::from_secs(5));
        // SAFETY: the child only creates a lane and waits to be killed; it uses no lock that
        // another thread may hold.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let spec = LaneSeriesSpec::new(LaneKind::Counter, "test_total");
            let _ = Counter::create_in(ProcessLanes::in_directory(dir.path()), &spec);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(10_000, 400));
            std::thread::sleep(Duration::from_millis(1_000));
            assert!(!waiting.is_finished(), "the program runs");
            // SAFETY: kills and reaps our own child.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            waiting.join().expect("no panic");
        });
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("started");
        let until = StopCondition::on_process_exit(child.id().cast_signed()).expect("it runs");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        child.kill().expect("killed");
        runtime.block_on(until.wait_async()).expect("seen");
        child.wait().expect("ended");
    }
}
