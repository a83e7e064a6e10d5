//! The names and properties of system calls, by architecture and number.

mod aarch64;
mod all_architectures;
mod x86_64;

/// The architecture of a system call (AUDIT_ARCH of the kernel).
pub(crate) const ARCH_X86_64: u32 = 0xc000_003e;
/// 32-bit programs on x86-64.
pub(crate) const ARCH_I386: u32 = 0x4000_0003;
pub(crate) const ARCH_AARCH64: u32 = 0xc000_00b7;
pub(crate) const ARCH_ARM: u32 = 0x4000_0028;

/// The architecture that this program was built for.
pub(crate) const ARCH_NATIVE: u32 = if cfg!(target_arch = "aarch64") {
    ARCH_AARCH64
} else {
    ARCH_X86_64
};

/// Calls of the x32 interface carry this bit.
const X32_BIT: u64 = 0x4000_0000;

/// Returns the name that a call is counted under: `read`; `syscall_N` for a call newer than this
/// table; `compat_N` for a call of a 32-bit program, whose numbers have other meanings.
pub(crate) fn syscall_name(arch: u32, number: u64) -> String {
    let runs = match arch {
        ARCH_X86_64 if number & X32_BIT == 0 => x86_64::RUNS,
        ARCH_AARCH64 => aarch64::RUNS,
        _ => return format!("compat_{}", number & !X32_BIT),
    };
    let known = runs.iter().find_map(|(first, names)| {
        let index = usize::try_from(number.checked_sub(u64::from(*first))?).ok()?;
        names.get(index)
    });
    known.map_or_else(|| format!("syscall_{number}"), |name| (*name).to_owned())
}

/// A call that a tracer treats differently from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecialCall {
    Execve,
    Execveat,
    /// Ends its thread or process, and so does not return.
    Exit,
}

/// Returns the special kind of a call. Covers 32-bit calls too: any thread can make them.
pub(crate) fn special_call(arch: u32, number: u64) -> Option<SpecialCall> {
    const X32_EXECVE: u64 = X32_BIT | 520;
    const X32_EXECVEAT: u64 = X32_BIT | 545;
    const X32_EXIT: u64 = X32_BIT | 60;
    const X32_EXIT_GROUP: u64 = X32_BIT | 231;
    Some(match (arch, number) {
        (ARCH_X86_64, 59 | X32_EXECVE) => SpecialCall::Execve,
        (ARCH_X86_64, 322 | X32_EXECVEAT) => SpecialCall::Execveat,
        (ARCH_X86_64, 60 | 231 | X32_EXIT | X32_EXIT_GROUP) => SpecialCall::Exit,
        (ARCH_I386 | ARCH_ARM, 11) => SpecialCall::Execve,
        (ARCH_I386, 358) | (ARCH_ARM, 387) => SpecialCall::Execveat,
        (ARCH_I386, 1 | 252) | (ARCH_ARM, 1 | 248) => SpecialCall::Exit,
        (ARCH_AARCH64, 221) => SpecialCall::Execve,
        (ARCH_AARCH64, 281) => SpecialCall::Execveat,
        (ARCH_AARCH64, 93 | 94) => SpecialCall::Exit,
        _ => return None,
    })
}

/// Returns the number of a native call.
pub(crate) fn syscall_number(name: &str) -> Option<u32> {
    let runs = match ARCH_NATIVE {
        ARCH_AARCH64 => aarch64::RUNS,
        _ => x86_64::RUNS,
    };
    runs.iter().find_map(|(first, names)| {
        let index = names.iter().position(|known| *known == name)?;
        Some(first + index as u32)
    })
}

/// Calls whose result is a number of bytes that were read or written.
const READS: &[&str] = &[
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "recvfrom",
    "recvmsg",
    "getdents",
    "getdents64",
    "process_vm_readv",
    "mq_timedreceive",
];
const WRITES: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "sendto",
    "sendmsg",
    "sendfile",
    "splice",
    "tee",
    "vmsplice",
    "copy_file_range",
    "process_vm_writev",
];

/// The direction in which a call transfers bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteDirection {
    In,
    Out,
}

/// Returns the direction of a call; None if its result is not a number of bytes.
pub(crate) fn byte_direction(name: &str) -> Option<ByteDirection> {
    match name {
        _ if READS.contains(&name) => Some(ByteDirection::In),
        _ if WRITES.contains(&name) => Some(ByteDirection::Out),
        _ => None,
    }
}

/// Returns the native numbers of all calls that transfer bytes.
pub(crate) fn io_numbers() -> impl Iterator<Item = u32> {
    READS
        .iter()
        .chain(WRITES)
        .filter_map(|name| syscall_number(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_the_c_library() {
        let name = |number: libc::c_long| syscall_name(ARCH_NATIVE, number.unsigned_abs());
        assert_eq!(name(libc::SYS_read), "read");
        assert_eq!(name(libc::SYS_openat), "openat");
        assert_eq!(name(libc::SYS_newfstatat), "newfstatat");
        assert_eq!(name(libc::SYS_exit_group), "exit_group");
        assert_eq!(name(libc::SYS_clone3), "clone3");
        assert_eq!(name(libc::SYS_rseq), "rseq");
        assert_eq!(name(libc::SYS_futex), "futex");
        assert_eq!(name(libc::SYS_mseal), "mseal");
    }

    #[test]
    fn what_is_not_known_keeps_its_number() {
        assert_eq!(syscall_name(ARCH_NATIVE, 9999), "syscall_9999");
        assert_eq!(syscall_name(ARCH_X86_64, 400), "syscall_400");
        assert_eq!(syscall_name(ARCH_AARCH64, 250), "syscall_250");
        assert_eq!(syscall_name(ARCH_I386, 4), "compat_4");
        assert_eq!(syscall_name(ARCH_X86_64, X32_BIT | 1), "compat_1");
    }

    #[test]
    fn special_calls_agree_with_the_c_library() {
        let call = |number: libc::c_long| special_call(ARCH_NATIVE, number.unsigned_abs());
        assert_eq!(call(libc::SYS_execve), Some(SpecialCall::Execve));
        assert_eq!(call(libc::SYS_execveat), Some(SpecialCall::Execveat));
        assert_eq!(call(libc::SYS_exit), Some(SpecialCall::Exit));
        assert_eq!(call(libc::SYS_exit_group), Some(SpecialCall::Exit));
        assert_eq!(call(libc::SYS_read), None);
    }

    #[test]
    fn every_name_is_there_once() {
        for runs in [x86_64::RUNS, aarch64::RUNS] {
            let mut names: Vec<&str> = runs.iter().flat_map(|(_, names)| *names).copied().collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn calls_that_move_bytes_are_known_both_ways() {
        assert_eq!(byte_direction("recvmsg"), Some(ByteDirection::In));
        assert_eq!(byte_direction("sendfile"), Some(ByteDirection::Out));
        assert_eq!(byte_direction("lseek"), None);
        let numbers: Vec<u32> = io_numbers().collect();
        assert!(numbers.contains(&(libc::SYS_pwritev2 as u32)));
        assert!(!numbers.contains(&(libc::SYS_lseek as u32)));
    }
}
