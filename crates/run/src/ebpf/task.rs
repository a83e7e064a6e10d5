//! Handles and properties of processes and threads.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::programs::TaskState;
use super::watch_slot::WatchSlot;
use crate::process::{self, ProcessStatus};

pub(super) fn open_process(pid: i32) -> io::Result<OwnedFd> {
    open_with(pid, PidfdFlags::empty())
}

/// Opens one thread; requires PIDFD_THREAD (Linux 6.9).
fn open_thread(thread: i32) -> io::Result<OwnedFd> {
    const THREAD: u32 = 0o200;
    open_with(thread, PidfdFlags::from_bits_retain(THREAD))
}

fn open_with(pid: i32, flags: PidfdFlags) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(pidfd_open(pid, flags)?)
}

/// Returns the start time of a process, in clock ticks since boot.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns whether a process has exactly this user's privileges, by the kernel's rule for ptrace:
/// its user IDs are all the same, its group IDs too, and the process is dumpable (/proc/PID belongs
/// to the user).
pub(super) fn is_owned_by(pid: i32, uid: u32) -> bool {
    let path = format!("/proc/{pid}");
    let status = ProcessStatus::of(pid);
    let groups = status.numbers("Gid");
    let has_groups = groups.len() == 4 && groups.iter().all(|group| *group == groups[0]);
    let is_open = fs::metadata(path).is_ok_and(|found| found.uid() == uid);
    status.numbers("Uid") == [uid; 4] && has_groups && is_open
}

/// Starts counting all threads of a process and returns their number. An error if all are counted
/// already.
pub(super) fn add_all_threads(slot: &mut WatchSlot, pid: i32) -> io::Result<usize> {
    let added = process::add_threads(pid, |thread, _| {
        let opened = if thread == pid {
            open_process(pid)
        } else {
            open_thread(thread)
        };
        let added = opened.and_then(|task| slot.add_task(task.as_fd(), TaskState::FromNextCall));
        match added {
            // It exited meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) && thread != pid => Ok(false),
            added => added,
        }
    });
    match added? {
        0 => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_its_users_alone() {
        let pid = std::process::id().cast_signed();
        let uid = rustix::process::getuid().as_raw();
        assert!(is_owned_by(pid, uid));
        assert!(!is_owned_by(pid, uid + 1));
        assert!(!is_owned_by(i32::MAX, uid), "no such process");
        assert!(start_time(pid).is_some_and(|start| start > 0));
        assert_eq!(start_time(i32::MAX), None);
    }
}
