//! The sampler thread on the real clock.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::fixture;
use pegel_collect::{
    CollectSettings, CollectorSettings, CollectorState, Execution, REGISTRY, Sampler,
};
use pegel_config::SampleInterval;
use pegel_metric::{Clock, Ledger, Millis, SystemClock, Tick};

/// The time of a tick and the names of its groups.
type ReceivedTick = (Millis, Vec<String>);

fn start(settings: &CollectSettings) -> (Sampler, Receiver<ReceivedTick>) {
    let (sender, receiver) = channel();
    let sink = Box::new(move |tick: &mut Tick| {
        let groups = tick
            .rows()
            .iter()
            .map(|row| row.members.group.to_string())
            .collect();
        let _ = sender.send((tick.time, groups));
    });
    let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(SystemClock));
    let sampler = Sampler::start(
        settings,
        fixture("basic"),
        3,
        Vec::new(),
        ledger,
        clock,
        sink,
    );
    (sampler.expect("started"), receiver)
}

/// Takes all ticks that were received: their newest time and all of their groups. On a busy machine
/// the groups of one pass are read at different times.
fn received(seen: &Receiver<ReceivedTick>) -> ReceivedTick {
    let first = seen.try_recv().expect("a tick");
    seen.try_iter().fold(first, |mut all, (time, groups)| {
        all.0 = all.0.max(time);
        all.1.extend(groups);
        all
    })
}

/// Returns whether the tick contains every active inline collector.
fn is_complete(groups: &[String], sampler: &Sampler) -> bool {
    let inline = REGISTRY
        .iter()
        .filter(|entry| entry.execution == Execution::Inline);
    let status = sampler.status();
    let is_active = |name: &str| {
        let of_name = status.iter().find(|status| status.name == name);
        of_name.is_some_and(|status| status.state == CollectorState::Active)
    };
    let mut expected = inline.filter(|entry| is_active(entry.name)).peekable();
    assert!(expected.peek().is_some(), "{status:?}");
    expected.all(|entry| groups.iter().any(|group| group == entry.name))
}

#[test]
fn the_first_sample_is_taken_before_start_returns() {
    let settings = CollectSettings {
        rate: Duration::from_secs(3600),
        ..CollectSettings::default()
    };
    let before = SystemClock.utc();
    let (sampler, seen) = start(&settings);
    let (time, groups) = received(&seen);
    assert!(
        (before..=SystemClock.utc()).contains(&time),
        "it carries its own time"
    );
    assert!(is_complete(&groups, &sampler), "{groups:?}");
    assert!(groups.iter().any(|group| group == "vmstat"), "{groups:?}");
}

#[test]
fn times_are_multiples_and_one_tick_holds_all_that_are_due() {
    let mut settings = CollectSettings {
        rate: Duration::from_millis(20),
        ..CollectSettings::default()
    };
    let slower = CollectorSettings {
        enabled: None,
        rate: Some(SampleInterval::from_millis(60)),
    };
    settings.collectors.insert("memory".into(), slower);
    settings.collectors.insert(
        "vmstat".into(),
        CollectorSettings {
            enabled: Some(false),
            rate: None,
        },
    );
    let (mut sampler, seen) = start(&settings);
    let (_, groups) = received(&seen);
    assert!(is_complete(&groups, &sampler), "the first pass has all");
    assert!(
        !groups.iter().any(|group| group == "vmstat"),
        "switched off"
    );
    let (mut last, mut together) = (0, 0);
    // A stall separates the groups of a pass, so the test counts how often they coincide.
    for _ in 0..1_000 {
        let (time, groups) = seen.recv_timeout(Duration::from_secs(10)).expect("a tick");
        let has = |name: &str| groups.iter().any(|group| group == name);
        if has("cpu") {
            assert!(time / 20 > last, "{time}: nominal time {last} twice");
            last = time / 20;
        }
        let is_nominal = time % 20 == 0;
        if !is_nominal {
            continue;
        }
        assert!(!has("memory") || time % 60 == 0, "{time}: {groups:?}");
        together += usize::from(has("memory") && has("cpu"));
        if together == 5 {
            break;
        }
    }
    assert_eq!(together, 5);
    sampler.stop();
    assert!(sampler.status().iter().any(|status| status.cost > 0.0));
}

#[test]
fn stop_is_immediate_and_takes_a_last_sample() {
    let settings = CollectSettings {
        rate: Duration::from_secs(3600),
        ..CollectSettings::default()
    };
    // The thread wakes up once a second by itself. A loaded machine may be slow, but not every
    // time.
    let fastest = (0..5).map(|_| {
        let (mut sampler, seen) = start(&settings);
        let first = received(&seen);
        while SystemClock.utc() <= first.0 {
            std::thread::yield_now();
        }
        let asked = Instant::now();
        sampler.stop();
        let elapsed = asked.elapsed();
        let last = received(&seen);
        assert!(last.0 > first.0);
        assert!(is_complete(&last.1, &sampler), "{last:?}");
        sampler.stop();
        elapsed
    });
    let fastest = fastest.min().expect("five");
    assert!(fastest < Duration::from_millis(300), "{fastest:?}");
}

#[test]
fn one_sample_needs_no_thread() {
    let (sender, seen) = channel();
    let sink = Box::new(move |tick: &mut Tick| {
        let _ = sender.send((tick.time, tick.sample_count()));
    });
    let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(SystemClock));
    let settings = CollectSettings::default();
    let before = SystemClock.utc();
    let status = Sampler::sample_once(
        &settings,
        fixture("basic"),
        3,
        Vec::new(),
        ledger,
        clock,
        sink,
    )
    .expect("valid");
    let (time, samples) = seen.recv().expect("one tick");
    assert!((before..=SystemClock.utc()).contains(&time));
    assert_eq!(
        samples,
        status.iter().map(|status| status.series).sum::<u64>()
    );
    assert!(samples > 300);
    assert!(seen.try_recv().is_err());
}
