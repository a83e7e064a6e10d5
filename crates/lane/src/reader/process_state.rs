//! The state of the process that wrote a lane.

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::identity;
use crate::reader::LaneHeader;

/// The state of the process of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    Alive,
    /// There is no process with that pid, or the pid was reused.
    Gone,
    /// Its pid belongs to another pid namespace, or /proc is not readable.
    NotVisible,
}

impl ProcessState {
    /// Compares the start time as well, so that a reused pid is detected.
    pub fn of(header: &LaneHeader) -> ProcessState {
        ProcessState::of_process(header.pid, header.start_ticks, header.pid_namespace)
    }

    /// Like [`ProcessState::of`]. A start time or namespace of 0 is unknown.
    pub fn of_process(pid: u32, start_ticks: u64, pid_namespace: u64) -> ProcessState {
        if !is_same_pid_namespace(pid_namespace) || start_ticks == 0 {
            return ProcessState::NotVisible;
        }
        match identity::start_ticks_of(pid) {
            Some(ticks) if ticks == start_ticks => ProcessState::Alive,
            _ => ProcessState::Gone,
        }
    }

    /// Returns whether there is no process with that pid: a single cheap check.
    pub(crate) fn has_no_process(header: &LaneHeader) -> bool {
        let pid = i32::try_from(header.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| is_same_pid_namespace(header.pid_namespace)) else {
            return false;
        };
        rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
    }
}

fn is_same_pid_namespace(pid_namespace: u64) -> bool {
    /// The namespace of this process never changes.
    static OWN: OnceLock<u64> = OnceLock::new();
    pid_namespace != 0 && pid_namespace == *OWN.get_or_init(identity::pid_namespace)
}
