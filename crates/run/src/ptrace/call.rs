//! The kernel's ptrace(2), one function for each request that is used.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, c_uint, c_void, pid_t};

pub(super) const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

const GET_SYSCALL_INFO: c_uint = 0x420e;
const LISTEN: c_uint = 0x4208;
const INFO_ENTRY: u8 = 1;
const INFO_EXIT: u8 = 2;
/// A call that a filter stopped, with the words of an entry.
const INFO_SECCOMP: u8 = 3;

/// What the kernel says about a thread that stopped at a system call.
#[derive(Debug, Clone, Copy)]
pub(super) enum SyscallStop {
    Entry {
        arch: u32,
        number: u64,
        arguments: [u64; 6],
    },
    Exit {
        result: i64,
    },
    Other,
}

#[repr(C)]
struct Info {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction: u64,
    stack: u64,
    words: [u64; 8],
}

fn ptrace(request: c_uint, pid: pid_t, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: requests that write to this process get the address of memory of the right size as `data`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            request as libc::c_long,
            pid as libc::c_long,
            address,
            data,
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Starts to trace a thread, which goes on running.
pub(super) fn seize(thread: pid_t, options: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, thread, 0, options as usize).map(drop)
}

/// Makes a seized thread stop soon.
pub(super) fn interrupt(thread: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0).map(drop)
}

/// Goes on to the next system call.
pub(super) fn go_to_syscall(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL, thread, 0, signal as usize).map(drop)
}

/// Goes on without stopping at system calls.
pub(super) fn go_on(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, thread, 0, signal as usize).map(drop)
}

/// Leaves a thread stopped as its signal asks, until it is continued.
pub(super) fn listen(thread: pid_t) -> io::Result<()> {
    ptrace(LISTEN, thread, 0, 0).map(drop)
}

/// Lets a stopped thread go for good.
pub(super) fn detach(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_DETACH, thread, 0, signal as usize).map(drop)
}

/// The word that belongs to the last event: the number that an exec'ing thread had before.
pub(super) fn event_message(thread: pid_t) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    let data = (&raw mut message).addr();
    ptrace(libc::PTRACE_GETEVENTMSG, thread, 0, data)?;
    Ok(message)
}

pub(super) fn syscall_stop(thread: pid_t) -> io::Result<SyscallStop> {
    let mut info = MaybeUninit::<Info>::zeroed();
    let data = info.as_mut_ptr().addr();
    ptrace(GET_SYSCALL_INFO, thread, size_of::<Info>(), data)?;
    // SAFETY: all bit patterns are valid, and what the kernel did not write is zero.
    let info = unsafe { info.assume_init() };
    Ok(match info.op {
        INFO_ENTRY | INFO_SECCOMP => {
            let [number, a, b, c, d, e, f, _] = info.words;
            SyscallStop::Entry {
                arch: info.arch,
                number,
                arguments: [a, b, c, d, e, f],
            }
        }
        INFO_EXIT => SyscallStop::Exit {
            result: info.words[0].cast_signed(),
        },
        _ => SyscallStop::Other,
    })
}

/// Bytes of a thread's memory, as many as are there up to the length of `buffer`.
pub(super) fn read_memory(thread: pid_t, address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast::<c_void>(),
        iov_len: buffer.len(),
    };
    // Up to the end of its page: what follows may not be there.
    let to_page_end = 4096 - (address as usize & 4095);
    let remote = libc::iovec {
        iov_base: address as usize as *mut c_void,
        iov_len: buffer.len().min(to_page_end),
    };
    // SAFETY: the local vector describes `buffer`; the kernel checks the other process's address.
    let count = unsafe { libc::process_vm_readv(thread, &local, 1, &remote, 1, 0) };
    usize::try_from(count).unwrap_or(0)
}
