//! Questions about one hour at 1 Hz: the sum of 192 counters with a 10 s step, and the rate of the same,
//! from sealed blocks and from fresh ones. Then the first answer after a crash.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_bench::{Gate, Node, Report, cpu_time, is_once};
use pegel_metric::{Clock, Input, Millis, Selector};
use pegel_store::{Fold, Options, Question, Step, Store};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
const HOUR_MS: Millis = 3_600_000;
const STEP_MS: Millis = 10_000;

fn main() -> ExitCode {
    let mut report = Report::new("query");
    let dir = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let open = || {
        let mut options = Options::new(dir.path());
        options.clock = clock.clone();
        Store::open(options).expect("the store opens")
    };
    let store = open();
    let mut node = Node::new(1);
    for second in 0..if is_once() { 1200 } else { 3600 } {
        store.tick(node.tick(clock.utc()));
        if second % 60 == 0 {
            store.push(Input::Push, Vec::new()).expect("the writer answers");
        }
        clock.advance(Duration::from_secs(1));
    }
    store.push(Input::Push, Vec::new()).expect("the writer answers");
    measure(&mut report, &store, "recent", Gate::AtMost(3.0), Gate::AtMost(4.0));
    restart(&mut report, &store, &dir, &clock);
    clock.advance(Duration::from_secs(3 * 3600));
    store.settle();
    measure(&mut report, &store, "sealed", Gate::AtMost(3.0), Gate::AtMost(4.0));
    report.finish()
}

fn measure(report: &mut Report, store: &Store, from: &str, sum_gate: Gate, rate_gate: Gate) {
    let repetitions = report.repetitions(51);
    let time = |question: &dyn Fn() -> f64| {
        let mut figures = Vec::new();
        for _ in 0..repetitions {
            let before = cpu_time();
            assert!(question() > 0.0, "the answer is not empty");
            figures.push((cpu_time() - before).as_secs_f64() * 1e3);
        }
        figures
    };
    let sums = time(&|| sum_of_192(store, Fold::Avg, false));
    report.row(&format!("sum of 192 series, 1 h, 10 s step, {from}"), "ms", sum_gate, sums);
    let rates = time(&|| sum_of_192(store, Fold::Last, true));
    report.row(&format!("rate of the same, {from}"), "ms", rate_gate, rates);
}

/// The sum over all CPUs and modes at each step, or of their rates; returns its total.
fn sum_of_192(store: &Store, fold: Fold, rate: bool) -> f64 {
    let selector = Selector::parse("node_cpu_seconds_total").expect("a valid selector");
    let step = Step { millis: STEP_MS, fold: Some(fold) };
    let question = Question::new(selector, START, START + HOUR_MS - 1, Some(step));
    let mut sums = vec![0.0; (HOUR_MS / STEP_MS) as usize];
    let mut series = 0;
    store
        .range(&question, &mut |_, points| {
            series += 1;
            let mut before: Option<(Millis, f64)> = None;
            for &(time, value) in points {
                let at = ((time - START) / STEP_MS) as usize;
                if !rate {
                    sums[at] += value;
                } else if let Some((earlier, old)) = before {
                    // A counter that went back was reset: it has grown by what it shows.
                    let grown = if value >= old { value - old } else { value };
                    sums[at] += grown * 1000.0 / (time - earlier) as f64;
                }
                before = Some((time, value));
            }
        })
        .expect("an answer");
    assert_eq!(series, 192);
    sums.iter().sum()
}

/// Opens a copy of the files, as a crash would leave them, and asks a first question.
fn restart(report: &mut Report, store: &Store, dir: &TempDir, clock: &Arc<FakeClock>) {
    let mut figures = Vec::new();
    for _ in 0..report.repetitions(11) {
        let copy = TempDir::new();
        for name in ["log", "blocks"] {
            std::fs::create_dir_all(copy.path().join(name)).expect("a directory");
            for entry in std::fs::read_dir(dir.path().join(name)).expect("a directory") {
                let entry = entry.expect("an entry");
                std::fs::copy(entry.path(), copy.path().join(name).join(entry.file_name())).expect("a copy");
            }
        }
        let mut options = Options::new(copy.path());
        options.clock = clock.clone();
        let before = Instant::now();
        let reopened = Store::open(options).expect("the copy opens");
        let mut last = 0.0;
        reopened.latest(&Selector::parse("node_load1").expect("valid"), 0, &mut |_, latest| last = latest.value);
        let question = Question::new(Selector::name("node_load1"), START, clock.utc(), None);
        let mut count = 0;
        reopened.range(&question, &mut |_, points| count = points.len()).expect("an answer");
        figures.push(before.elapsed().as_secs_f64() * 1e3);
        assert!(count > 0);
        drop(reopened);
    }
    let _ = store;
    report.row("first answer after a crash, wall time", "ms", Gate::AtMost(50.0), figures);
}
