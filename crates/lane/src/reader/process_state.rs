use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::identity;
use crate::reader::LaneHeader;

/// What is known of the process behind a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    Alive,
    /// There is no process of that number, or it is another one by now.
    Gone,
    /// Its number counts in another pid namespace, or /proc does not say.
    NotVisible,
}

impl ProcessState {
    /// Compares the start time as well, so that a number that was given away again does not deceive.
    pub fn of(header: &LaneHeader) -> ProcessState {
        if !is_same_pid_namespace(header) || header.start_ticks == 0 {
            return ProcessState::NotVisible;
        }
        match identity::start_ticks_of(header.pid) {
            Some(ticks) if ticks == header.start_ticks => ProcessState::Alive,
            _ => ProcessState::Gone,
        }
    }
    /// Whether there is no process of that number: one cheap question.
    pub(crate) fn has_no_process(header: &LaneHeader) -> bool {
        let pid = i32::try_from(header.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| is_same_pid_namespace(header)) else {
            return false;
        };
        rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
    }
}

fn is_same_pid_namespace(header: &LaneHeader) -> bool {
    /// Ours never changes.
    static OWN: OnceLock<u64> = OnceLock::new();
    header.pid_namespace != 0 && header.pid_namespace == *OWN.get_or_init(identity::pid_namespace)
}
