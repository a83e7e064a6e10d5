//! `/api/v1/metadata`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::response::Response;
use pegel_metric::{Input, MetricKind};
use serde::Serialize;

use super::{PrometheusRequest, respond};
use crate::tree::{TextKind, TextRequest};

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
        let mut add = |name: &str, entry: MetricMetadata| {
            if wanted.as_deref().is_some_and(|wanted| wanted != name) {
                return;
            }
            match found.get_mut(name) {
                Some(known) if known.contains(&entry) || known.len() >= per_metric => {}
                Some(known) => known.push(entry),
                None => drop(found.insert(name.to_owned(), vec![entry])),
            }
        };
        // Their senders describe series of remote write, or nothing does.
        let request = TextRequest::promql(TextKind::Descriptions, &[Vec::new()], (0, i64::MAX));
        let texts = match &request {
            Some(request) => work.node_texts(request, deadline)?,
            None => None,
        };
        for text in texts.iter().flatten() {
            let parsed = serde_json::from_str::<(String, String, String, String, String)>(text);
            let Ok((name, kind, help, unit, input)) = parsed else {
                continue;
            };
            if input == Input::RemoteWrite.as_str() {
                continue;
            }
            let kinds = MetricKind::ALL.into_iter();
            let kind = { kinds }.find(|known| known.as_str() == kind);
            let r#type = kind.unwrap_or(MetricKind::Unknown).as_str();
            add(&name, MetricMetadata { r#type, help, unit });
        }
        if texts.is_none() {
            work.source.series(&selection, &mut |labels, family| {
                if family.input == Input::RemoteWrite {
                    return Ok(());
                }
                let entry = MetricMetadata {
                    r#type: family.kind.as_str(),
                    help: family.help.to_string(),
                    unit: family.unit.to_string(),
                };
                add(labels.metric_name(), entry);
                Ok(())
            })?;
        }
        for metric in work.context.agent.status_source.remote_metrics() {
            let entry = MetricMetadata {
                r#type: metric.metric_type,
                help: metric.help,
                unit: metric.unit,
            };
            add(&metric.name, entry);
        }
        while found.len() > limit {
            found.pop_last();
        }
        Ok(work.buffer.json(&found)?)
    })
    .await
}
