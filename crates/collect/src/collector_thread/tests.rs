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
    ticks: PassTicks,
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
            ticks: PassTicks::new(),
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
        self.ticks.begin(PassTime::default());
        let stats = &self.context.stats.collectors()[0];
        let published = self.collector.pass(&self.context, stats, &mut self.ticks);
        let series = published.map_or(0, |(series, _)| series);
        let row = self.ticks.nominal().rows().last();
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
    assert!(fixture.ticks.nominal().rows().is_empty());
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

/// A collector with a timed schedule, and the times of its samples.
struct TimedFixture {
    fixture: ThreadedFixture,
    times: Vec<Millis>,
    /// UTC minus monotonic time.
    offset: Millis,
    /// The last call published a pass, so that its cost is recorded.
    is_published: bool,
}

impl TimedFixture {
    /// Takes the first pass at 1,000 ms.
    fn start(fixture: ThreadedFixture) -> TimedFixture {
        fixture.send_step(PassStep::Give(1.0));
        fixture.wait_for_pass();
        let mut timed = TimedFixture {
            fixture,
            times: Vec::new(),
            offset: 0,
            is_published: false,
        };
        timed.due(1_000);
        timed
    }

    /// Makes a pass due, and waits until the thread runs one if it was requested.
    fn due(&mut self, nominal: Millis) {
        self.set_clock(nominal);
        self.publish(|collector, context, ticks| {
            collector.pass(context, &context.stats.collectors()[0], ticks)
        });
        let exchange = &self.fixture.collector.exchange;
        while exchange.lock().is_requested {
            std::thread::yield_now();
        }
    }

    /// Completes the running pass at this time.
    fn complete(&mut self, at: Millis) {
        self.set_clock(at);
        self.fixture.send_step(PassStep::Give(1.0));
        self.fixture.wait_for_pass();
    }

    fn set_clock(&self, utc: Millis) {
        self.fixture.clock.0.store(utc - self.offset, Relaxed);
    }

    /// Publishes a completed pass between two due times.
    fn check(&mut self) {
        self.publish(|collector, context, ticks| {
            collector.publish_completed(context, &context.stats.collectors()[0], ticks)
        });
    }

    fn publish<T>(
        &mut self,
        act: impl FnOnce(&mut CollectorThread, &Context, &mut PassTicks) -> Option<T>,
    ) {
        let ThreadedFixture {
            context,
            clock,
            collector,
            ticks,
            ..
        } = &mut self.fixture;
        ticks.begin(PassTime {
            nominal: clock.utc() + self.offset,
            offset: Some(self.offset * 1_000_000),
        });
        self.is_published = act(collector, context, ticks).is_some();
        ticks.deliver(|tick| {
            let is_present = tick.rows().iter().any(|row| row.present_count() > 0);
            self.times.extend(is_present.then_some(tick.time));
        });
    }

    /// The times of the samples, and the counts of missed and late passes.
    fn result(&self) -> (&[Millis], u64, u64) {
        let counts = self.fixture.context.stats.schedule_counts();
        (&self.times, counts.missed, counts.late)
    }
}

#[test]
fn a_pass_carries_its_nominal_time_or_the_time_of_reading() {
    let mut timed = TimedFixture::start(stepped!());
    timed.due(2_000);
    assert!(!timed.is_published, "only requested");
    timed.complete(2_020);
    timed.check();
    assert!(timed.is_published);
    timed.check();
    assert!(!timed.is_published, "once");
    assert_eq!(timed.result(), (&[1_000, 2_000][..], 0, 0), "10 ms late");
    timed.due(3_000);
    timed.complete(3_200);
    timed.check();
    timed.due(4_000);
    timed.check();
    timed.complete(4_990);
    timed.due(5_000);
    let expected = [1_000, 2_000, 3_100, 4_495];
    assert_eq!(timed.result(), (&expected[..], 0, 0), "the middle of each");
}

#[test]
fn each_due_time_has_a_sample_or_is_counted_as_missed() {
    let mut timed = TimedFixture::start(stepped!());
    // Takes 2.4 intervals: the third due time has the sample.
    timed.due(2_000);
    timed.due(3_000);
    timed.due(4_000);
    timed.complete(4_400);
    timed.check();
    assert_eq!(timed.result(), (&[1_000, 4_000][..], 2, 0));
    // The sampler is late itself: the pass was read after the next due time and belongs to it.
    timed.due(5_000);
    timed.complete(7_200);
    timed.due(6_000);
    let expected = [1_000, 4_000, 6_100];
    assert_eq!(timed.result(), (&expected[..], 3, 1));
    timed.due(7_000);
    timed.complete(7_010);
    timed.check();
    assert_eq!(timed.times.last(), Some(&7_000), "on time again");
    assert_eq!(timed.result().1, 3);
}

#[test]
fn a_hung_thread_misses_every_due_time() {
    let mut timed = TimedFixture::start(stepped!());
    for due in 2..=9 {
        timed.due(due * 1_000);
    }
    assert_eq!(timed.result(), (&[1_000][..], 7, 0));
    timed.complete(9_500);
    timed.check();
    assert_eq!(timed.times.last(), Some(&9_001), "9,000 marks the gap");
    assert_eq!(timed.result().1, 7);
}

#[test]
fn a_clock_that_is_set_back_does_not_delay_samples() {
    let mut timed = TimedFixture::start(stepped!());
    timed.offset = 3_600_000;
    timed.due(3_602_000);
    timed.complete(3_602_010);
    timed.check();
    timed.offset = 0;
    timed.due(3_000);
    timed.complete(3_010);
    timed.check();
    assert_eq!(timed.result(), (&[1_000, 3_602_000, 3_000][..], 0, 0));
}
