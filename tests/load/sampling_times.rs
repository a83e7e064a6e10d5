//! Sampling times of a real agent: at every rate, and while the process is stopped.
//!
//! Steps of the clock are tested in `crates/agent/tests/agent/clock_steps.rs`: a test must not set
//! the machine's clock.

use std::time::Duration;

use pegel_testkit::{AgentProcess, ExporterReadings, StoredSamples, eventually, now_millis};
use rustix::process::Signal;

use crate::PEGEL;

fn start(rate_ms: i64) -> AgentProcess {
    let config = format!("rate: {rate_ms}ms\n");
    PEGEL.agent().config(&config).start()
}

/// The stored times and the agent's count of missed ones.
struct StoredTimes {
    /// The stored times, without that of the first pass.
    times: Vec<i64>,
    /// The number of nominal times up to the last one that were not stored.
    absent: u64,
    /// The same up to the sample before the last one.
    absent_before: u64,
    /// The count as of the last pass: what is missed while a pass runs is in the next one.
    missed: u64,
}

impl StoredTimes {
    fn read(agent: &AgentProcess, rate_ms: i64) -> StoredTimes {
        let mut times: Vec<i64> = StoredSamples::read(agent, "node_load1").times().collect();
        times.sort_unstable();
        let now = now_millis();
        assert!(
            times.iter().all(|time| *time <= now),
            "a sample in the future"
        );
        // Each pass has one sample of both, which may have been read at different times.
        let missed = eventually("a count for each sample", || {
            let missed = agent.samples("pegel_samples_missed_total");
            match missed.values().nth(times.len() - 1) {
                Some(missed) => Ok(missed as u64),
                None => Err(missed.len()),
            }
        });
        let first = times.remove(0);
        // A sample that was read on time carries its nominal time, another one the time of reading.
        let tolerance = (rate_ms / 100).max(1);
        let beside: Vec<i64> = times
            .iter()
            .map(|time| time % rate_ms)
            .filter(|late| (1..tolerance).contains(late))
            .collect();
        assert!(beside.is_empty(), "on time, but not nominal: {beside:?}");
        let nominal: Vec<i64> = times.iter().map(|time| time / rate_ms).collect();
        assert!(
            nominal.is_sorted_by(|a, b| a < b),
            "one nominal time twice: {times:?}"
        );
        let absent_at = |index: usize| {
            let due = nominal[index] - first.div_euclid(rate_ms);
            due as u64 - (index as u64 + 1)
        };
        let last = times.len() - 1;
        StoredTimes {
            absent: absent_at(last),
            absent_before: last.checked_sub(1).map_or(0, absent_at),
            missed,
            times,
        }
    }

    /// Checks that absent times were counted. Collectors that run every 5 s may have missed one of
    /// their own.
    fn assert_counted(&self, what: &str) {
        let StoredTimes {
            absent,
            absent_before,
            missed,
            ..
        } = self;
        assert!(
            (*absent_before..=absent + 2).contains(missed),
            "{what}: {absent_before} to {absent} absent, {missed} counted as missed"
        );
    }
}

fn assert_nothing_twice(agent: &AgentProcess) {
    let store = agent.status()["store"].clone();
    assert_eq!(
        (&store["duplicates"], &store["out_of_order"]),
        (&0.into(), &0.into()),
        "{store}"
    );
    let readings = ExporterReadings::parse_prometheus(agent.get("/metrics").text());
    assert_eq!(readings.value("pegel_clock_steps_total"), 0.0);
}

#[test]
fn a_suspended_agent_counts_every_missed_sample() {
    let _alone = crate::alone();
    let rate = 100;
    let agent = start(rate);
    eventually("it samples", || {
        let count = agent.samples("node_load1").len();
        if count > 5 { Ok(()) } else { Err(count) }
    });
    let before = StoredTimes::read(&agent, rate);
    agent.freeze();
    let stopped = now_millis();
    std::thread::sleep(Duration::from_secs(3));
    agent.signal(Signal::CONT);
    let continued = now_millis();
    let after = eventually("it goes on", || {
        let after = StoredTimes::read(&agent, rate);
        let count = after.times.iter().filter(|time| **time > continued).count();
        if count >= 10 { Ok(after) } else { Err(count) }
    });
    after.assert_counted("3 s without a processor");
    assert!(
        after.missed >= before.missed + 28,
        "{} missed",
        after.missed
    );
    // One pass replaces all missed ones, at the time of reading; then sampling is on time again.
    let during = after
        .times
        .iter()
        .filter(|time| stopped + rate < **time && **time < continued - rate);
    assert_eq!(during.count(), 0, "sampled while it stood still");
    assert!(before.times.iter().all(|time| after.times.contains(time)));
    assert_nothing_twice(&agent);
    agent.assert_conserved();
}

#[test]
fn at_every_rate_each_nominal_time_is_stored_once_or_counted_as_missed() {
    let _alone = crate::alone();
    for rate in [1_000, 100, 10, 1] {
        let agent = start(rate);
        let what = format!("every {rate} ms");
        eventually(&what, || match agent.samples("node_load1").len() {
            count if count >= 4 => Ok(()),
            count => Err(count),
        });
        let first = StoredTimes::read(&agent, rate).times[0];
        let record = eventually("two seconds of samples", || {
            let record = StoredTimes::read(&agent, rate);
            let span = record.times.last().expect("samples") - first;
            if span >= 2_000 { Ok(record) } else { Err(span) }
        });
        record.assert_counted(&what);
        assert_nothing_twice(&agent);
        agent.assert_conserved();
    }
}
