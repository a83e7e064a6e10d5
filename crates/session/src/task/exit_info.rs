//! The exit status of a process that is not a child of this one. Linux keeps it for the holders
//! of a pidfd since 6.15, once the parent has waited for the process.

use std::os::fd::BorrowedFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskExit {
    /// The exit status.
    Status(u8),
    /// The number of the signal that killed it.
    Signal(u8),
}

impl TaskExit {
    /// Interprets a status of wait(2).
    fn from_wait_status(status: u32) -> TaskExit {
        match (status & 0x7f) as u8 {
            0 => TaskExit::Status((status >> 8 & 0xff) as u8),
            signal => TaskExit::Signal(signal),
        }
    }
}

/// The first version of `struct pidfd_info` of `linux/pidfd.h`, which later kernels accept.
#[repr(C)]
#[derive(Debug, Default)]
struct PidfdInfo {
    /// Which fields are requested, and in the response which are set.
    mask: u64,
    _cgroup: u64,
    _process: [u32; 3],
    _users: [u32; 8],
    exit_code: u32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

const INFO_EXIT: u64 = 1 << 3;
const GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

/// Returns how the process of a pidfd ended; `None` if it runs, if its parent has not waited for
/// it yet, or if the kernel does not report it.
pub(super) fn exit_of(pidfd: BorrowedFd<'_>) -> Option<TaskExit> {
    let mut info = PidfdInfo {
        mask: INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: the opcode is that of PIDFD_GET_INFO, which reads and writes a structure of the size
    // in the opcode; every content of `PidfdInfo` is valid.
    let result = unsafe { ioctl(pidfd, Updater::<GET_INFO, PidfdInfo>::new(&mut info)) };
    result.ok()?;
    (info.mask & INFO_EXIT != 0).then(|| TaskExit::from_wait_status(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_an_exit_or_a_signal() {
        assert_eq!(TaskExit::from_wait_status(0), TaskExit::Status(0));
        assert_eq!(TaskExit::from_wait_status(7 << 8), TaskExit::Status(7));
        assert_eq!(TaskExit::from_wait_status(9), TaskExit::Signal(9));
        assert_eq!(TaskExit::from_wait_status(0x80 | 11), TaskExit::Signal(11));
    }
}
