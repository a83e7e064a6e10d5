//! `GET /federate`: the newest samples of selected series in the text format, with their times, as
//! Prometheus serves them to another Prometheus.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

use axum::response::Response;
use pegel_metric::prometheus_names::{label_key, metric_name};
use pegel_metric::{Millis, format_value};
use pegel_query::promql::{LabelSet, PromqlError, STALE_NAN, SeriesSource};
use pegel_wire::prometheus;

use super::{PrometheusFailure, PrometheusRequest, PrometheusWork, finished_response, run};

/// Written as an empty label if a series has none: otherwise the scraper would add its own.
const INSTANCE: &str = "instance";

/// Series by name, then by labels, with their newest samples.
type FederatedSamples = BTreeMap<(String, LabelSet), (Millis, f64)>;

/// Writes the series that match at least one `match[]`, with the samples that PromQL shows now.
pub(super) async fn federate(request: PrometheusRequest) -> Response {
    let finished = run(request, prometheus::CONTENT_TYPE, |work| {
        let samples = newest_samples(work)?;
        let mut text = String::new();
        let mut last_name = "";
        for ((name, labels), sample) in &samples {
            text.clear();
            if name != last_name {
                text += &format!("# TYPE {} untyped\n", metric_name(name));
                last_name = name;
            }
            write_line(&mut text, labels, *sample);
            work.buffer.text(&text)?;
        }
        Ok(())
    });
    finished_response(finished.await)
}

/// Returns the newest sample of each series within the lookback; series that ended have none.
fn newest_samples(work: &PrometheusWork<'_>) -> Result<FederatedSamples, PrometheusFailure> {
    let selectors = work.parameters.selectors()?;
    if selectors.is_empty() {
        return Err(PromqlError::bad_data("no match[] parameter provided").into());
    }
    let now = work.context.agent.clock.utc();
    let lookback = Millis::try_from(work.limits.lookback.as_millis()).unwrap_or(Millis::MAX);
    let range = (now.saturating_sub(lookback).saturating_add(1), now);
    let deadline = Instant::now() + work.limits.time_max;
    let mut bytes_left = work.limits.bytes_max;
    let mut found = FederatedSamples::new();
    for matchers in &selectors {
        let selection = work.selection(matchers, range, deadline);
        work.source.select(&selection, &mut |labels, samples| {
            let Some((time, value)) = samples.last() else {
                return Ok(());
            };
            if value.to_bits() == STALE_NAN.to_bits() {
                return Ok(());
            }
            let key = (labels.metric_name().to_owned(), labels);
            let bytes = key.1.bytes() + key.0.len() + size_of::<(Millis, f64)>();
            if let Entry::Vacant(free) = found.entry(key) {
                bytes_left = bytes_left
                    .checked_sub(bytes)
                    .ok_or_else(PromqlError::too_many_samples)?;
                free.insert((time, value));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Writes `name{labels} value time`.
fn write_line(out: &mut String, labels: &LabelSet, (time, value): (Millis, f64)) {
    out.push_str(&metric_name(labels.metric_name()));
    let others = labels.iter().filter(|(name, _)| *name != "__name__");
    let instance = { labels.get(INSTANCE).is_empty() }.then_some((INSTANCE, ""));
    for (at, (name, value)) in others.chain(instance).enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        out.push_str(&label_key(name));
        out.push_str("=\"");
        prometheus::escape_label_value(out, value);
        out.push('"');
    }
    out.push_str("} ");
    format_value(out, value);
    *out += &format!(" {time}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_an_instance_and_a_time() {
        let line = |labels: &[(&str, &str)], value: f64| {
            let mut text = String::new();
            write_line(
                &mut text,
                &LabelSet::new(labels.iter().copied()),
                (5, value),
            );
            text
        };
        let own = [("__name__", "a.b"), ("c.d", "x\"\\\n"), ("instance", "n1")];
        assert_eq!(
            line(&own, f64::INFINITY),
            "a_b{c_d=\"x\\\"\\\\\\n\",instance=\"n1\"} +Inf 5\n"
        );
        let rule = [("__name__", "job:x:sum")];
        assert_eq!(line(&rule, 1.5), "job:x:sum{instance=\"\"} 1.5 5\n");
    }
}
