//! The seccomp filter for `--io-only`: stops only at calls that transfer bytes.
//!
//! All other calls run at full speed. The costs: the program can no longer gain privileges
//! (no_new_privs), and the filter cannot be removed: if the helper process is killed, calls that
//! transfer bytes fail with ENOSYS.

use std::io;

use crate::syscall_names;

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offsets of the call number and the architecture in `seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;

/// Returns the filter's instructions: all calls pass except those that transfer bytes.
fn filter_program() -> Vec<libc::sock_filter> {
    let numbers: Vec<u32> = syscall_names::io_numbers().collect();
    let count = numbers.len();
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(LOAD_WORD, 0, 0, ARCH_OFFSET),
        // Calls of other architectures have other numbers: they pass.
        step(
            JUMP_IF_EQUAL,
            0,
            (count + 1) as u8,
            syscall_names::ARCH_NATIVE,
        ),
        step(LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ];
    for (index, number) in numbers.into_iter().enumerate() {
        program.push(step(JUMP_IF_EQUAL, (count - index) as u8, 0, number));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_TRACE));
    program
}

/// Installs the filter for this process and all programs that it executes. The tracer must be
/// attached already.
pub(crate) fn install_filter() -> io::Result<()> {
    let mut program = filter_program();
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` points at `program`, with its length; the kernel copies and checks it during
    // the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER as libc::c_ulong,
                &raw const filter,
            ) == 0
    };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the filter and returns its verdict.
    fn judge(arch: u32, number: u32) -> u32 {
        let program = filter_program();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            match step.code {
                LOAD_WORD if step.k == NUMBER_OFFSET => value = number,
                LOAD_WORD => value = arch,
                JUMP_IF_EQUAL if value == step.k => at += usize::from(step.jt),
                JUMP_IF_EQUAL => at += usize::from(step.jf),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn calls_that_move_bytes_are_stopped_and_no_others() {
        for number in 0..600 {
            let name = syscall_names::syscall_name(syscall_names::ARCH_NATIVE, u64::from(number));
            let expected = match syscall_names::byte_direction(&name) {
                Some(_) => libc::SECCOMP_RET_TRACE,
                None => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(
                judge(syscall_names::ARCH_NATIVE, number),
                expected,
                "{name}"
            );
            assert_eq!(judge(0x4000_0003, number), libc::SECCOMP_RET_ALLOW);
        }
    }
}
