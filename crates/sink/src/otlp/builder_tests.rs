//! Tests of the requests that are made from the current values of a real store.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, Point, STALE_NAN, Series};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{TempDir, now_millis};
use pegel_wire::otlp::messages::metrics::{Metric, metric::Data, number_data_point::Value};

use super::metric_builder::{MetricBuilder, OtlpExport};
use super::settings::OtlpSettings;

/// Name, labels and value.
type TestSample<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

struct BuilderFixture {
    _dir: TempDir,
    store: Store,
    builder: MetricBuilder,
    now: Millis,
}

impl BuilderFixture {
    fn new(settings: &OtlpSettings) -> BuilderFixture {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        BuilderFixture {
            _dir: dir,
            store,
            builder: MetricBuilder::new(settings, "nid7", "1.0"),
            now: now_millis() - 60_000,
        }
    }

    fn push(&self, second: i64, kind: MetricKind, samples: &[TestSample<'_>]) {
        let family = Arc::new(Family::new("", kind, "", 1, "").of_input(Input::Put));
        let points = samples.iter().map(|(name, labels, value)| Point {
            series: Arc::new(Series::named(family.clone(), name, labels).expect("valid")),
            time: self.now + second * 1000,
            value: *value,
        });
        let pushed = self.store.push(Input::Put, points.collect());
        assert!(pushed.expect("stored").refused.is_empty());
    }

    fn read(&mut self) -> OtlpExport {
        self.builder.read(&self.store, now_millis())
    }

    /// Returns a time in seconds since the first.
    fn second(&self, nanos: u64) -> i64 {
        (nanos as i64 / 1_000_000 - self.now) / 1000
    }
}

fn metrics(export: &OtlpExport) -> Vec<&Metric> {
    let requests = export.requests.iter();
    let resources = requests.flat_map(|(request, _)| &request.resource_metrics);
    let scopes = resources.flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics).collect()
}

#[test]
fn start_times_change_with_resets_and_ended_series_are_flagged() {
    let mut f = BuilderFixture::new(&OtlpSettings::default());
    let mut starts = Vec::new();
    for (second, value) in [(0, 5.0), (1, 7.0), (2, 3.0), (3, 4.0)] {
        f.push(
            second,
            MetricKind::Counter,
            &[("work_seconds_total", &[], value)],
        );
        let export = f.read();
        let found = metrics(&export);
        assert_eq!((found.len(), &*found[0].unit), (1, "s"));
        let Some(Data::Sum(sum)) = &found[0].data else {
            panic!("{found:?}")
        };
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(Value::AsDouble(value)));
        starts.push((
            f.second(point.start_time_unix_nano),
            f.second(point.time_unix_nano),
        ));
    }
    assert_eq!(starts, [(0, 0), (0, 1), (1, 2), (1, 3)]);
    assert!(f.read().requests.is_empty(), "nothing new");
    f.push(
        4,
        MetricKind::Counter,
        &[("work_seconds_total", &[], STALE_NAN)],
    );
    let export = f.read();
    let found = metrics(&export);
    let Some(Data::Sum(sum)) = &found[0].data else {
        panic!("{found:?}")
    };
    assert_eq!(
        (sum.data_points[0].flags, &sum.data_points[0].value),
        (1, &None)
    );
    assert!(f.read().requests.is_empty(), "it ended once");
}

#[test]
fn parts_of_histograms_are_put_together_and_others_are_not() {
    let mut f = BuilderFixture::new(&OtlpSettings::default());
    f.push(
        0,
        MetricKind::Counter,
        &[
            ("h_bucket", &[("a", "1"), ("le", "+Inf")], 6.0),
            ("h_bucket", &[("a", "1"), ("le", "0.5")], 2.0),
            ("h_bucket", &[("a", "1"), ("le", "10")], 5.0),
            ("h_count", &[("a", "1")], 6.0),
            ("h_sum", &[("a", "1")], 9.5),
            // Without a count, and with counts that fall.
            ("x_bucket", &[("le", "+Inf")], 1.0),
            ("y_bucket", &[("le", "1")], 7.0),
            ("y_bucket", &[("le", "+Inf")], 6.0),
            ("y_count", &[], 6.0),
            ("z_count", &[], 1.0),
        ],
    );
    let export = f.read();
    let names: Vec<(&str, bool)> = metrics(&export)
        .into_iter()
        .map(|metric| {
            (
                &*metric.name,
                matches!(metric.data, Some(Data::Histogram(_))),
            )
        })
        .collect();
    let expected = [
        ("x_bucket", false),
        ("y_bucket", false),
        ("y_count", false),
        ("z_count", false),
        ("h", true),
    ];
    assert_eq!(names, expected);
    let found = metrics(&export);
    let Some(Data::Histogram(histogram)) = &found[4].data else {
        panic!("{found:?}")
    };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum), (6, Some(9.5)));
    assert_eq!(point.explicit_bounds, [0.5, 10.0]);
    assert_eq!(point.bucket_counts, [2, 3, 1]);
    assert_eq!(point.attributes.len(), 1, "le is not an attribute");
}

#[test]
fn a_histogram_starts_again_when_it_is_reset_and_not_with_a_new_bucket() {
    let mut f = BuilderFixture::new(&OtlpSettings::default());
    let mut starts = Vec::new();
    for (second, low, middle, all, sum) in [
        (0, 1.0, None, 2.0, 5.0),
        // The sum falls with a negative value.
        (1, 2.0, Some(2.0), 3.0, 4.0),
        (2, 0.0, Some(1.0), 1.0, 1.0),
        (3, 1.0, Some(2.0), 2.0, 2.0),
    ] {
        let parts: [TestSample<'_>; 4] = [
            ("h_bucket", &[("le", "1")], low),
            ("h_bucket", &[("le", "+Inf")], all),
            ("h_sum", &[], sum),
            ("h_count", &[], all),
        ];
        f.push(second, MetricKind::Counter, &parts);
        if let Some(value) = middle {
            let part = ("h_bucket", &[("le", "2")][..], value);
            f.push(second, MetricKind::Counter, &[part]);
        }
        let export = f.read();
        let found = metrics(&export);
        let Some(Data::Histogram(histogram)) = &found[0].data else {
            panic!("{found:?}")
        };
        let point = &histogram.data_points[0];
        starts.push((
            f.second(point.start_time_unix_nano),
            f.second(point.time_unix_nano),
        ));
    }
    assert_eq!(starts, [(0, 0), (0, 1), (1, 2), (1, 3)]);
}

#[test]
fn requests_are_bounded_and_values_that_are_not_numbers_counted() {
    let settings = OtlpSettings {
        names: vec!["m*".to_owned()],
        except: vec!["m_secret".to_owned()],
        ..OtlpSettings::default()
    };
    let mut f = BuilderFixture::new(&settings);
    for first in [0, 1000, 2000, 3000] {
        let names: Vec<String> = (first..first + 1000).map(|n| n.to_string()).collect();
        let labels: Vec<[(&str, &str); 1]> = names.iter().map(|n| [("n", n.as_str())]).collect();
        let samples: Vec<_> = labels
            .iter()
            .map(|labels| ("m", &labels[..], 1.0))
            .collect();
        f.push(0, MetricKind::Gauge, &samples);
    }
    let others = [
        ("m_bad", &[][..], f64::NAN),
        ("m_secret", &[], 1.0),
        ("other", &[], 1.0),
    ];
    f.push(0, MetricKind::Gauge, &others);
    let export = f.read();
    let counts: Vec<u64> = export.requests.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2000, 2000]);
    assert_eq!(export.unsuitable, 1);
    assert!(metrics(&export).iter().all(|metric| metric.name == "m"));
}
