//! Samples of a store as text with timestamps, which other stores import.

use std::fmt::Write as _;

use pegel_metric::{MetricKind, Millis, Selector, format_value};
use pegel_store::{RangeQuery, Store};

/// Formats the samples of a range series by series, as OpenMetrics. Timestamps are in units of
/// `time_unit` milliseconds.
pub fn timed_exposition(
    store: &Store,
    selector: Selector,
    (start, end): (Millis, Millis),
    time_unit: Millis,
) -> String {
    let mut text = String::new();
    let mut family = String::new();
    let mut query = RangeQuery::new(selector, start, end, None);
    query.bytes_max = 1 << 30;
    store
        .query_range(&query, &mut |series, points| {
            if family != series.name() {
                family = series.name().to_owned();
                write_type(&mut text, &family, series.family().kind);
            }
            for (time, value) in points {
                text.push_str(series.text());
                text.push(' ');
                format_value(&mut text, *value);
                let _ = writeln!(text, " {}", time / time_unit);
            }
        })
        .expect("an answer");
    text.push_str("# EOF\n");
    text
}

fn write_type(text: &mut String, family: &str, kind: MetricKind) {
    let (name, kind) = match kind {
        MetricKind::Counter => match family.strip_suffix("_total") {
            Some(name) => (name, "counter"),
            // OpenMetrics accepts counters without the suffix as unknown only.
            None => (family, "unknown"),
        },
        _ => (family, "gauge"),
    };
    let _ = writeln!(text, "# TYPE {name} {kind}");
}
