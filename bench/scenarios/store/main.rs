//! Append by handle, through the log and all: CPU time of all threads. Bytes per sample, in the log and
//! sealed, everything included. The data is one hour of a simulated node at 1 Hz.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pegel_bench::{Gate, Node, Report, cpu_time, is_once};
use pegel_metric::{Clock, Input, Millis};
use pegel_store::{Options, Store};
use pegel_testkit::{FakeClock, TempDir};

const START: Millis = 1_700_006_400_000;
const HOUR_S: i64 = 3600;

fn main() -> ExitCode {
    let mut report = Report::new("store");
    let (mut rate, mut log, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.repetitions(7) {
        let figures = measure();
        rate.push(figures.0);
        log.push(figures.1);
        sealed.push(figures.2);
    }
    report.row(
        "append by handle, log included",
        "M samples/s/core",
        Gate::AtLeast(15.0),
        rate,
    );
    report.row("log", "bytes/sample", Gate::AtMost(2.0), log);
    report.row(
        "sealed block, all included",
        "bytes/sample",
        Gate::AtMost(0.66),
        sealed,
    );
    report.finish()
}

/// Million samples per CPU second, bytes per sample in the log, bytes per sample sealed.
fn measure() -> (f64, f64, f64) {
    let dir = TempDir::new();
    let clock = Arc::new(FakeClock::new(START));
    let mut options = Options::new(dir.path());
    options.clock = clock.clone();
    // The whole hour in one log segment, so that its size is the log's cost.
    options.keep_memory = Duration::from_secs(2 * 3600);
    let store = Store::open(options).expect("the store opens");
    let seconds = if is_once() { HOUR_S / 6 } else { HOUR_S };

    let mut node = Node::new(1);
    let mut used = Duration::ZERO;
    for second in 0..seconds {
        let tick = node.tick(clock.utc());
        let before = cpu_time();
        store.tick(tick);
        // Every tick is written by itself, as it is when they come one a second.
        store
            .push(Input::Push, Vec::new())
            .expect("the writer answers");
        used += cpu_time() - before;
        clock.advance(Duration::from_secs(1));
        let _ = second;
    }
    let samples = node.series_count() as f64 * seconds as f64;
    let log_bytes = store.status().log_bytes as f64;
    clock.advance(Duration::from_secs(3 * 3600));
    store.settle();
    let block_bytes = store.status().block_bytes as f64;
    (
        samples / used.as_secs_f64() / 1e6,
        log_bytes / samples,
        block_bytes / samples,
    )
}
