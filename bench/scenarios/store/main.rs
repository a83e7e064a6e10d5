//! Append by handle, log included: CPU time of all threads. Bytes per sample, in the log and in
//! sealed blocks, with all overhead. The data is one hour of a simulated node at 1 Hz. Then a
//! back-fill in shuffled order, and its replay.

mod back_fill;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, SimulatedNode, cpu_time, is_trial_run, thread_cpu_time,
};
use pegel_metric::{Clock, Input, Millis};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
const HOUR_S: i64 = 3600;

fn main() -> ExitCode {
    let mut report = BenchReport::new("store");
    let (mut fast, mut single, mut log, mut sealed) = Default::default();
    for _ in 0..report.repetitions(7) {
        fast_and_single(&mut fast, &mut single, &mut log, &mut sealed);
    }
    let unit = "M samples/s/core";
    report.row(
        "append at 1000 Hz, log included",
        unit,
        FigureGate::AtLeast(15.0),
        fast,
    );
    report.row(
        "append, waiting for each tick",
        unit,
        FigureGate::None,
        single,
    );
    report.row("log", "bytes/sample", FigureGate::AtMost(2.0), log);
    report.row(
        "sealed block, index included",
        "bytes/sample",
        FigureGate::AtMost(0.66),
        sealed,
    );
    back_fill::report(&mut report);
    report.finish()
}

fn fast_and_single(
    fast: &mut Vec<f64>,
    single: &mut Vec<f64>,
    log: &mut Vec<f64>,
    sealed: &mut Vec<f64>,
) {
    fast.push(measure(true).0);
    let figures = measure(false);
    single.push(figures.0);
    log.push(figures.1);
    sealed.push(figures.2);
}

/// Returns million samples per CPU second, bytes per sample in the log, and bytes per sample in
/// sealed blocks.
fn measure(is_fast: bool) -> (f64, f64, f64) {
    let dir = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let mut options = StoreOptions::new(dir.path());
    options.clock = clock.clone();
    // Keeps the whole hour in one log segment, so that its size is the size of the log.
    options.keep.memory = Duration::from_secs(2 * 3600).into();
    let store = Store::open(options).expect("the store opens");
    let seconds = if is_trial_run() { HOUR_S / 6 } else { HOUR_S };

    let mut node = SimulatedNode::new(1);
    let started = Instant::now();
    let (whole, this_thread) = (cpu_time(), thread_cpu_time());
    let mut used = Duration::ZERO;
    for number in 0..seconds as u32 {
        let tick = node.tick(clock.utc());
        let before = thread_cpu_time();
        store.tick(tick);
        if !is_fast {
            // Waits until the tick is written, so that each tick is written separately.
            store
                .push(Input::Push, Vec::new())
                .expect("the writer answers");
        }
        used += thread_cpu_time() - before;
        clock.advance(Duration::from_secs(1));
        if is_fast {
            let due = started + number * Duration::from_millis(1);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    store.push(Input::Push, Vec::new()).expect("all is written");
    // Excludes the time that this thread spent on making the samples.
    used += (cpu_time() - whole).saturating_sub(thread_cpu_time() - this_thread);
    let samples = node.series_count() as f64 * seconds as f64;
    let log_bytes = store.status().log_bytes as f64;
    clock.advance(Duration::from_secs(3 * 3600));
    store.flush_to_blocks();
    let block_bytes = store.status().block_bytes as f64;
    (
        samples / used.as_secs_f64() / 1e6,
        log_bytes / samples,
        block_bytes / samples,
    )
}
