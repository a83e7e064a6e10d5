//! The system call ptrace(2), one function for each request in use.

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
/// A stop by a seccomp filter, with the same fields as an entry.
const INFO_SECCOMP: u8 = 3;

/// The kind of stop at a system call.
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

/// Performs a request. Its type is `c_uint` with glibc and `c_int` with musl.
fn ptrace(request: impl Into<i64>, pid: pid_t, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: callers pass as `data` the address of memory that is large enough for what the
    // request writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            request.into() as libc::c_long,
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

/// Starts tracing a thread without stopping it.
pub(super) fn seize(thread: pid_t, options: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, thread, 0, options as usize).map(drop)
}

/// Requests a seized thread to stop.
pub(super) fn interrupt(thread: pid_t) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0).map(drop)
}

/// Resumes a thread up to its next system call.
pub(super) fn resume_to_syscall(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL, thread, 0, signal as usize).map(drop)
}

/// Resumes a thread without stops at system calls.
pub(super) fn resume(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, thread, 0, signal as usize).map(drop)
}

/// Leaves a thread in its group stop until SIGCONT.
pub(super) fn listen(thread: pid_t) -> io::Result<()> {
    ptrace(LISTEN, thread, 0, 0).map(drop)
}

/// Stops tracing a stopped thread and resumes it.
pub(super) fn detach(thread: pid_t, signal: c_int) -> io::Result<()> {
    ptrace(libc::PTRACE_DETACH, thread, 0, signal as usize).map(drop)
}

/// Returns the message of the last event: after an exec, the thread's former ID.
pub(super) fn event_message(thread: pid_t) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    let data = (&raw mut message).addr();
    ptrace(libc::PTRACE_GETEVENTMSG, thread, 0, data)?;
    Ok(message)
}

/// Whether the kernel has PTRACE_GET_SYSCALL_INFO (5.3). Without it, the caller tracks entries and
/// exits itself.
static HAS_SYSCALL_INFO: AtomicBool = AtomicBool::new(true);

/// Returns the kind of a stop at a system call. `is_inside` is the tracked state, for kernels that
/// do not report it.
pub(super) fn syscall_stop(thread: pid_t, is_inside: bool) -> io::Result<SyscallStop> {
    if HAS_SYSCALL_INFO.load(Ordering::Relaxed) {
        match read_syscall_info(thread) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                HAS_SYSCALL_INFO.store(false, Ordering::Relaxed);
            }
            stop => return stop,
        }
    }
    read_registers(thread, is_inside)
}

fn read_syscall_info(thread: pid_t) -> io::Result<SyscallStop> {
    let mut info = MaybeUninit::<SyscallInfo>::zeroed();
    let data = info.as_mut_ptr().addr();
    ptrace(GET_SYSCALL_INFO, thread, size_of::<SyscallInfo>(), data)?;
    // SAFETY: all bit patterns are valid, and bytes that the kernel did not write are zero.
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

/// Determines the kind of a stop from the registers.
fn read_registers(thread: pid_t, is_inside: bool) -> io::Result<SyscallStop> {
    // More words than the register set of any supported machine.
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
    // The register set of a 32-bit program is smaller and has another layout.
    if space.iov_len < size_of::<libc::user_regs_struct>() {
        return Ok(SyscallStop::Other);
    }
    Ok(if is_inside {
        SyscallStop::Exit {
            result: registers[registers::RESULT].cast_signed(),
        }
    } else {
        SyscallStop::Entry {
            arch: syscall_names::ARCH_NATIVE,
            number: registers[registers::NUMBER],
            arguments: registers::ARGUMENTS.map(|word| registers[word]),
        }
    })
}

/// Indexes of a system call's registers in the register set.
#[cfg(target_arch = "x86_64")]
mod registers {
    pub(super) const NUMBER: usize = 15;
    pub(super) const RESULT: usize = 10;
    pub(super) const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
}

#[cfg(target_arch = "aarch64")]
mod registers {
    pub const NUMBER: usize = 8;
    pub const RESULT: usize = 0;
    pub const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
}

/// Reads a thread's memory up to the end of the page or of `buffer`, and returns the number of
/// bytes.
pub(super) fn read_memory(thread: pid_t, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast::<c_void>(),
        iov_len: buffer.len(),
    };
    // The next page may not be mapped.
    let to_page_end = 4096 - (address as usize & 4095);
    let remote = libc::iovec {
        iov_base: address as usize as *mut c_void,
        iov_len: buffer.len().min(to_page_end),
    };
    // SAFETY: `local` describes `buffer`, which lives through the call; the kernel checks the
    // remote address.
    let count = unsafe { libc::process_vm_readv(thread, &local, 1, &remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
