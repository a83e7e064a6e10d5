use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child made with `fork`: runs a closure of the test in a process of its own.
#[derive(Debug)]
pub struct ForkedChild {
    pid: i32,
}

impl ForkedChild {
    /// Runs `work` in a child, which then leaves without running anything of the parent's.
    pub fn run(work: impl FnOnce()) -> ForkedChild {
        // SAFETY: the C library keeps its allocator usable in the child; nothing else of the parent's
        // threads is used there.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "cannot fork");
        if pid == 0 {
            // What other tests of the same process have open, and locked, is not for the child.
            // SAFETY: nothing of the parent's is used in the child but memory.
            unsafe { libc::close_range(3, u32::MAX, 0) };
            let is_done = catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        ForkedChild { pid }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The exit code, or 128 and the signal.
    pub fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for our own child.
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
        // SAFETY: a signal to our own child, which was not waited for yet.
        unsafe { libc::kill(self.pid, signal) };
    }

    pub fn kill(self) {
        self.signal(libc::SIGKILL);
        assert_eq!(self.wait(), 128 + libc::SIGKILL);
    }
}

impl Drop for ForkedChild {
    /// Only when a test fails: the others wait.
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}
