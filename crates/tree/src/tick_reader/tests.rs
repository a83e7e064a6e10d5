use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Family, MetricKind, Point};
use pegel_store::StoreOptions;
use pegel_testkit::{FakeClock, TempDir};

use super::*;

const TICK: Millis = 1_700_006_400_000;

/// A store with points, and the values at a tick.
struct StoredPoints {
    _dir: TempDir,
    clock: Arc<FakeClock>,
    store: Store,
}

impl StoredPoints {
    fn new() -> StoredPoints {
        let dir = TempDir::new();
        let clock = Arc::new(FakeClock::new(TICK + 300));
        let mut options = StoreOptions::new(dir.join("store"));
        options.clock = clock.clone();
        let store = Store::open(options).expect("the store opens");
        StoredPoints {
            _dir: dir,
            clock,
            store,
        }
    }

    fn put(&self, name: &'static str, input: Input, time: Millis, value: f64) {
        let family = Family::new(name, MetricKind::Gauge, "", 1, "").of_input(input);
        let series = Arc::new(Series::new(Arc::new(family), &[]).expect("valid"));
        let point = Point {
            series,
            time,
            value,
        };
        self.store.push(input, vec![point]).expect("stored");
    }

    fn values(&self, tick: Millis) -> Vec<(String, f64)> {
        let mut reader = TickReader::new(self.store.clone(), Duration::from_millis(500));
        reader.read(tick, 1000).expect("read");
        let values = reader.values();
        let mut values: Vec<_> = values
            .map(|(series, value)| (series.text().to_owned(), value))
            .collect();
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values
    }
}

fn named(values: &[(&str, f64)]) -> Vec<(String, f64)> {
    let values = values.iter();
    values
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

#[test]
fn a_tick_has_the_newest_samples_up_to_a_tenth_of_the_interval_after_it() {
    let points = StoredPoints::new();
    for (name, times) in [
        ("a_at_the_tick", &[-1000, 0][..]),
        ("b_read_late", &[-1000, 80]),
        ("c_next_sample", &[-500, 200]),
        ("d_next_after_minutes", &[-120_000, 200]),
        ("e_new", &[200]),
        ("f_old", &[-400_000]),
    ] {
        for time in times {
            points.put(name, Input::Put, TICK + time, *time as f64);
        }
    }
    let expected = named(&[
        ("a_at_the_tick", 0.0),
        ("b_read_late", 80.0),
        ("c_next_sample", -500.0),
        ("d_next_after_minutes", -120_000.0),
    ]);
    assert_eq!(points.values(TICK), expected);

    // Computed again later, it is the same.
    points.clock.advance(Duration::from_secs(60));
    for name in ["a_at_the_tick", "b_read_late"] {
        points.put(name, Input::Put, TICK + 2000, 7.0);
    }
    let request = SelectRequest {
        start_ms: TICK,
        end_ms: TICK,
        step_ms: 1000,
        ..SelectRequest::default()
    };
    let interval = Duration::from_millis(500);
    let selected = select_partials(&points.store, interval, &request, Duration::from_secs(60));
    let selected = selected.expect("computed").into_iter().map(|series| {
        let cells = pegel_tree_protocol::decode_partials(&series.partials, 1).expect("valid");
        (series.text, cells[0].sum)
    });
    assert_eq!(selected.collect::<Vec<_>>(), expected);
}

#[test]
fn reduced_series_and_figures_of_the_tree_are_not_sent() {
    let points = StoredPoints::new();
    points.put("load", Input::Put, TICK, 1.0);
    points.put("load:sum", Input::Put, TICK, 2.0);
    points.put("reduced", Input::Tree, TICK, 3.0);
    points.put("pegel_tree_nodes", Input::Put, TICK, 4.0);
    assert_eq!(points.values(TICK), named(&[("load", 1.0)]));
}
