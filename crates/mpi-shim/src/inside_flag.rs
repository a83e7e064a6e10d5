//! A flag per thread: whether the thread is inside an MPI call.
//!
//! `thread_local!` in a shared library calls the dynamic linker for the address each time (2 to 3
//! ns), and every wrapper would have to save its arguments around that call. This library is loaded
//! at program start, so that its thread-local data is at a fixed offset from the thread pointer
//! (the initial-exec model). Stable Rust cannot select that model, hence the assembly.

/// The flag of the current thread. Must not be sent to another thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsideFlag(*mut bool);

impl InsideFlag {
    #[inline(always)]
    pub(crate) fn get(self) -> bool {
        // SAFETY: the flag lives as long as its thread, and no other thread has its address.
        unsafe { *self.0 }
    }

    #[inline(always)]
    pub(crate) fn set(self, is_inside: bool) {
        // SAFETY: as above.
        unsafe { *self.0 = is_inside };
    }
}

#[cfg(target_arch = "x86_64")]
mod byte {
    std::arch::global_asm!(
        ".pushsection .tbss,\"awT\",@nobits",
        ".hidden pegel_mpi_inside",
        ".globl pegel_mpi_inside",
        ".type pegel_mpi_inside,@object",
        ".size pegel_mpi_inside,1",
        "pegel_mpi_inside: .zero 1",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn address() -> *mut bool {
        let at: *mut bool;
        // SAFETY: reads the thread pointer and adds the offset that the dynamic linker stored in
        // the GOT.
        unsafe {
            std::arch::asm!(
                "mov {at}, qword ptr fs:[0]",
                "add {at}, qword ptr [rip + pegel_mpi_inside@GOTTPOFF]",
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
        }
        at
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod byte {
    use std::cell::Cell;

    thread_local! {
        static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    #[inline(always)]
    pub fn address() -> *mut bool {
        IS_INSIDE.with(Cell::as_ptr)
    }
}

#[inline(always)]
pub(crate) fn of_this_thread() -> InsideFlag {
    InsideFlag(byte::address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own() {
        let here = of_this_thread();
        here.set(true);
        assert!(of_this_thread().get());
        let other = std::thread::spawn(|| {
            let there = of_this_thread();
            let was_set = there.get();
            there.set(true);
            (was_set, there.0.addr())
        });
        let (was_set, address) = other.join().expect("no panic");
        assert!(!was_set && address != here.0.addr());
        here.set(false);
        assert!(!of_this_thread().get());
    }
}
