//! The samples of the scenario: one hour of the simulated node at 1 Hz and, every ten seconds, one
//! hour of a histogram and ten minutes of many counters. All are tick groups, as the agent samples
//! them.

use std::sync::Arc;

use pegel_bench::RecordedHour;
use pegel_metric::{Family, Input, MetricKind, Millis, SampleGroup, Selector, Slot, Tick};
use pegel_testkit::Rng;

pub(crate) const STEP_MS: Millis = 10_000;
/// The range of the many counters: the last ten minutes of the hour.
pub(crate) const WIDE_MS: Millis = 600_000;
pub(crate) const WIDE_SERIES: usize = 10_000;

const HANDLERS: usize = 50;
const BUCKETS: [&str; 12] = [
    "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf",
];

/// The names of the families; the rest of the hour is the simulated node.
pub(crate) const WIDE: &str = "bench_messages_total";
pub(crate) const HISTOGRAM: &str = "bench_request_seconds_bucket";

/// Records the hour that begins at `start`.
pub(crate) fn record(start: Millis) -> RecordedHour {
    let mut rng = Rng::new(2);
    let mut wide = wide_counters();
    let mut histogram = histogram();
    let mut tick = Tick::new(Input::Collect);
    RecordedHour::record_beside(start, move |store, time| {
        if time % STEP_MS != 0 {
            return;
        }
        tick.reset(time);
        histogram.advance(&mut rng, &mut tick);
        if time >= start + RecordedHour::length_ms() - WIDE_MS {
            wide.advance(&mut rng, &mut tick);
        }
        store.tick(&mut tick);
    })
}

/// Returns the selectors of the parts in which the samples are exported.
pub(crate) fn parts() -> [Selector; 3] {
    let is_node = |series: &pegel_metric::Series| !series.name().starts_with("bench_");
    [
        Selector::filter(is_node),
        Selector::name(WIDE),
        Selector::name(HISTOGRAM),
    ]
}

/// Counters in one group. Those of a set are cumulative: each counts what the one before counts,
/// and more.
struct CounterGroup {
    group: SampleGroup,
    sets: Vec<Vec<(Slot, f64)>>,
}

impl CounterGroup {
    fn advance(&mut self, rng: &mut Rng, tick: &mut Tick) {
        self.group.clear();
        for set in &mut self.sets {
            let mut increase = 0.0;
            for (slot, value) in set {
                increase += rng.below(50) as f64;
                *value += increase;
                self.group.set(*slot, *value);
            }
        }
        self.group.append_to(tick);
    }
}

fn wide_counters() -> CounterGroup {
    let family = counter(WIDE);
    let mut group = SampleGroup::new("bench_wide", 3, 60_000);
    let sets = (0..WIDE_SERIES).map(|number| {
        let (rank, queue) = ((number / 10).to_string(), (number % 10).to_string());
        let labels = [("queue", queue.as_str()), ("rank", rank.as_str())];
        vec![(group.declare(&family, &labels).expect("valid"), 0.0)]
    });
    CounterGroup {
        sets: sets.collect(),
        group,
    }
}

fn histogram() -> CounterGroup {
    let family = counter(HISTOGRAM);
    let mut group = SampleGroup::new("bench_histogram", 3, 60_000);
    let sets = (0..HANDLERS).map(|number| {
        let handler = format!("/handler/{number}");
        let bucket = |le: &&str| {
            let labels = [("handler", handler.as_str()), ("le", *le)];
            (group.declare(&family, &labels).expect("valid"), 0.0)
        };
        BUCKETS.iter().map(bucket).collect()
    });
    CounterGroup {
        sets: sets.collect(),
        group,
    }
}

fn counter(name: &str) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        input: Input::Collect,
        ..Family::new("", MetricKind::Counter, "", 2, "Simulated.")
    })
}
