//! Requests against a real store: totals, resets, ended series, limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use pegel_config::ByteSize;
use pegel_metric::{DropReason, Input, Ledger, Millis, Selector, is_stale};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::{TempDir, now_millis};
use serde_json::{Value, json};

use super::*;
use crate::admission::{AdmissionSettings, SenderLimits};

struct OtlpFixture {
    dir: TempDir,
    store: Store,
    writer: OtlpWriter,
    now: Millis,
}

fn writer(store: &Store, limits: SenderLimits) -> OtlpWriter {
    let settings = AdmissionSettings {
        senders: limits,
        ..AdmissionSettings::for_tests()
    };
    let admission = Arc::new(Admission::new(settings, store.ledger().clone()));
    OtlpWriter::new(admission, store.clone(), OtlpInputSettings::default())
}

impl OtlpFixture {
    fn new() -> OtlpFixture {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        OtlpFixture {
            writer: writer(&store, SenderLimits::default()),
            store,
            dir,
            now: now_millis() - 60_000,
        }
    }

    /// Ends this writer and its store, and starts others on the same directory.
    fn restart(self) -> OtlpFixture {
        let OtlpFixture {
            dir,
            store,
            writer: old,
            now,
        } = self;
        drop(old);
        store.close();
        drop(store);
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        OtlpFixture {
            writer: writer(&store, SenderLimits::default()),
            store,
            dir,
            now,
        }
    }

    fn write(&self, message: &Value) -> Result<OtlpResult, OtlpWriteError> {
        self.write_as("uid 0", message)
    }

    fn write_as(&self, who: &str, message: &Value) -> Result<OtlpResult, OtlpWriteError> {
        let sender = self.writer.admission.sender(Input::Otlp, who);
        let body = message.to_string();
        let message = OtlpMessage::Json(body.as_bytes());
        self.writer.write(&sender, message, self.now + 60_000)
    }

    #[track_caller]
    fn send(&self, metrics: Value) {
        let result = self.write(&request(metrics)).expect("written");
        assert!(result.refused.is_empty(), "{}", result.refused);
        assert_eq!(result.rejected_points, 0);
    }

    /// Returns the nanoseconds of a time, as JSON has them.
    fn at(&self, second: i64) -> String {
        format!("{}000000", self.now + second * 1000)
    }

    /// Returns all samples: times in milliseconds since the first second, NaN for ended series.
    fn stored(&self) -> BTreeMap<String, Vec<(Millis, f64)>> {
        let mut found = BTreeMap::new();
        let query = RangeQuery::new(Selector::all(), 0, Millis::MAX, None);
        let visited = self.store.query_range(&query, &mut |series, points| {
            let points = points.iter().map(|(time, value)| (time - self.now, *value));
            found.insert(series.text().to_owned(), points.collect());
        });
        visited.expect("read");
        found
    }

    /// Returns the values of one series.
    #[track_caller]
    fn values(&self, series: &str) -> Vec<f64> {
        let stored = self.stored();
        let points = stored.get(series).unwrap_or_else(|| panic!("{stored:#?}"));
        points.iter().map(|(_, value)| *value).collect()
    }

    fn assert_conserved(&self) {
        let ledger: &Ledger = self.store.ledger();
        let reasons = DropReason::ALL.iter();
        let dropped: u64 = reasons
            .map(|reason| ledger.dropped_total(Input::Otlp, *reason))
            .sum();
        let kept = ledger.kept_total(Input::Otlp);
        assert_eq!(ledger.received_total(Input::Otlp), kept + dropped);
    }
}

fn request(metrics: Value) -> Value {
    json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
}

fn sum(name: &str, temporality: u8, point: Value) -> Value {
    json!([{"name": name, "sum": {
        "aggregationTemporality": temporality, "isMonotonic": true, "dataPoints": [point],
    }}])
}

fn delta(f: &OtlpFixture, from: i64, to: i64, value: f64) -> Value {
    let point =
        json!({"startTimeUnixNano": f.at(from), "timeUnixNano": f.at(to), "asDouble": value});
    sum("work", 1, point)
}

#[test]
fn increases_are_added_up_and_repetitions_are_not() {
    let f = OtlpFixture::new();
    f.send(delta(&f, 0, 1, 5.0));
    f.send(delta(&f, 1, 2, 2.0));
    f.send(delta(&f, 1, 2, 2.0));
    // Another process with the same labels, whose times are a little earlier.
    f.send(delta(&f, 0, 1, 10.0));
    f.send(delta(&f, -1, 1, 10.0));
    assert_eq!(
        f.stored()["work_total"],
        [(1000, 5.0), (2000, 17.0)],
        "a total never falls"
    );
    let status = f.writer.status();
    assert_eq!((status.requests, status.repeated, status.totals), (5, 2, 1));
    f.assert_conserved();
}

#[test]
fn totals_continue_after_a_restart() {
    let f = OtlpFixture::new();
    f.send(delta(&f, 0, 1, 5.0));
    let histogram = |f: &OtlpFixture, from: i64, bounds: Value, counts: Value| {
        json!([{"name": "h", "histogram": {"aggregationTemporality": 1, "dataPoints": [{
            "startTimeUnixNano": f.at(from), "timeUnixNano": f.at(from + 1),
            "count": 3, "sum": 1.5, "explicitBounds": bounds, "bucketCounts": counts,
        }]}}])
    };
    f.send(histogram(&f, 0, json!([1]), json!([1, 2])));
    let f = f.restart();
    // Sent before the restart, and sent again because the answer was lost.
    f.send(delta(&f, 0, 1, 5.0));
    f.send(delta(&f, 1, 2, 1.0));
    f.send(histogram(&f, 1, json!([1]), json!([1, 2])));
    assert_eq!(f.values("work_total"), [5.0, 6.0]);
    assert_eq!(f.values("h_count"), [3.0, 6.0]);
    assert_eq!(f.values("h_sum"), [1.5, 3.0]);
    assert_eq!(f.values("h_bucket{le=\"1\"}"), [1.0, 2.0]);
    let f = f.restart();
    // Other bounds: all buckets begin at zero, which readers see as a reset.
    f.send(histogram(&f, 4, json!([2]), json!([1, 2])));
    assert_eq!(f.values("h_count"), [3.0, 6.0, 0.0, 3.0]);
    assert_eq!(f.values("h_bucket{le=\"2\"}"), [0.0, 1.0]);
    f.assert_conserved();
}

#[test]
fn increases_without_times_are_all_added() {
    let f = OtlpFixture::new();
    for value in [5.0, 2.0, 2.0] {
        f.send(sum("work", 1, json!({"asDouble": value})));
    }
    assert_eq!(f.values("work_total"), [9.0]);
    assert_eq!(f.writer.status().repeated, 0);
    f.assert_conserved();
}

#[test]
fn totals_of_exponential_histograms_continue_after_a_restart_and_a_pause() {
    let f = OtlpFixture::new();
    let increase = |f: &OtlpFixture, to: i64, offset: i32, negative: u64| {
        request(json!([{"name": "d", "exponentialHistogram": {
        "aggregationTemporality": 1, "dataPoints": [{
            "startTimeUnixNano": f.at(to - 1), "timeUnixNano": f.at(to), "scale": 3,
            "count": 3 + negative, "sum": 1.5, "zeroCount": 1,
            "attributes": [{"key": "le", "value": {"stringValue": "own"}}],
            "positive": {"offset": offset, "bucketCounts": [2]},
            "negative": {"offset": 8, "bucketCounts": [negative]},
        }]}}]))
    };
    let series = |part: &str, bound: &str| format!("d_{part}{{exported_le=\"own\"{bound}}}");
    let send = |f: &OtlpFixture, message: &Value, now: Millis| {
        let sender = f.writer.admission.sender(Input::Otlp, "uid 0");
        let body = message.to_string();
        let written = f
            .writer
            .write(&sender, OtlpMessage::Json(body.as_bytes()), now);
        let written = written.expect("written");
        assert!(written.refused.is_empty(), "{}", written.refused);
    };
    // One zero, two values up to 2, and one from -2.2 to -2.
    send(&f, &increase(&f, 1, 7, 1), f.now + 60_000);
    let f = f.restart();
    // Sent before the restart, and sent again because the answer was lost.
    send(&f, &increase(&f, 1, 7, 1), f.now + 60_000);
    send(&f, &increase(&f, 2, 15, 0), f.now + 60_000);
    // A pause of ten minutes.
    send(&f, &increase(&f, 3, 7, 0), f.now + 660_000);
    let stored = f.stored();
    let count = [(0, 0.0), (1000, 4.0), (2000, 7.0), (3000, 10.0)];
    assert_eq!(stored[&series("count", "")], count, "{stored:#?}");
    let sum = [(0, 0.0), (1000, 1.5), (2000, 3.0), (3000, 4.5)];
    assert_eq!(stored[&series("sum", "")], sum);
    for (bound, values) in [
        ("-2", &[0.0, 1.0, 1.0, 1.0][..]),
        ("0", &[0.0, 2.0, 3.0, 4.0]),
        ("2", &[0.0, 4.0, 5.0, 8.0]),
        ("4", &[7.0, 10.0]),
        ("+Inf", &[0.0, 4.0, 7.0, 10.0]),
    ] {
        let bound = format!(",le=\"{bound}\"");
        assert_eq!(f.values(&series("bucket", &bound)), values, "{bound}");
    }
    assert_eq!(f.writer.status().repeated, 6);
    f.assert_conserved();
}

#[test]
fn a_start_before_the_retention_is_not_stored() {
    let f = OtlpFixture::new();
    f.send(json!([{"name": "d", "exponentialHistogram": {
    "aggregationTemporality": 1, "dataPoints": [{
        "startTimeUnixNano": "1", "timeUnixNano": f.at(1), "count": 1, "sum": 1,
        "positive": {"bucketCounts": [1]},
    }]}}]));
    assert_eq!(f.values("d_count"), [1.0]);
    f.assert_conserved();
}

#[test]
fn names_and_labels_of_any_length_are_refused_in_short_messages() {
    let f = OtlpFixture::new();
    let long = "x".repeat(40_000);
    let gauge = |name: &str| json!({"name": name, "gauge": {"dataPoints": [{"asInt": 1}]}});
    let attribute = json!([{"key": "a", "value": {"stringValue": long}}]);
    let message = json!({"resourceMetrics": [
        {"scopeMetrics": [{"metrics": [gauge(&long), gauge("good")]}]},
        {"resource": {"attributes": attribute}, "scopeMetrics": [{"metrics": [gauge("bad")]}]},
        {"scopeMetrics": [{"scope": {"name": long}, "metrics": [gauge("bad")]}]},
    ]});
    let result = f.write(&message).expect("written");
    assert_eq!((result.kept, result.rejected_points), (1, 3));
    let refused = result.refused.to_string();
    assert!(refused.len() < 2000, "{refused}");
    let message = json!({"resourceMetrics": [
        {"resource": {"attributes": attribute}, "scopeMetrics": [{"metrics": [gauge("bad")]}]},
    ]});
    let refused = f.write(&message).expect("written").refused.to_string();
    let expected = "1 bad_name (bad: name and labels have 40001 bytes; at most 16384 are accepted)";
    assert_eq!(refused, expected);
    f.assert_conserved();
}

#[test]
fn a_short_request_costs_little_however_many_points_it_has() {
    let f = OtlpFixture::new();
    let with_points = |label_bytes: usize, points: usize, point: &Value| {
        let label = "x".repeat(label_bytes);
        let points: Vec<&Value> = std::iter::repeat_n(point, points).collect();
        let message = json!({"resourceMetrics": [{
            "resource": {"attributes": [{"key": "a", "value": {"stringValue": label}}]},
            "scopeMetrics": [{"metrics": [{"name": "m", "gauge": {"dataPoints": points}}]}],
        }]});
        f.write(&message).map_err(|error| error.to_string())
    };
    // Points that are refused count as well.
    let empty = json!({});
    let refused = with_points(1, SAMPLES_MAX, &empty).expect("written");
    assert_eq!(refused.rejected_points, SAMPLES_MAX as u64);
    let many = with_points(1, SAMPLES_MAX + 1, &empty);
    assert_eq!(many.expect_err("too many"), "more than 100000 samples");
    // So do the labels that they share.
    let valid = json!({"asInt": 1});
    let long = with_points(16_000, 9_000, &valid).expect_err("too much text");
    assert_eq!(long, "more than 134217728 bytes of names and labels");
    assert!(with_points(16_000, 100, &valid).is_ok());
    // Longer than any series: refused by their length, however many.
    let refused = with_points(20_000, 9_000, &valid).expect("written");
    assert_eq!((refused.kept, refused.rejected_points), (0, 9_000));
    f.assert_conserved();
}

#[test]
fn requests_are_read_while_another_changes_the_totals() {
    let f = OtlpFixture::new();
    let (send, results) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let another = f.writer.streams.lock();
        threads.spawn(|| {
            let broken = json!({"resourceMetrics": [{"scopeMetrics": 7}]});
            let _ = send.send(f.write(&broken).is_err());
            let _ = send.send(f.write(&request(delta(&f, 0, 1, 5.0))).is_ok());
        });
        let time = std::time::Duration::from_secs(30);
        assert_eq!(results.recv_timeout(time), Ok(true), "does not wait");
        // Its series is known before it waits for its turn.
        let sender = f.writer.admission.sender(Input::Otlp, "uid 0");
        pegel_testkit::eventually("the series is admitted", || match sender.series() {
            1 => Ok(()),
            count => Err(count),
        });
        assert!(results.try_recv().is_err(), "waits for its turn");
        drop(another);
        assert_eq!(results.recv_timeout(time), Ok(true));
    });
    assert_eq!(f.values("work_total"), [5.0]);
}

#[test]
fn a_failed_request_changes_no_total() {
    let f = OtlpFixture::new();
    f.send(delta(&f, 0, 1, 5.0));
    let mut broken = request(delta(&f, 1, 2, 3.0));
    broken["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": 7}));
    assert!(matches!(
        f.write(&broken),
        Err(OtlpWriteError::Malformed(_))
    ));
    f.send(delta(&f, 1, 2, 3.0));
    assert_eq!(f.values("work_total"), [5.0, 8.0]);
    f.store.close();
    let closed = f.write(&request(delta(&f, 2, 3, 1.0)));
    assert!(matches!(closed, Err(OtlpWriteError::Store(_))));
    f.assert_conserved();
}

#[test]
fn a_sender_beyond_its_rate_can_send_the_same_again() {
    let f = OtlpFixture::new();
    let limits = SenderLimits {
        sender_bytes: Some(ByteSize::bytes(1)),
        ..SenderLimits::default()
    };
    let f = OtlpFixture {
        writer: writer(&f.store, limits),
        ..f
    };
    let mut second = 0;
    let refused = loop {
        let message = request(delta(&f, second, second + 1, 1.0));
        let result = f.write_as("uid 12345", &message).expect("written");
        if !result.refused.is_empty() {
            break result;
        }
        second += 1;
        assert!(second < 1000, "never refused");
    };
    assert!(refused.refused.is_temporary() && refused.kept == 0);
    assert_eq!(refused.rejected_points, 1);
    f.writer.admission.senders().refill(f.now);
    f.writer.admission.senders().refill(f.now + 600_000);
    let again = request(delta(&f, second, second + 1, 1.0));
    let again = f.write_as("uid 12345", &again).expect("written");
    assert_eq!(again.kept, 1);
    let stored = f.stored();
    let (_, points) = stored.first_key_value().expect("stored");
    assert_eq!(points.last().expect("a sample").1, (second + 1) as f64);
    f.assert_conserved();
}

#[test]
fn a_reset_that_values_do_not_show_is_stored_as_zero() {
    let f = OtlpFixture::new();
    let total = |start: i64, time: i64, value: f64| {
        let point = json!({"startTimeUnixNano": f.at(start), "timeUnixNano": f.at(time), "asDouble": value});
        f.send(sum("work", 2, point));
    };
    total(0, 1, 5.0);
    total(0, 2, 6.0);
    total(3, 4, 8.0);
    total(5, 6, 1.0);
    let expected = [
        (1000, 5.0),
        (2000, 6.0),
        (3000, 0.0),
        (4000, 8.0),
        (6000, 1.0),
    ];
    assert_eq!(f.stored()["work_total"], expected);
    assert_eq!(f.writer.status().resets, 1);
}

#[test]
fn series_end_when_their_point_has_no_value_or_their_bound_is_gone() {
    let f = OtlpFixture::new();
    let histogram = |second: i64, bounds: Value, counts: Value, flags: u8| {
        f.send(
            json!([{"name": "h", "histogram": {"aggregationTemporality": 2, "dataPoints": [{
                "startTimeUnixNano": f.at(0), "timeUnixNano": f.at(second), "count": 3,
                "explicitBounds": bounds, "bucketCounts": counts, "flags": flags,
            }]}}]),
        );
    };
    histogram(1, json!([1, 2]), json!([1, 1, 1]), 0);
    histogram(2, json!([2, 4]), json!([2, 1, 0]), 0);
    histogram(3, json!([]), json!([]), 1);
    let last = |series: &str| f.values(series).last().copied().expect("a sample");
    assert!(is_stale(last("h_bucket{le=\"1\"}")));
    assert_eq!(f.stored()["h_bucket{le=\"1\"}"].len(), 2, "it ended once");
    for series in [
        "h_count",
        "h_bucket{le=\"2\"}",
        "h_bucket{le=\"4\"}",
        "h_bucket{le=\"+Inf\"}",
    ] {
        assert!(is_stale(last(series)), "{series}");
    }
    // What the new bucket would have counted at the time of the first point.
    assert_eq!(
        f.stored()["h_bucket{le=\"4\"}"][..2],
        [(1000, 2.0), (2000, 3.0)]
    );
}

#[test]
fn exponential_histograms_of_both_kinds_have_exact_counts() {
    let f = OtlpFixture::new();
    let send =
        |name: &str, temporality: u8, second: i64, offset: i32, counts: Value, count: u64| {
            let start = if temporality == 1 { second - 1 } else { 0 };
            f.send(json!([{"name": name, "exponentialHistogram": {
        "aggregationTemporality": temporality, "dataPoints": [{
            "startTimeUnixNano": f.at(start), "timeUnixNano": f.at(second), "scale": 3,
            "count": count, "sum": count, "positive": {"offset": offset, "bucketCounts": counts},
        }]}}]));
        };
    // Three values up to 2, then one up to 4 in addition.
    send("c", 2, 1, 7, json!([3]), 3);
    send("c", 2, 2, 7, json!([3, 0, 0, 0, 0, 0, 0, 0, 1]), 4);
    send("d", 1, 1, 7, json!([3]), 3);
    send("d", 1, 2, 15, json!([1]), 1);
    for name in ["c", "d"] {
        let series = |part: &str| format!("{name}_{part}");
        let last = |part: &str| f.values(&series(part)).last().copied();
        assert_eq!(last("count"), Some(4.0), "{name}");
        assert_eq!(last("sum"), Some(4.0));
        assert_eq!(last("bucket{le=\"2\"}"), Some(3.0));
        assert_eq!(last("bucket{le=\"4\"}"), Some(4.0));
        assert_eq!(last("bucket{le=\"+Inf\"}"), Some(4.0));
        // The second bucket appeared with the second point.
        assert_eq!(f.stored()[&series("bucket{le=\"4\"}")][0], (1000, 3.0));
    }
    assert_eq!(f.stored()["d_count"], [(0, 0.0), (1000, 3.0), (2000, 4.0)]);
    f.assert_conserved();
}

#[test]
fn summaries_and_gauges_are_stored_and_what_is_wrong_is_counted() {
    let f = OtlpFixture::new();
    let time = f.at(1);
    let result = f.write(&request(json!([
        {"name": "s", "description": "Sizes.", "unit": "By", "summary": {"dataPoints": [{
            "timeUnixNano": time, "count": 3, "sum": 1.5,
            "quantileValues": [{"quantile": 0.5, "value": 0.25}, {"quantile": 1, "value": "NaN"}],
        }]}},
        {"name": "g", "gauge": {"dataPoints": [
            {"timeUnixNano": time, "asInt": "-3", "exemplars": [{}]},
            {"timeUnixNano": time, "attributes": [{"key": "a", "value": {"stringValue": "nan"}}], "asDouble": "NaN"},
            {"timeUnixNano": time, "attributes": [{"key": "a", "value": {"stringValue": "none"}}]},
            {"timeUnixNano": "1", "asInt": 1},
            {"timeUnixNano": format!("{}000000", f.now + 3_600_000), "asInt": 1},
        ]}},
        {"name": "", "gauge": {"dataPoints": [{"asInt": 1}]}},
        {"name": "x", "sum": {"dataPoints": [{"asInt": 1}]}},
        {"name": "h", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": time, "count": 1, "sum": "Infinity", "explicitBounds": [1], "bucketCounts": [1, 0]},
            {"timeUnixNano": time, "count": 1, "explicitBounds": [1], "bucketCounts": [1]},
        ]}},
    ])));
    let result = result.expect("written");
    assert_eq!((result.kept, result.rejected_points), (8, 7));
    let refused = result.refused.to_string();
    for reason in ["bad_value", "malformed", "too_old", "future", "bad_name"] {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    assert_eq!(f.values("g"), [-3.0]);
    assert_eq!(f.values("s_bytes{quantile=\"0.5\"}"), [0.25]);
    assert!(is_stale(f.values("s_bytes{quantile=\"1\"}")[0]));
    assert_eq!(f.values("s_bytes_sum"), [1.5]);
    assert_eq!(f.values("h_bucket{le=\"1\"}"), [1.0]);
    assert!(!f.stored().contains_key("h_sum"));
    assert_eq!(f.writer.status().exemplars_ignored, 1);
    f.assert_conserved();
}
