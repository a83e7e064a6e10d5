//! Threads and signal handlers that update the same series at the same time: no update is lost or
//! counted twice.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::support::{SharedNumbers, counter, total};
use pegel_lane::reader::LaneValue;
use pegel_lane::{
    Calls, Counter, FloatCounter, Gauge, Handle, Histogram, LaneSeriesSpec, Points, ProcessLanes,
    StripedCounter,
};
use pegel_testkit::{ForkedChild, TempDir, open_lanes};

/// One handle of each kind.
#[derive(Clone, Copy)]
struct HandleOfEachKind {
    steps: Counter,
    striped: StripedCounter,
    seconds: FloatCounter,
    depth: Gauge,
    calls: Calls,
    sizes: Histogram,
    points: Points,
}

impl HandleOfEachKind {
    fn new(home: &'static ProcessLanes) -> HandleOfEachKind {
        let spec = |name| counter(name);
        let striped = LaneSeriesSpec {
            stripes: 8,
            ..spec("striped_total")
        };
        HandleOfEachKind {
            steps: Counter::create_in(home, &spec("steps_total")).expect("made"),
            striped: StripedCounter::create_in(home, &striped).expect("made"),
            seconds: FloatCounter::create_in(home, &spec("seconds_total")).expect("made"),
            depth: Gauge::create_in(home, &spec("depth")).expect("made"),
            calls: Calls::create_in(home, &spec("calls")).expect("made"),
            sizes: Histogram::create_in(home, &spec("sizes")).expect("made"),
            points: Points::create_in(home, &spec("points")).expect("made"),
        }
    }

    fn update(&self) {
        self.steps.add(1);
        self.striped.add(1);
        self.seconds.add(0.5);
        self.depth.add(1.0);
        self.calls.add(2, 3);
        self.sizes.record(4.0);
    }
}

/// Asserts that all lanes of `dir` together hold `updates` of everything.
fn assert_all(dir: &TempDir, updates: u64) {
    for name in ["steps_total", "striped_total", "calls", "sizes"] {
        assert_eq!(total(dir, name), updates, "{name}");
    }
    let (mut seconds, mut depth, mut bytes, mut sum) = (0.0, 0.0, 0, 0.0);
    for mut lane in open_lanes(dir) {
        let mut buffer = Vec::new();
        let view = lane.read(&mut buffer).expect("readable");
        for (_, value) in view.iter() {
            match value {
                Some(LaneValue::FloatCounter(value)) => seconds += value,
                Some(LaneValue::Gauge { value, .. }) => depth += value,
                Some(LaneValue::Calls {
                    bytes: more, nanos, ..
                }) => {
                    assert_eq!(nanos % 3, 0);
                    bytes += more;
                }
                Some(LaneValue::Distribution(values)) => sum += values.sum,
                _ => {}
            }
        }
    }
    assert_eq!(seconds, updates as f64 * 0.5);
    assert_eq!(depth, updates as f64);
    assert_eq!(bytes, 2 * updates);
    assert_eq!(sum, 4.0 * updates as f64);
}

#[test]
fn threads_lose_no_update() {
    let dir = TempDir::new();
    let all = HandleOfEachKind::new(ProcessLanes::in_directory(dir.path()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100_000).for_each(|_| all.update()));
        }
    });
    assert_all(&dir, 400_000);
}

#[test]
fn points_of_many_threads_are_whole() {
    let dir = TempDir::new();
    let all = HandleOfEachKind::new(ProcessLanes::in_directory(dir.path()));
    let mut lane = open_lanes(&dir)
        .into_iter()
        .find(|lane| lane.header().number == 1)
        .expect("the lane with the ring");
    let (mut buffer, mut points) = (Vec::new(), Vec::new());
    let mut lost = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_i64)
            .map(|writer| {
                scope.spawn(move || {
                    for number in 0..200_000 {
                        let time = 3 * number + writer;
                        all.points.add_at(time as f64 * 0.5, time);
                    }
                })
            })
            .collect();
        loop {
            let is_over = writers.iter().all(|writer| writer.is_finished());
            lane.read(&mut buffer).expect("readable");
            lost += lane
                .points(&mut buffer, is_over, &mut points)
                .expect("readable")
                .lost;
            if is_over {
                break;
            }
        }
    });
    // Every number is accounted for, and no point is a mix of two.
    assert_eq!(points.len() as u64 + lost, 600_000);
    assert!(points.len() >= 2048, "{}", points.len());
    assert!(
        points
            .iter()
            .all(|point| point.value == point.time_ms as f64 * 0.5)
    );
    let mut times: Vec<i64> = points.iter().map(|point| point.time_ms).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), points.len(), "duplicate point");
}

static IN_HANDLER: AtomicPtr<HandleOfEachKind> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: libc::c_int) {
    // SAFETY: null, or leaked before the signals began.
    if let Some(all) = unsafe { IN_HANDLER.load(Ordering::Relaxed).as_ref() } {
        all.update();
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Signals this thread every few microseconds from now on.
fn start_signals() {
    // SAFETY: the handler is async-signal-safe; the timer belongs to this process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
        let often = libc::timeval {
            tv_sec: 0,
            tv_usec: 40,
        };
        let timer = libc::itimerval {
            it_interval: often,
            it_value: often,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

fn stop_signals() {
    // SAFETY: stops the timer of this process.
    unsafe {
        let timer: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

/// Runs in a child, because a timer belongs to a whole process.
#[test]
fn a_handler_updates_what_it_interrupted() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let all: &'static HandleOfEachKind = Box::leak(Box::new(HandleOfEachKind::new(home)));
    let shared = SharedNumbers::new();
    let child = ForkedChild::run(|| {
        IN_HANDLER.store(std::ptr::from_ref(all).cast_mut(), Ordering::Relaxed);
        // From the start: the first update of a child creates its lanes, also from a handler.
        start_signals();
        let mut updates = 0_u64;
        while HANDLED.load(Ordering::Relaxed) < 2000 {
            all.update();
            updates += 1;
            // Creating a series takes the lock; handlers must not wait for it.
            if updates.is_multiple_of(64) {
                let name = format!("c{}_total", updates % 100);
                Counter::create_in(home, &counter(&name))
                    .expect("made")
                    .add(1);
            }
        }
        stop_signals();
        shared.set(0, updates + HANDLED.load(Ordering::Relaxed));
    });
    assert_eq!(child.wait(), 0);
    assert_all(&dir, shared.get(0));
}

/// A handler that runs first in a new process, repeatedly.
#[test]
fn a_child_can_get_its_lanes_from_within_a_handler() {
    let dir = TempDir::new();
    let all: &'static HandleOfEachKind = Box::leak(Box::new(HandleOfEachKind::new(
        ProcessLanes::in_directory(dir.path()),
    )));
    let shared = SharedNumbers::new();
    for _ in 0..20 {
        let child = ForkedChild::run(|| {
            IN_HANDLER.store(std::ptr::from_ref(all).cast_mut(), Ordering::Relaxed);
            let before = HANDLED.load(Ordering::Relaxed);
            start_signals();
            while HANDLED.load(Ordering::Relaxed) < before + 3 {
                std::hint::spin_loop();
            }
            stop_signals();
            shared.add(0, HANDLED.load(Ordering::Relaxed) - before);
        });
        assert_eq!(child.wait(), 0);
    }
    assert_all(&dir, shared.get(0));
}

/// Two threads may share a stripe by the hash of their stacks; the sum is correct all the same.
#[test]
fn deep_stacks_change_the_stripe_and_not_the_sum() {
    let dir = TempDir::new();
    let all = HandleOfEachKind::new(ProcessLanes::in_directory(dir.path()));
    fn dive(depth: u32, striped: StripedCounter, calls: &Cell<u64>) {
        let frame = std::hint::black_box([0_u8; 60_000]);
        striped.add(1);
        calls.set(calls.get() + u64::from(frame[7] == 0));
        if depth > 0 {
            dive(depth - 1, striped, calls);
        }
    }
    let deep = std::thread::Builder::new().stack_size(64 << 20);
    let calls = deep
        .spawn(move || {
            let calls = Cell::new(0);
            dive(500, all.striped, &calls);
            calls.get()
        })
        .expect("a thread")
        .join()
        .expect("no panic");
    assert_eq!(calls, 501);
    assert_eq!(total(&dir, "striped_total"), 501);
}
