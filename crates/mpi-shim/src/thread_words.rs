//! The words of each thread: whether it is inside an MPI call, and its entry in the MPI state.
//!
//! `thread_local!` in a shared library calls the dynamic linker for the address each time (2 to 3
//! ns), and every wrapper would have to save its arguments around that call. This library is loaded
//! at program start, so that its thread-local data is at a fixed offset from the thread pointer
//! (the initial-exec model). Stable Rust cannot select that model, hence the assembly.

use std::sync::atomic::AtomicU64;

use pegel_lane::mpi_state::ThreadEntry;

#[repr(C)]
struct ThreadLocalWords {
    is_inside: bool,
    /// Null before the first timed call of the thread.
    entry: *const ThreadEntry,
}

/// The words of the current thread. Must not be sent to another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadWords(*mut ThreadLocalWords);

impl ThreadWords {
    #[inline(always)]
    pub(crate) fn is_inside(self) -> bool {
        // SAFETY: the words live as long as their thread, and no other thread has their address.
        unsafe { (*self.0).is_inside }
    }

    #[inline(always)]
    pub(crate) fn set_inside(self, is_inside: bool) {
        // SAFETY: as above.
        unsafe { (*self.0).is_inside = is_inside };
    }

    #[inline(always)]
    pub(crate) fn has_entry(self) -> bool {
        // SAFETY: as above.
        unsafe { !(*self.0).entry.is_null() }
    }

    /// Returns the entry; one that is never read before [`ThreadWords::set_entry`].
    #[inline(always)]
    pub(crate) fn entry(self) -> &'static ThreadEntry {
        static UNREAD: ThreadEntry = [const { AtomicU64::new(0) }; 8];
        // SAFETY: as above; an entry is never unmapped.
        unsafe { (*self.0).entry.as_ref() }.unwrap_or(&UNREAD)
    }

    pub(crate) fn set_entry(self, entry: &'static ThreadEntry) {
        // SAFETY: as above.
        unsafe { (*self.0).entry = entry };
    }
}

#[cfg(target_arch = "x86_64")]
mod storage {
    use super::ThreadLocalWords;

    const _: () =
        assert!(size_of::<ThreadLocalWords>() == 16 && align_of::<ThreadLocalWords>() == 8);

    std::arch::global_asm!(
        ".pushsection .tbss,\"awT\",@nobits",
        ".p2align 3",
        ".hidden pegel_mpi_thread",
        ".globl pegel_mpi_thread",
        ".type pegel_mpi_thread,@object",
        ".size pegel_mpi_thread,16",
        "pegel_mpi_thread: .zero 16",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn address() -> *mut ThreadLocalWords {
        let at: *mut ThreadLocalWords;
        // SAFETY: reads the thread pointer and adds the offset that the dynamic linker stored in
        // the GOT.
        unsafe {
            std::arch::asm!(
                "mov {at}, qword ptr fs:[0]",
                "add {at}, qword ptr [rip + pegel_mpi_thread@GOTTPOFF]",
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
        }
        at
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod storage {
    use std::cell::UnsafeCell;
    use std::ptr::null;

    use super::ThreadLocalWords;

    thread_local! {
        static WORDS: UnsafeCell<ThreadLocalWords> = const {
            UnsafeCell::new(ThreadLocalWords { is_inside: false, entry: null() })
        };
    }

    #[inline(always)]
    pub(super) fn address() -> *mut ThreadLocalWords {
        WORDS.with(UnsafeCell::get)
    }
}

#[inline(always)]
pub(crate) fn of_this_thread() -> ThreadWords {
    ThreadWords(storage::address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own() {
        let here = of_this_thread();
        here.set_inside(true);
        assert!(of_this_thread().is_inside() && !here.has_entry());
        let other = std::thread::spawn(|| {
            let there = of_this_thread();
            let was_set = there.is_inside();
            there.set_inside(true);
            (was_set, there.0.addr())
        });
        let (was_set, address) = other.join().expect("no panic");
        assert!(!was_set && address != here.0.addr());
        here.set_inside(false);
        assert!(!of_this_thread().is_inside());
    }
}
