//! The kernel's ptrace(2), one function for each request that is used.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_uint, c_void, pid_t};

use crate::syscall_names;

pub(super) const TRACE_OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
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
struct SyscallInfo {
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
pub(super) fn resume_to_syscall(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL, thread, 0, signal as usize).map(drop)
}

/// Goes on without stopping at system calls.
pub(super) fn resume(thread: pid_t, signal: c_int) -> io::Result<()> {
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

/// Whether the kernel can tell where a thread stands. It can from 5.3 on; before, we must remember it ourselves.
static HAS_SYSCALL_INFO: AtomicBool = AtomicBool::new(true);

/// Where a thread stands that stopped at a system call, and with what; `is_inside` is where we think that it was before.
pub(super) fn syscall_stop(thread: pid_t, is_inside: bool) -> io::Result<SyscallStop> {
    if HAS_SYSCALL_INFO.load(Ordering::Relaxed) {
        match read_syscall_info(thread) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                HAS_SYSCALL_INFO.store(false, Ordering::Relaxed);
            }
            told => return told,
        }
    }
    read_registers(thread, is_inside)
}

fn read_syscall_info(thread: pid_t) -> io::Result<SyscallStop> {
    let mut info = MaybeUninit::<SyscallInfo>::zeroed();
    let data = info.as_mut_ptr().addr();
    ptrace(GET_SYSCALL_INFO, thread, size_of::<SyscallInfo>(), data)?;
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

/// The same from the registers.
fn read_registers(thread: pid_t, is_inside: bool) -> io::Result<SyscallStop> {
    // More words than any machine here has.
    let mut registers = [0_u64; 64];
    let mut space = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of_val(&registers),
    };
    let data = (&raw mut space).addr();
    ptrace(
        libc::PTRACE_GETREGSET,
        thread,
        libc::NT_PRSTATUS as usize,
        data,
    )?;
    // A program of 32 bits has fewer and smaller registers, which say nothing here.
    if space.iov_len < size_of::<libc::user_regs_struct>() {
        return Ok(SyscallStop::Other);
    }
    Ok(match is_inside {
        true => SyscallStop::Exit {
            result: registers[registers::RESULT].cast_signed(),
        },
        false => SyscallStop::Entry {
            arch: syscall_names::ARCH_NATIVE,
            number: registers[registers::NUMBER],
            arguments: registers::ARGUMENTS.map(|word| registers[word]),
        },
    })
}

/// Where the kernel puts what a system call is about.
#[cfg(target_arch = "x86_64")]
mod registers {
    pub const NUMBER: usize = 15;
    pub const RESULT: usize = 10;
    pub const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
}

#[cfg(target_arch = "aarch64")]
mod registers {
    pub const NUMBER: usize = 8;
    pub const RESULT: usize = 0;
    pub const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
}

/// Bytes of a thread's memory, as many as are there up to the length of `buffer`.
pub(super) fn read_memory(thread: pid_t, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
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
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
