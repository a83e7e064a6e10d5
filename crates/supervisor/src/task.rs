//! Asynchronous tasks whose unexpected end is a failure of the agent.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::{Supervisor, ThreadFailure, panic_message};

impl Supervisor {
    /// Runs a task without which the agent does not work. A panic, or an end when
    /// `is_end_expected` returns false, is a failure of the agent, as that of a critical thread.
    /// Nothing is reported if the returned future is dropped, as when a runtime shuts down.
    pub async fn task(
        &self,
        name: &str,
        task: impl Future<Output = ()>,
        is_end_expected: impl Fn() -> bool,
    ) {
        let mut task = pin!(task);
        let panic = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(None),
                Err(panic) => Poll::Ready(Some(panic_message(&*panic))),
            }
        });
        let panic = panic.await;
        if panic.is_some() || !is_end_expected() {
            let thread = name.to_owned();
            self.fail(ThreadFailure { thread, panic });
        }
    }
}
