//! Failures, restarts and stuck threads.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Context;

use pegel_testkit::eventually;

use super::*;

/// Waits for the first failure, without a runtime.
fn first_failure(supervisor: &Supervisor) -> ThreadFailure {
    eventually("a failure", || supervisor.failure().ok_or("none"))
}

#[test]
fn the_first_panic_is_the_failure_and_wakes_the_waiting_task() {
    let supervisor = Supervisor::default();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut waiting = pin!(supervisor.failed());
    let poll = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    let first = supervisor
        .thread("writer")
        .critical(|_| panic!("disk on fire"));
    first.expect("started").join();
    let second = supervisor.thread("sampler").critical(|_| panic!("other"));
    second.expect("started").join();
    assert_eq!(woken.count.load(Ordering::Relaxed), 1);
    let failure = supervisor.failure().expect("a failure");
    assert_eq!(failure.to_string(), "thread writer panicked: disk on fire");
    let poll = waiting.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(poll, Poll::Ready(failure));
}

#[derive(Debug, Default)]
struct Woken {
    count: AtomicUsize,
}

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_return_is_a_failure_unless_it_is_expected() {
    let supervisor = Supervisor::default();
    let (stop, stopped) = mpsc::channel::<()>();
    let wait = move |_: &Heartbeat| {
        let _ = stopped.recv();
    };
    let thread = supervisor.thread("expected").critical(wait);
    let thread = thread.expect("started");
    thread.expect_end();
    drop(stop);
    thread.join();
    assert_eq!(supervisor.failure(), None);
    let returned = supervisor.thread("receiver").critical(|_| {});
    let failure = first_failure(&supervisor);
    assert_eq!(failure.to_string(), "thread receiver ended unexpectedly");
    assert_eq!(supervisor.fault(), Some(failure.to_string()));
    drop(returned);
}

#[test]
fn a_thread_that_stays_with_one_task_is_stuck() {
    let supervisor = Supervisor::default();
    let record = ThreadRecord::stalled_for("writer", STUCK_AFTER + Duration::from_secs(2));
    let record = Arc::new(record);
    supervisor
        .inner
        .records
        .lock()
        .push(Arc::downgrade(&record));
    let expected = "thread writer has been busy with one task for 12 s";
    assert_eq!(supervisor.stuck().as_deref(), Some(expected));
    assert_eq!(supervisor.fault().as_deref(), Some(expected));
    assert_eq!(supervisor.threads()[0].state, ThreadState::Stuck);
    let heartbeat = Heartbeat(record.clone());
    heartbeat.busy();
    assert_eq!(supervisor.stuck(), None, "it made progress");
    heartbeat.idle();
    assert_eq!(supervisor.threads()[0].state, ThreadState::Running);
}

#[test]
fn a_restarted_thread_runs_again_after_a_panic_and_is_no_failure() {
    let supervisor = Supervisor::default();
    let (sender, runs) = mpsc::channel();
    let mut count = 0;
    let body = move || {
        count += 1;
        sender.send(count).expect("the test listens");
        assert!(count > 1, "broken at first");
    };
    let thread = supervisor.thread("cloud").restarted(body);
    let thread = thread.expect("started");
    assert_eq!(runs.recv(), Ok(1));
    assert_eq!(runs.recv(), Ok(2));
    eventually("its end", || match supervisor.threads()[0].state {
        ThreadState::Ended => Ok(()),
        state => Err(state),
    });
    assert_eq!((supervisor.fault(), supervisor.failure()), (None, None));
    assert_eq!(supervisor.threads()[0].restarts, 1);
    thread.join();
}

#[test]
fn a_thread_that_pauses_before_its_restart_is_reported() {
    let supervisor = Supervisor::default();
    let record = supervisor.register("cloud");
    record.panicked("no answer");
    let expected = "thread cloud panicked and will be restarted: no answer";
    assert_eq!(supervisor.fault().as_deref(), Some(expected));
    assert_eq!(supervisor.threads()[0].state, ThreadState::Restarting);
    record.restarted();
    assert_eq!(supervisor.fault(), None);
    assert_eq!(supervisor.threads()[0].error.as_deref(), Some("no answer"));
}

#[test]
fn the_panic_of_a_task_is_a_failure_and_so_is_its_unexpected_end() {
    let run = |task: &mut dyn FnMut(), is_end_expected: bool| {
        let supervisor = Supervisor::default();
        let mut running =
            pin!(supervisor.task("accept", async { task() }, move || is_end_expected));
        let poll = running
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready());
        let failure = supervisor.failure();
        failure.map(|failure| failure.to_string())
    };
    let panicked = run(&mut || panic!("disk on fire"), true);
    let expected = "thread accept panicked: disk on fire";
    assert_eq!(panicked.as_deref(), Some(expected));
    let ended = run(&mut || (), false);
    let expected = "thread accept ended unexpectedly";
    assert_eq!(ended.as_deref(), Some(expected));
    assert_eq!(run(&mut || (), true), None);
}

#[test]
fn abandoned_threads_are_bounded() {
    static HANGING: AbandonableThreads = AbandonableThreads::new("hanging", 3);
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    for _ in 0..3 {
        let released = released.clone();
        let hang = move || {
            let _ = released.lock().recv();
        };
        HANGING.start(hang).expect("a place is free");
    }
    let refused = HANGING.start(|| ()).expect_err("all places are taken");
    let expected = "3 calls of hanging have not returned yet";
    assert_eq!(refused.to_string(), expected);
    drop(release);
    eventually("a place is free", || HANGING.start(|| ()));
}
