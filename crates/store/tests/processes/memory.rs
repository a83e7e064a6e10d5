//! An endless stream of new series. Its test runs in a process of its own, because the memory of
//! the process is measured.

#![allow(clippy::print_stderr)] // A failing test shows what it measured; a passing one does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{
    Clock, DropReason, Family, Input, MetricKind, Millis, Point, Selector, Series, SystemClock,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{TempDir, run_alone};

const OFFERED: u64 = 10_000_000;
const BATCH: u64 = 10_000;
const MIB: u64 = 1 << 20;

static FAMILY: Family = Family::new("requests_total", MetricKind::Counter, "", 1, "Requests.");

/// Returns the resident memory of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number") << 10
}

fn batch(family: &Arc<Family>, from: u64, time: Millis) -> Vec<Point> {
    (from..from + BATCH)
        .map(|n| {
            let id = format!("{n:08}-c0ffee");
            let series = Series::new(family.clone(), &[("id", &id), ("path", "/a/b/c")]);
            Point {
                series: Arc::new(series.expect("valid")),
                time,
                value: n as f64,
            }
        })
        .collect()
}

#[test]
fn ten_million_offered_series_do_not_increase_memory() {
    run_alone(|| {
        let dir = TempDir::new();
        // The defaults: 200,000 series and 256 MiB.
        let options = StoreOptions::new(dir.join("store"));
        let series_max = u64::from(options.limits.series.get());
        let memory_max = options.limits.memory.count();
        let store = Store::open(options).expect("the store opens");
        let family = Arc::new(FAMILY.clone());
        let before = resident();
        let (mut when_full, mut highest) = (0, 0);
        let begun = Instant::now();
        for from in (0..OFFERED).step_by(BATCH as usize) {
            let points = batch(&family, from, SystemClock.utc());
            let pushed = store.push(Input::Push, points).expect("taken");
            let expected = BATCH.min(series_max.saturating_sub(from));
            assert_eq!(pushed.kept, expected, "from {from}");
            assert!(
                pushed
                    .refused
                    .iter()
                    .all(|(_, reason)| *reason == DropReason::SeriesLimit)
            );
            assert_eq!(pushed.refused.len() as u64, BATCH - expected);
            if from + BATCH == series_max {
                // Includes writing a block: meanwhile its samples are in memory twice.
                store.flush_to_blocks();
                when_full = resident();
            }
            highest = resident().max(highest);
        }
        let took = begun.elapsed();
        let status = store.status();
        eprintln!(
            "{OFFERED} series in {took:?}: {} MiB before, {} when full, {} at most; {} MiB by its own measure",
            before / MIB,
            when_full / MIB,
            highest / MIB,
            status.memory_bytes / MIB
        );
        assert_eq!(status.series, series_max);
        let ledger = store.ledger();
        assert_eq!(ledger.received_total(Input::Push), OFFERED);
        assert_eq!(ledger.kept_total(Input::Push), series_max);
        let dropped = ledger.dropped_total(Input::Push, DropReason::SeriesLimit);
        assert_eq!(dropped, OFFERED - series_max);
        assert!(status.memory_bytes <= memory_max, "{status:?}");
        // Rejected series must not use memory: only the batch and its reply do, for a moment.
        assert!(highest <= memory_max, "{} MiB at most", highest / MIB);
        assert!(
            highest <= when_full + 8 * MIB,
            "memory kept growing: {} MiB",
            highest / MIB
        );

        // Known series are still accepted.
        let pushed = store.push(Input::Push, batch(&family, 0, SystemClock.utc() + 1));
        assert_eq!(pushed.expect("taken").kept, BATCH);
        let wanted = Selector::parse(r#"requests_total{id="00000007-c0ffee"}"#).expect("valid");
        let mut query = RangeQuery::new(wanted, Millis::MIN, Millis::MAX, None);
        query.deadline = Instant::now() + Duration::from_secs(60);
        let mut found = 0;
        let asked = store.query_range(&query, &mut |_, points| found += points.len());
        asked.expect("an answer");
        assert_eq!(found, 2);
    });
}
