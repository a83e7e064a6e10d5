//! Threaded collectors that hang, panic and recover.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pegel_metric::{Family, MetricKind, SampleGroup};

use super::*;
use crate::collectors::testing::{SettableClock, context_without_files};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, Collector, OpenOutcome, OpenResult, Tier};

static FAMILY: Family = Family::new("x", MetricKind::Gauge, "", 0, "X.");
const RATE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// The action of the test collector in its next pass.
#[derive(Debug)]
enum PassStep {
    Give(f64),
    Panic,
}

/// Waits for its next step before it reads: without one it hangs.
#[derive(Debug)]
struct SteppedCollector {
    steps: Receiver<PassStep>,
    operation: CurrentOperation,
    reading: UnlabelledSeries,
}

impl Collector for SteppedCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.operation.set("the mount /far");
        let Ok(PassStep::Give(value)) = self.steps.recv() else {
            panic!("as requested");
        };
        self.operation.set("");
        self.reading.set(out, value).expect("valid");
        Ok(())
    }
}

/// The receiver that the collector takes when it is opened; each test has its own entry and its own
/// receiver.
type PendingSteps = Mutex<Option<Receiver<PassStep>>>;

struct ThreadedFixture {
    context: Context,
    clock: Arc<SettableClock>,
    collector: CollectorThread,
    steps: SyncSender<PassStep>,
    tick: Tick,
}

impl ThreadedFixture {
    fn new(entry: &'static CollectorEntry, waiting: &PendingSteps) -> ThreadedFixture {
        let (steps, receiver) = sync_channel(8);
        *waiting.lock() = Some(receiver);
        let clock = Arc::new(SettableClock(AtomicI64::new(1_000)));
        let context = context_without_files(clock.clone());
        let collector =
            CollectorThread::start(entry, 4, RATE, &context, &context.stats.collectors()[0]);
        ThreadedFixture {
            context,
            clock,
            collector,
            steps,
            tick: Tick::new(Input::Collect),
        }
    }

    fn send_step(&self, step: PassStep) {
        self.steps.send(step).expect("the collector listens");
    }

    fn wait_for_pass(&self) {
        self.collector.wait_for_pass(Instant::now() + LONG);
    }

    /// Runs a pass some time later; returns the value, if any, and the error.
    fn pass(&mut self, after: Duration) -> (Option<f64>, Option<String>) {
        self.clock.0.fetch_add(after.as_millis() as i64, Relaxed);
        self.tick.reset(0);
        let stats = &self.context.stats.collectors()[0];
        let (series, _) = self.collector.publish(&self.context, stats, &mut self.tick);
        let row = self.tick.rows().last();
        let value = row.and_then(|row| row.is_present(0).then(|| row.values[0]));
        assert_eq!(series, u64::from(value.is_some()));
        (value, self.context.stats.status()[0].error.clone())
    }
}

const fn entry(open: fn(&Context) -> OpenResult) -> CollectorEntry {
    CollectorEntry::threaded("x", Tier::Fast, &[], open)
}

macro_rules! stepped {
    () => {{
        static WAITING: PendingSteps = Mutex::new(None);
        static ENTRY: CollectorEntry = entry(|context| {
            let steps = WAITING.lock().take().expect("one fixture");
            let operation = context.operation.clone();
            OpenOutcome::active(SteppedCollector {
                steps,
                operation,
                reading: UnlabelledSeries::new(&FAMILY),
            })
        });
        ThreadedFixture::new(&ENTRY, &WAITING)
    }};
}

#[test]
fn readings_are_picked_up_when_they_are_complete() {
    let mut fixture = stepped!();
    assert_eq!(fixture.pass(RATE), (None, None), "nothing was read yet");
    for value in [1.0, 2.0] {
        fixture.send_step(PassStep::Give(value));
        fixture.wait_for_pass();
        assert_eq!(fixture.pass(RATE), (Some(value), None));
    }
}

#[test]
fn a_reading_that_hangs_fails_by_name_and_recovers_by_itself() {
    let mut fixture = stepped!();
    fixture.send_step(PassStep::Give(1.0));
    fixture.wait_for_pass();
    assert_eq!(fixture.pass(RATE), (Some(1.0), None));
    // The next pass starts now and hangs.
    fixture
        .collector
        .wait_for_pass(Instant::now() + Duration::from_millis(20));
    while fixture.collector.exchange.lock().started.is_none() {
        std::thread::yield_now();
    }
    let four = Duration::from_secs(4);
    assert_eq!(fixture.pass(four), (Some(1.0), None), "the last one holds");
    let (value, error) = fixture.pass(RATE);
    assert_eq!(value, None, "old values are not shown for ever");
    assert_eq!(
        error.as_deref(),
        Some("the mount /far did not respond within 5s")
    );
    assert_eq!(fixture.pass(LONG).1, error);
    assert_eq!(fixture.context.stats.status()[0].failures, 1, "one failure");

    fixture.send_step(PassStep::Give(3.0));
    fixture.wait_for_pass();
    assert_eq!(fixture.pass(RATE), (Some(3.0), None));
    assert_eq!(
        fixture.context.stats.status()[0].state,
        CollectorState::Active
    );
}

#[test]
fn a_panic_on_the_thread_is_a_failure_and_the_thread_lives_on() {
    let mut fixture = stepped!();
    fixture.send_step(PassStep::Panic);
    fixture.wait_for_pass();
    let (value, error) = fixture.pass(RATE);
    assert_eq!(
        (value, error.as_deref()),
        (None, Some("panicked: as requested"))
    );
    fixture.wait_for_pass();
    let status = fixture.pass(RATE);
    assert_eq!(status.0, None, "and waits to be opened again");
}

#[test]
fn a_hung_thread_is_not_waited_for() {
    let mut fixture = stepped!();
    fixture.pass(RATE);
    let ThreadedFixture {
        collector, steps, ..
    } = fixture;
    let exchange = Arc::downgrade(&collector.exchange);
    drop(collector);
    assert!(exchange.upgrade().is_some(), "the thread still hangs");
    drop(steps);
    let deadline = Instant::now() + LONG;
    while exchange.upgrade().is_some() {
        assert!(Instant::now() < deadline, "the thread ends when it can");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_absent_is_quiet_and_needs_no_thread() {
    static OPENED: AtomicI64 = AtomicI64::new(0);
    static ENTRY: CollectorEntry = entry(|_| {
        OPENED.fetch_add(1, Relaxed);
        OpenOutcome::absent("/far")
    });
    let mut fixture = ThreadedFixture::new(&ENTRY, &Mutex::new(None));
    fixture.wait_for_pass();
    assert_eq!(fixture.pass(RATE), (None, None));
    assert!(fixture.tick.rows().is_empty());
    let status = &fixture.context.stats.status()[0];
    assert_eq!(
        (status.state, status.looked_for.as_deref()),
        (CollectorState::Absent, Some("/far"))
    );
    let deadline = Instant::now() + LONG;
    while Arc::strong_count(&fixture.collector.exchange) > 1 {
        assert!(Instant::now() < deadline, "the thread is still there");
        std::thread::yield_now();
    }
    fixture.pass(ABSENT_RETRY - 2 * RATE);
    assert_eq!(OPENED.load(Relaxed), 1);
    fixture.pass(2 * RATE);
    fixture.wait_for_pass();
    assert_eq!(OPENED.load(Relaxed), 2, "looked for again after a minute");
}

#[test]
fn the_next_reading_is_taken_shortly_before_it_is_due() {
    let mut fixture = stepped!();
    fixture.send_step(PassStep::Give(1.0));
    fixture.wait_for_pass();
    let before = Instant::now();
    fixture.pass(RATE);
    let next_at = fixture
        .collector
        .exchange
        .lock()
        .next_at
        .expect("requested");
    assert!(next_at >= before + RATE / 2, "not at once");
    assert!(next_at <= Instant::now() + RATE - LEAD_TIME, "but in time");
}
