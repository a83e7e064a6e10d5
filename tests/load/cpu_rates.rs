//! Rates of a real agent on a machine without an idle core, that often wakes up late.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, eventually};
use rustix::process::Signal;
use serde_json::Value;

use crate::PEGEL;

/// One tick of `/proc/stat`, in seconds.
const JIFFY: f64 = 0.01;
/// Samples between the first and the last one.
const SAMPLES: usize = 16;
/// How long the agent stands still, and runs in between. No divisor of its interval.
const DELAY: Duration = Duration::from_millis(290);

/// The total of all modes of the first CPU, by time in seconds. Modes of one CPU are one group, so
/// they have the same times.
fn cpu_totals(answer: &Value) -> (usize, Vec<(f64, f64)>) {
    let modes = answer.as_array().expect("a list");
    let mut totals: Vec<(f64, f64)> = Vec::new();
    for mode in modes {
        let points = mode["points"].as_array().expect("points");
        let points = points.iter().map(|point| {
            let number = |at: usize| point[at].as_f64().expect("a number");
            (number(0) / 1000.0, number(1))
        });
        if totals.is_empty() {
            totals = points.collect();
            continue;
        }
        for ((time, total), (other_time, value)) in totals.iter_mut().zip(points) {
            assert!(
                (*time - other_time).abs() < 1e-9,
                "times of one group differ"
            );
            *total += value;
        }
    }
    (modes.len(), totals)
}

#[test]
fn the_modes_of_a_cpu_add_up_to_a_cpu_while_all_cores_are_busy() {
    let _alone = crate::alone();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let loops: Vec<ChildProcess> = (0..4 * cores)
        .map(|_| ChildProcess::start(Command::new("sh").args(["-c", "while :; do :; done"])))
        .collect();
    let agent = PEGEL.agent().start();
    let path = "/api/v1/range?match=node_cpu_seconds_total%7Bcpu=%220%22%7D&start=-2m";
    let (modes, totals) = eventually("enough samples", || {
        // On a busy machine the scheduler delays the agent now and then; this delays every second
        // pass or so.
        agent.freeze();
        std::thread::sleep(DELAY);
        agent.signal(Signal::CONT);
        std::thread::sleep(DELAY);
        let (modes, totals) = cpu_totals(&agent.get(path).json());
        let count = totals.len();
        if count > SAMPLES {
            Ok((modes, totals))
        } else {
            Err(count)
        }
    });
    drop(loops);
    assert!(modes >= 8, "{modes} modes");
    for (first, (start, from)) in totals.iter().enumerate() {
        for (end, to) in &totals[first + 1..] {
            let elapsed = end - start;
            let sum = (to - from) / elapsed;
            let tolerance = 0.02 + modes as f64 * JIFFY / elapsed;
            assert!(
                (sum - 1.0).abs() <= tolerance,
                "the modes add up to {sum:.3} s/s over {elapsed:.3} s: {totals:?}"
            );
        }
    }
    let is_late = |time: f64| time % 0.5 > 0.006 && time % 0.5 < 0.499;
    let late = totals.iter().filter(|(time, _)| is_late(*time)).count();
    assert!(late > 2, "the samples were not late: {totals:?}");
}
