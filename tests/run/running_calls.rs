//! The time of a call that takes long is counted while it runs.

use std::collections::BTreeMap;
use std::time::Instant;

use pegel_lane::reader::LaneValue;
use pegel_testkit::{ChildProcess, TempDir, eventually_within, open_ready_lanes};

use crate::run_mode::{BOUND, RunMode, compile, pegel};

/// The calls that `waits.c` waits in, and how many threads do.
const CALLS: [(&str, f64); 3] = [("nanosleep", 2.0), (POLL, 1.0), ("read", 1.0)];
const POLL: &str = if cfg!(target_arch = "aarch64") {
    "ppoll"
} else {
    "poll"
};

/// Ways of counting that measure time, as options.
fn methods() -> Vec<&'static [&'static str]> {
    let mut methods: Vec<&[&str]> = vec![
        &["-s", "--method", "ptrace"],
        // Counts read only.
        &["-s", "--method", "seccomp", "--io-only"],
    ];
    if RunMode::counting().contains(&RunMode::Ebpf) {
        methods.push(&["-s", "--method", "ebpf"]);
    }
    methods
}

/// Returns the seconds of each call in the lanes.
fn seconds(home: &TempDir) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for lane in &mut open_ready_lanes(home.join("lanes")) {
        let mut buffer = Vec::new();
        let view = lane.read(&mut buffer).expect("readable");
        for (index, value) in view.iter() {
            let series = view.series(index).expect("described");
            let label = series.labels.first().map(|(_, call)| (*call).to_owned());
            if let (Some(LaneValue::Calls { nanos, .. }), Some(call)) = (value, label) {
                *sums.entry(call).or_insert(0.0) += nanos as f64 / 1e9;
            }
        }
    }
    sums
}

/// Takes readings until each call has grown by a second per thread, and checks that no counter ever
/// falls or runs ahead of the clock.
fn watch_growth(home: &TempDir, calls: &[(&str, f64)]) {
    let started = Instant::now();
    let mut before = BTreeMap::new();
    eventually_within(BOUND, "the counters grow while the program waits", || {
        let now = seconds(home);
        let elapsed = started.elapsed().as_secs_f64();
        for (call, seconds) in &before {
            assert!(
                now[call] >= *seconds,
                "{call} falls from {seconds} to {}",
                now[call]
            );
        }
        before = now.clone();
        let of = |call: &str| now.get(call).copied().unwrap_or(0.0);
        for (call, threads) in calls {
            // The program may have started some time before this loop.
            let limit = threads * (elapsed + 2.0);
            assert!(of(call) <= limit, "{call}: {} after {elapsed} s", of(call));
        }
        let has_grown = calls.iter().all(|(call, threads)| of(call) >= *threads);
        has_grown.then_some(()).ok_or(now)
    });
}

#[test]
fn time_grows_while_calls_run_and_ends_as_what_they_took() {
    for method in methods() {
        let home = TempDir::new();
        let Some(program) = compile(&home, "waits", &[]) else {
            return;
        };
        let go = home.join("go").display().to_string();
        let program = program.display().to_string();
        let args = [method, &["--report", "r.json", "--", &program, &go]].concat();
        let process = ChildProcess::start(&mut pegel(&home, &args));
        let calls = if method.contains(&"--io-only") {
            &CALLS[2..]
        } else {
            &CALLS[..]
        };
        watch_growth(&home, calls);
        std::fs::write(&go, "").expect("written");
        let finished = process.wait(BOUND);
        assert_eq!(finished.code(), Some(0), "{method:?}: {finished}");
        let taken: Vec<f64> = (finished.stdout.split_whitespace())
            .map(|word| word.parse::<f64>().expect("a number") / 1e9)
            .collect();
        let text = std::fs::read(home.join("r.json")).expect("written");
        let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let published = seconds(&home);
        for (call, _) in calls {
            let index = CALLS
                .iter()
                .position(|(name, _)| name == call)
                .expect("known");
            let reported = report["calls"].as_array().expect("a list").iter();
            let reported = reported.filter(|entry| entry["call"] == *call);
            let reported: f64 = reported
                .map(|entry| entry["seconds"].as_f64().expect("a number"))
                .sum();
            // The program measures around the call; other reads are those of the loader.
            let range = taken[index] - 0.1..taken[index] + 0.3;
            assert!(
                range.contains(&reported),
                "{method:?} {call}: {reported}, not {range:?}"
            );
            let difference = (published[*call] - reported).abs();
            assert!(
                difference < 0.02,
                "{method:?} {call}: {published:?}, not {reported}"
            );
        }
    }
}

#[test]
fn the_time_of_threads_that_end_inside_a_call_is_kept() {
    for method in methods() {
        let home = TempDir::new();
        let Some(program) = compile(&home, "waits", &[]) else {
            return;
        };
        let go = home.join("go").display().to_string();
        let program = program.display().to_string();
        let args = [
            method,
            &["--report", "r.json", "--", &program, &go, "endless"],
        ]
        .concat();
        let started = Instant::now();
        let process = ChildProcess::start(&mut pegel(&home, &args));
        let calls = if method.contains(&"--io-only") {
            &CALLS[2..]
        } else {
            &CALLS[..]
        };
        watch_growth(&home, calls);
        let before = seconds(&home);
        std::fs::write(&go, "").expect("written");
        let finished = process.wait(BOUND);
        let elapsed = started.elapsed().as_secs_f64();
        assert_eq!(finished.stdout, "ended\n", "{method:?}: {finished}");
        let text = std::fs::read(home.join("r.json")).expect("written");
        let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let after = seconds(&home);
        for (call, threads) in calls {
            assert!(after[*call] >= before[*call], "{method:?} {call}");
            assert!(
                after[*call] <= threads * elapsed,
                "{method:?} {call}: {after:?}"
            );
            let entries = report["calls"].as_array().expect("a list").iter();
            let entry = entries
                .clone()
                .find(|entry| entry["call"] == *call)
                .expect("listed");
            let reported = entry["seconds"].as_f64().expect("a number");
            assert!(
                (after[*call] - reported).abs() < 0.02,
                "{method:?}: {entry}, {after:?}"
            );
            // With ptrace, a call that did not return is not a hit; other reads are those of the
            // loader. In the kernel it returns with an error before the thread ends.
            let is_hit = *call == "read" || method.contains(&"ebpf");
            assert!(is_hit || entry["hits"] == 0, "{method:?}: {entry}");
        }
    }
}

#[test]
fn without_times_nothing_is_added() {
    if !RunMode::counting().contains(&RunMode::Ebpf) {
        return;
    }
    let home = TempDir::new();
    let Some(program) = compile(&home, "waits", &[]) else {
        return;
    };
    let go = home.join("go");
    std::fs::write(&go, "").expect("written");
    let mut command = pegel(&home, &["-s", "--method", "ebpf", "--no-time", "--"]);
    command.arg(&program).arg(&go);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let seconds = seconds(&home);
    assert!(seconds.contains_key("nanosleep"), "{seconds:?}");
    assert!(
        seconds.values().all(|seconds| *seconds == 0.0),
        "{seconds:?}"
    );
}
