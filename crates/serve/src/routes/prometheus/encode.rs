//! Writes results as Prometheus' API does: times in seconds, values as text.

use std::fmt::Write;

use pegel_metric::Millis;
use pegel_query::promql::{LabelSet, QueryOutcome, QueryValue, format_sample};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;

/// The warning of a result that has more series than `limit`.
pub(super) const TRUNCATED: &str = "results truncated due to limit";

/// Labels as a JSON object.
pub(super) struct MetricLabels<'a>(pub &'a LabelSet);

impl Serialize for MetricLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Writes `{"resultType":…,"result":…}` of at most `limit` series, with the statistics if there are
/// any. Returns whether series were left out.
pub(super) fn write_result(
    buffer: &mut ResponseBuffer,
    outcome: &QueryOutcome,
    limit: usize,
    stats: Option<&serde_json::Value>,
) -> Result<bool, ApiError> {
    let kind = outcome.value.type_name();
    buffer.text(&format!("{{\"resultType\":\"{kind}\",\"result\":"))?;
    let mut text = String::new();
    let mut is_truncated = false;
    match &outcome.value {
        QueryValue::Scalar(time, value) => {
            write_point(&mut text, *time, *value);
            buffer.text(&text)?;
        }
        QueryValue::Text(time, value) => {
            text.push('[');
            write_time(&mut text, *time);
            text.push(',');
            buffer.text(&text)?;
            buffer.json(value)?;
            buffer.text("]")?;
        }
        QueryValue::Vector(time, samples) => {
            is_truncated = samples.len() > limit;
            for (index, sample) in samples.iter().take(limit).enumerate() {
                buffer.text(if index == 0 { "[" } else { "," })?;
                buffer.text("{\"metric\":")?;
                buffer.json(&MetricLabels(&sample.labels))?;
                text.clear();
                text.push_str(",\"value\":");
                write_point(&mut text, *time, sample.value);
                text.push('}');
                buffer.text(&text)?;
            }
            buffer.text(if samples.is_empty() { "[]" } else { "]" })?;
        }
        QueryValue::Matrix(all) => {
            is_truncated = all.len() > limit;
            for (index, series) in all.iter().take(limit).enumerate() {
                buffer.text(if index == 0 { "[" } else { "," })?;
                buffer.text("{\"metric\":")?;
                buffer.json(&MetricLabels(&series.labels))?;
                text.clear();
                text.push_str(",\"values\":[");
                for (index, (time, value)) in series.points.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    write_point(&mut text, *time, *value);
                }
                text.push_str("]}");
                buffer.text(&text)?;
            }
            buffer.text(if all.is_empty() { "[]" } else { "]" })?;
        }
    }
    if let Some(stats) = stats {
        buffer.text(",\"stats\":")?;
        buffer.json(stats)?;
    }
    buffer.text("}")?;
    Ok(is_truncated)
}

/// Appends `[1435781451.781,"1"]`.
fn write_point(out: &mut String, time: Millis, value: f64) {
    out.push('[');
    write_time(out, time);
    out.push_str(",\"");
    format_sample(out, value);
    out.push_str("\"]");
}

/// Appends a time in seconds, with three decimals unless it is whole.
fn write_time(out: &mut String, time: Millis) {
    if time < 0 {
        out.push('-');
    }
    let millis = time.unsigned_abs();
    // Writing to a String cannot fail.
    let _ = write!(out, "{}", millis / 1_000);
    if !millis.is_multiple_of(1_000) {
        let _ = write!(out, ".{:03}", millis % 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds() {
        for (time, expected) in [
            (0, "0"),
            (1_435_781_451_781, "1435781451.781"),
            (1_500, "1.500"),
            (1_005, "1.005"),
            (-1_005, "-1.005"),
            (-5, "-0.005"),
        ] {
            let mut text = String::new();
            write_time(&mut text, time);
            assert_eq!(text, expected);
        }
    }
}
