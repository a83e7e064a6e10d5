use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use pegel_metric::{Family, Group, Kind, Ledger};
use pegel_supervisor::Supervisor;

use super::*;
use crate::collectors::testing::SettableClock;
use crate::procfile::SharedFile;
use crate::single::Single;
use crate::{CollectError, Collector, Figures, Host, OpenError, Opened, Pace, Tier};

static FAMILY: Family = Family::new("x", Kind::Gauge, "", 0, "X.");
const RATE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// What the collector of a test shall do in its next pass.
#[derive(Debug)]
enum Step {
    Give(f64),
    Panic,
}

/// Waits for its next step before it reads: without one it hangs.
#[derive(Debug)]
struct Led {
    steps: Receiver<Step>,
    note: Note,
    reading: Single,
}

impl Collector for Led {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        self.note.set("the mount /far");
        let Ok(Step::Give(value)) = self.steps.recv() else {
            panic!("as it was told");
        };
        self.note.set("");
        self.reading.set(out, value).expect("valid");
        Ok(())
    }
}

/// The receivers that wait to be opened; each test has its own entry and with it its own place.
type Waiting = Mutex<Option<Receiver<Step>>>;

struct Stand {
    context: Context,
    clock: Arc<SettableClock>,
    aside: Aside,
    steps: SyncSender<Step>,
    tick: Tick,
}

impl Stand {
    fn new(entry: &'static Entry, waiting: &Waiting) -> Stand {
        let (steps, receiver) = sync_channel(8);
        *waiting.lock().expect("lock") = Some(receiver);
        let clock = Arc::new(SettableClock(AtomicI64::new(1_000)));
        let context = Context {
            host: Host::at(Path::new("/nonexistent")),
            clock: clock.clone(),
            ledger: Arc::new(Ledger::default()),
            own: Vec::new(),
            figures: Arc::new(Figures::new([entry.name].into_iter())),
            supervisor: Supervisor::default(),
            note: Note::default(),
            stat: Arc::new(SharedFile::new("/nonexistent".into())),
        };
        let aside = Aside::new(entry, 4, RATE, &context, &context.figures.collectors()[0]);
        Stand {
            context,
            clock,
            aside,
            steps,
            tick: Tick::new(Input::Collect),
        }
    }

    fn tell(&self, step: Step) {
        self.steps.send(step).expect("the collector listens");
    }

    fn settle(&self) {
        self.aside.settle(Instant::now() + LONG);
    }

    /// A pass some time later: the value, if any, and the failure.
    fn pass(&mut self, after: Duration) -> (Option<f64>, Option<String>) {
        self.clock.0.fetch_add(after.as_millis() as i64, Relaxed);
        self.tick.reset(0);
        let figures = &self.context.figures.collectors()[0];
        let (series, _) = self.aside.pass(&self.context, figures, &mut self.tick);
        let row = self.tick.rows().last();
        let value = row.and_then(|row| row.is_present(0).then(|| row.values[0]));
        assert_eq!(series, u64::from(value.is_some()));
        (value, self.context.figures.status()[0].error.clone())
    }
}

const fn entry(open: fn(&Context) -> Result<Opened, OpenError>) -> Entry {
    Entry {
        name: "x",
        tier: Tier::Fast,
        pace: Pace::Aside,
        level: 0,
        families: &[],
        open,
    }
}

macro_rules! led {
    () => {{
        static WAITING: Waiting = Mutex::new(None);
        static ENTRY: Entry = entry(|context| {
            let steps = WAITING.lock().expect("lock").take().expect("one stand");
            let note = context.note.clone();
            Ok(Opened::Active(Box::new(Led {
                steps,
                note,
                reading: Single::new(&FAMILY),
            })))
        });
        Stand::new(&ENTRY, &WAITING)
    }};
}

#[test]
fn readings_are_picked_up_when_they_are_complete() {
    let mut stand = led!();
    assert_eq!(stand.pass(RATE), (None, None), "nothing was read yet");
    for value in [1.0, 2.0] {
        stand.tell(Step::Give(value));
        stand.settle();
        assert_eq!(stand.pass(RATE), (Some(value), None));
    }
}

#[test]
fn a_reading_that_hangs_fails_by_name_and_recovers_by_itself() {
    let mut stand = led!();
    stand.tell(Step::Give(1.0));
    stand.settle();
    assert_eq!(stand.pass(RATE), (Some(1.0), None));
    // The next one begins now and gets no answer.
    stand
        .aside
        .settle(Instant::now() + Duration::from_millis(20));
    while stand.aside.desk.papers().started.is_none() {
        std::thread::yield_now();
    }
    let four = Duration::from_secs(4);
    assert_eq!(stand.pass(four), (Some(1.0), None), "the last one holds");
    let (value, error) = stand.pass(RATE);
    assert_eq!(value, None, "old values are not shown for ever");
    assert_eq!(
        error.as_deref(),
        Some("the mount /far has not answered for 5s")
    );
    assert_eq!(stand.pass(LONG).1, error);
    assert_eq!(stand.context.figures.status()[0].failures, 1, "one failure");

    stand.tell(Step::Give(3.0));
    stand.settle();
    assert_eq!(stand.pass(RATE), (Some(3.0), None));
    assert_eq!(stand.context.figures.status()[0].state, State::Active);
}

#[test]
fn a_panic_on_the_thread_is_a_failure_and_the_thread_lives_on() {
    let mut stand = led!();
    stand.tell(Step::Panic);
    stand.settle();
    let (value, error) = stand.pass(RATE);
    assert_eq!(
        (value, error.as_deref()),
        (None, Some("panicked: as it was told"))
    );
    stand.settle();
    let status = stand.pass(RATE);
    assert_eq!(status.0, None, "and waits to be opened again");
}

#[test]
fn a_hung_thread_is_not_waited_for() {
    let mut stand = led!();
    stand.pass(RATE);
    let Stand { aside, steps, .. } = stand;
    let desk = Arc::downgrade(&aside.desk);
    drop(aside);
    assert!(desk.upgrade().is_some(), "the thread still hangs");
    drop(steps);
    let deadline = Instant::now() + LONG;
    while desk.upgrade().is_some() {
        assert!(Instant::now() < deadline, "the thread ends when it can");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_absent_is_quiet_and_needs_no_thread() {
    static OPENED: AtomicI64 = AtomicI64::new(0);
    static ENTRY: Entry = entry(|_| {
        OPENED.fetch_add(1, Relaxed);
        Ok(Opened::Absent {
            looked_for: "/far".into(),
        })
    });
    let mut stand = Stand::new(&ENTRY, &Mutex::new(None));
    stand.settle();
    assert_eq!(stand.pass(RATE), (None, None));
    assert!(stand.tick.rows().is_empty());
    let status = &stand.context.figures.status()[0];
    assert_eq!(
        (status.state, status.looked_for.as_deref()),
        (State::Absent, Some("/far"))
    );
    let deadline = Instant::now() + LONG;
    while Arc::strong_count(&stand.aside.desk) > 1 {
        assert!(Instant::now() < deadline, "the thread is still there");
        std::thread::yield_now();
    }
    stand.pass(ABSENT_WAIT - 2 * RATE);
    assert_eq!(OPENED.load(Relaxed), 1);
    stand.pass(2 * RATE);
    stand.settle();
    assert_eq!(OPENED.load(Relaxed), 2, "looked for again after a minute");
}

#[test]
fn the_next_reading_is_taken_shortly_before_it_is_due() {
    let mut stand = led!();
    stand.tell(Step::Give(1.0));
    stand.settle();
    let before = Instant::now();
    stand.pass(RATE);
    let wanted = stand.aside.desk.papers().wanted.expect("asked for");
    assert!(wanted >= before + RATE / 2, "not at once");
    assert!(wanted <= Instant::now() + RATE - LEAD, "but in time");
}
