//! `/api/v1/metadata`.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::response::Response;
use pegel_metric::{Input, MetricKind};
use serde::Serialize;

use super::{PrometheusRequest, respond};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::tree::{TextKind, TextRequest};

/// The metadata of one metric.
#[derive(Debug, Serialize)]
struct MetricMetadata {
    r#type: &'static str,
    help: String,
    unit: String,
    /// Whether users other than the agent's may have sent it: it may be left out.
    #[serde(skip)]
    is_foreign: bool,
}

/// The metadata of each name.
type MetadataByName = BTreeMap<String, Vec<MetricMetadata>>;

impl MetricMetadata {
    fn describes_as(&self, other: &MetricMetadata) -> bool {
        (self.r#type, &self.help, &self.unit) == (other.r#type, &other.help, &other.unit)
    }
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
        let mut found = MetadataByName::new();
        let mut add = |name: &str, entry: MetricMetadata| {
            if wanted.as_deref().is_some_and(|wanted| wanted != name) {
                return;
            }
            match found.get_mut(name) {
                Some(known) => match known.iter().position(|known| known.describes_as(&entry)) {
                    Some(at) => known[at].is_foreign &= entry.is_foreign,
                    None if known.len() >= per_metric => {}
                    None => known.push(entry),
                },
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
            let entry = MetricMetadata {
                r#type,
                help,
                unit,
                is_foreign: input != Input::Collect.as_str(),
            };
            add(&name, entry);
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
                    is_foreign: family.input == Input::Statsd || !labels.get("user").is_empty(),
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
                is_foreign: true,
            };
            add(&metric.name, entry);
        }
        while found.len() > limit {
            found.pop_last();
        }
        let mut result = write_data(work.buffer, &found);
        for bytes_max in [work.buffer.bytes_max(), 0] {
            match &result {
                Err(failure) if work.buffer.is_too_large(failure) => {}
                _ => break,
            }
            let left_out = reduce(&mut found, bytes_max);
            result = write_data(work.buffer, &found);
            if result.is_ok() {
                work.warnings.push(format!(
                    "the response is limited: help texts of other users and {left_out} of their metrics are left out"
                ));
            }
        }
        Ok(result?)
    })
    .await
}

/// The room for what follows the data: warnings.
const END_BYTES: usize = 1024;

fn write_data(buffer: &mut ResponseBuffer, found: &MetadataByName) -> Result<(), ApiError> {
    let start = buffer.len();
    buffer.json(found)?;
    match buffer.len() > buffer.bytes_max().saturating_sub(END_BYTES) {
        true => {
            buffer.truncate(start);
            Err(ApiError::response_too_large(buffer.bytes_max()))
        }
        false => Ok(()),
    }
}

/// Leaves out help texts of other users, and as many of their metrics as necessary. Returns the
/// number of names left out.
fn reduce(found: &mut MetadataByName, bytes_max: usize) -> usize {
    let before = found.len();
    for entry in found.values_mut().flatten().filter(|one| one.is_foreign) {
        entry.help.clear();
    }
    // JSON escapes a quote with one more byte.
    let bytes = |name: &str, entries: &[MetricMetadata]| {
        let entries = entries.iter();
        let texts = entries.map(|one| 64 + 2 * (one.help.len() + one.unit.len()));
        2 * name.len() + 64 + texts.sum::<usize>()
    };
    let is_own = |entries: &[MetricMetadata]| entries.iter().any(|one| !one.is_foreign);
    let own = found.iter().filter(|(_, entries)| is_own(entries));
    let own: usize = own.map(|(name, entries)| bytes(name, entries)).sum();
    let mut left = bytes_max.saturating_sub(own);
    found.retain(|name, entries| {
        if is_own(entries) {
            return true;
        }
        let rest = left.checked_sub(bytes(name, entries));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    before - found.len()
}
