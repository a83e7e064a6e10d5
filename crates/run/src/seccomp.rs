//! A filter that stops only at calls that move bytes, for `--io-only`.
//!
//! All other calls run at full speed. The price: the program cannot gain rights any more (no_new_privs), and the filter
//! stays: if the process that counts is killed, calls that move bytes fail with ENOSYS.

use std::io;

use crate::syscall_names;

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Where the number and the architecture stand in what the filter sees.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;

/// The filter's instructions: all calls pass but those that move bytes.
fn filter_program() -> Vec<libc::sock_filter> {
    let numbers: Vec<u32> = syscall_names::io_numbers().collect();
    let count = numbers.len();
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(LOAD_WORD, 0, 0, ARCH_OFFSET),
        // Numbers of other architectures mean other calls: they pass.
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

/// Puts the filter in place for this process and all that it becomes. Whoever traces it must be there already.
pub(crate) fn install_filter() -> io::Result<()> {
    let mut program = filter_program();
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: sets a flag of this process; then the kernel copies and checks a filter of the given length.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER as libc::c_ulong,
                &raw const filter,
            ) == 0
    };
    match done {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says, by its own rules.
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
