//! Children created with fork(2).

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A forked child that runs a closure of the test.
#[derive(Debug)]
pub struct ForkedChild {
    pid: i32,
}

impl ForkedChild {
    /// Runs `work` in a child, which then exits without running destructors or handlers of the
    /// parent.
    pub fn run(work: impl FnOnce()) -> ForkedChild {
        // SAFETY: the C library keeps its allocator usable in the child; the child uses no other
        // state shared with the parent's threads.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "cannot fork");
        if pid == 0 {
            // Files that other tests of the same process have open or locked must not be shared
            // with the child. SAFETY: the child uses no descriptor of the parent.
            unsafe { libc::close_range(3, u32::MAX, 0) };
            let is_done = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        ForkedChild { pid }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the exit. Returns the exit code, or 128 plus the signal.
    pub fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is local.
        let found = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        assert_eq!(found, self.pid);
        std::mem::forget(self);
        if libc::WIFSIGNALED(status) {
            128 + libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, which was not reaped yet, so that its process ID is not reused.
        unsafe { libc::kill(self.pid, signal) };
    }

    pub fn kill(self) {
        self.signal(libc::SIGKILL);
        assert_eq!(self.wait(), 128 + libc::SIGKILL);
    }
}

impl Drop for ForkedChild {
    /// Runs only if a test fails: `wait` forgets the value.
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is local.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}
