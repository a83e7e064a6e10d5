//! Detects without a system call whether this process was forked since its lanes were set up.
//!
//! A page of private memory is marked so that the kernel wipes it in a child of `fork`. While the
//! page is *open*, updates proceed; a child finds it *closed* and creates its own lanes first. If
//! the kernel cannot wipe (before Linux 4.14), the page holds a pid, and each update compares it
//! with its own.
//!
//! The lock is in the same page: one that a thread of the parent held is free in the child. All
//! signals are blocked while it is held, so that a handler never waits for the thread that it
//! interrupted.

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

const CLOSED: u32 = 0;
const OPEN: u32 = 1;
/// Open for the process whose pid the page holds.
const OPEN_FOR_PID: u32 = 2;

const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
#[repr(C)]
struct GuardPage {
    state: AtomicU32,
    /// The process whose thread holds the lock, or 0.
    lock: AtomicU32,
    pid: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: AtomicPtr<GuardPage>,
    /// Whether the kernel wipes the page in a child; written before the page is shared.
    is_wiped: AtomicBool,
}

/// Holds the lock; all signals of this thread are blocked.
pub(crate) struct ForkGuardLock<'a> {
    page: &'a GuardPage,
    is_wiped: bool,
    signals: libc::sigset_t,
}

impl ForkGuard {
    pub(crate) const fn new() -> ForkGuard {
        ForkGuard {
            page: AtomicPtr::new(null_mut()),
            is_wiped: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        match self.page() {
            Some(page) => match page.state.load(Ordering::Acquire) {
                OPEN => true,
                CLOSED => false,
                _ => page.pid.load(Ordering::Relaxed) == pid(),
            },
            None => false,
        }
    }

    /// Like [`ForkGuard::is_open`], but false where that requires a call.
    #[inline(always)]
    pub(crate) fn is_certainly_open(&self) -> bool {
        let page = self.page();
        page.is_some_and(|page| page.state.load(Ordering::Acquire) == OPEN)
    }

    #[inline]
    fn page(&self) -> Option<&GuardPage> {
        // SAFETY: the pointer is null or a mapping that is never removed, at least as large as a
        // `GuardPage`; everything in it is atomic, and all bit patterns are valid.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }
    }

    /// Waits for the lock. Returns `None` if there is no memory for the page.
    pub(crate) fn lock(&self) -> Option<ForkGuardLock<'_>> {
        self.lock_with(enable_wipe_on_fork)
    }

    fn lock_with(&self, wipe: fn(NonNull<GuardPage>) -> bool) -> Option<ForkGuardLock<'_>> {
        if self.page().is_none() {
            let fresh = map_page()?;
            self.is_wiped.store(wipe(fresh), Ordering::Release);
            let shared = self.page.compare_exchange(
                null_mut(),
                fresh.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if shared.is_err() {
                // SAFETY: this mapping was created above and was not shared.
                let _ = unsafe { rustix::mm::munmap(fresh.as_ptr().cast(), PAGE_BYTES) };
            }
        }
        let page = self.page()?;
        let signals = block_signals();
        let is_wiped = self.is_wiped.load(Ordering::Acquire);
        while !page.try_lock(is_wiped) {
            rustix::thread::sched_yield();
        }
        Some(ForkGuardLock {
            page,
            is_wiped,
            signals,
        })
    }
}

impl GuardPage {
    fn try_lock(&self, is_wiped: bool) -> bool {
        let me = pid();
        let take = |from| {
            self.lock
                .compare_exchange(from, me, Ordering::Acquire, Ordering::Relaxed)
        };
        match take(0) {
            Ok(_) => true,
            // In a page that is not wiped, the holder may be a thread of the parent, which does not
            // exist here.
            Err(holder) => !is_wiped && holder != me && take(holder).is_ok(),
        }
    }
}

impl ForkGuardLock<'_> {
    pub(crate) fn open(&self) {
        self.page.pid.store(pid(), Ordering::Relaxed);
        let state = if self.is_wiped { OPEN } else { OPEN_FOR_PID };
        self.page.state.store(state, Ordering::Release);
    }
}

impl Drop for ForkGuardLock<'_> {
    fn drop(&mut self) {
        self.page.lock.store(0, Ordering::Release);
        // SAFETY: the set was filled by pthread_sigmask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.signals, null_mut()) };
    }
}

fn pid() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are local; sigfillset and pthread_sigmask fill them and cannot fail with
    // these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn enable_wipe_on_fork(page: NonNull<GuardPage>) -> bool {
    let (at, wipe) = (page.as_ptr().cast(), Advice::LinuxWipeOnFork);
    // SAFETY: the mapping is used by this function only.
    let asked = unsafe { rustix::mm::madvise(at, PAGE_BYTES, wipe) };
    asked.is_ok()
}

fn map_page() -> Option<NonNull<GuardPage>> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe {
        rustix::mm::mmap_anonymous(
            null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    NonNull::new(memory.ok()?.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the guard is open in a child, before and after the child opens it for
    /// itself.
    fn in_a_child(guard: &ForkGuard) -> (bool, bool) {
        // SAFETY: the child calls nothing that another thread's lock could block, and leaves by
        // _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let before = guard.is_open();
            if let Some(lock) = guard.lock() {
                lock.open();
            }
            let code = i32::from(before) | i32::from(guard.is_open()) << 1;
            // SAFETY: ends the child without running exit handlers of the parent.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        unsafe { libc::waitpid(child, &mut status, 0) };
        let code = libc::WEXITSTATUS(status);
        (code & 1 != 0, code & 2 != 0)
    }

    #[test]
    fn a_child_finds_it_closed_and_opens_its_own() {
        for wipe in [enable_wipe_on_fork, |_| false] {
            let guard = ForkGuard::new();
            assert!(!guard.is_open());
            let lock = guard.lock_with(wipe).expect("memory");
            lock.open();
            // The child is forked while the lock is held: it must not wait for its parent.
            assert_eq!(in_a_child(&guard), (false, true));
            drop(lock);
            assert!(guard.is_open());
        }
    }

    #[test]
    fn only_one_thread_at_a_time() {
        let guard = ForkGuard::new();
        let mut count = 0_u64;
        struct SharedCounter(*mut u64);
        // SAFETY: the number is accessed only under the lock, which is what is tested.
        unsafe impl Sync for SharedCounter {}
        let shared = &SharedCounter(&mut count);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _lock = guard.lock().expect("memory");
                        // SAFETY: the lock is held.
                        unsafe { *shared.0 += 1 };
                    }
                });
            }
        });
        assert_eq!(count, 40_000);
    }
}
