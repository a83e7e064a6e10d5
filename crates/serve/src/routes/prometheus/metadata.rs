//! `/api/v1/metadata`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::response::Response;
use pegel_metric::MetricKind;
use serde::Serialize;

use super::{PrometheusRequest, respond};

/// The metadata of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MetricMetadata {
    r#type: &'static str,
    help: String,
    unit: String,
}

/// Describes metrics: type, help and unit of each name; `metric` selects one.
pub(super) async fn metadata(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let limit = work.parameters.limit()?;
        let per_metric = work
            .parameters
            .count("limit_per_metric")?
            .unwrap_or(usize::MAX);
        let wanted = work.parameters.get("metric").map(str::to_owned);
        let deadline = Instant::now() + work.limits.time_max;
        let selection = work.selection(&[], (0, i64::MAX), deadline);
        let mut found: BTreeMap<String, Vec<MetricMetadata>> = BTreeMap::new();
        work.context
            .promql
            .series(&selection, &mut |labels, family| {
                let name = labels.metric_name();
                if wanted.as_deref().is_some_and(|wanted| wanted != name) {
                    return Ok(());
                }
                let entry = MetricMetadata {
                    r#type: match family.kind {
                        MetricKind::Counter => "counter",
                        MetricKind::Gauge => "gauge",
                        MetricKind::Unknown => "unknown",
                    },
                    help: family.help.to_string(),
                    unit: family.unit.to_string(),
                };
                match found.get_mut(name) {
                    Some(known) if known.contains(&entry) || known.len() >= per_metric => {}
                    Some(known) => known.push(entry),
                    None => drop(found.insert(name.to_owned(), vec![entry])),
                }
                Ok(())
            })?;
        while found.len() > limit {
            found.pop_last();
        }
        Ok(work.buffer.json(&found)?)
    })
    .await
}
