//! Processes and their threads, as far as counting needs to know them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::place::Place;
use super::programs::State;

/// New threads may appear while the others are marked.
const ROUNDS_MAX: usize = 1000;

pub(super) fn open(pid: i32) -> io::Result<OwnedFd> {
    open_with(pid, PidfdFlags::empty())
}

/// One thread, where the kernel can name one (6.9).
fn open_thread(thread: i32) -> io::Result<OwnedFd> {
    const THREAD: u32 = 0o200;
    open_with(thread, PidfdFlags::from_bits_retain(THREAD))
}

fn open_with(pid: i32, flags: PidfdFlags) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(pidfd_open(pid, flags)?)
}

/// When a process began, in ticks since the machine did.
pub(super) fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may hold anything, and stands in parentheses.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether a process has this user's rights and no others.
pub(super) fn is_of(pid: i32, uid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let users = users.unwrap_or_default().split_ascii_whitespace();
    let mut users = users.map(|user| user.parse() == Ok(uid)).peekable();
    users.peek().is_some() && users.all(|is_own| is_own)
}

/// Counts all threads of a process from now on. Says how many there are.
pub(super) fn put_all(place: &mut Place, pid: i32) -> io::Result<usize> {
    let mut count = 0;
    for _ in 0..ROUNDS_MAX {
        let mut is_new = false;
        for thread in crate::ptrace::threads(pid) {
            let opened = match thread == pid {
                true => open(pid),
                false => open_thread(thread),
            };
            let put = opened.and_then(|task| place.put(task.as_fd(), State::Fresh));
            match put {
                Ok(true) => (count, is_new) = (count + 1, true),
                Ok(false) => {}
                // It ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) && thread != pid => {}
                Err(error) => return Err(error),
            }
        }
        // Threads that are made from here on have makers that are counted.
        if !is_new {
            break;
        }
    }
    Ok(count)
}
