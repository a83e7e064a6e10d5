//! `GET /metrics`, for Prometheus.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse;
use pegel_metric::{Selector, Series};
use pegel_wire::{openmetrics, prometheus};

use super::node_values::values_of_each;
use super::reduced_list::write_reduced;
use super::{HandlerResult, SharedContext};
use crate::content_negotiation::{self, MetricsFormat};
use crate::guard::Caller;
use crate::job_info::job_info_readings;
use crate::tree::{NodeChoice, RequestTree};

/// All current values; on a parent, with `nodes=each`, those of all nodes. Other query parameters
/// are ignored: a scraper may add its own.
pub(super) async fn metrics(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let format = content_negotiation::metrics_format(&headers);
    let gzip = content_negotiation::accepts_gzip(&headers);
    let store = context.agent.store.clone();
    context.refresh_programs().await;
    let mut buffer = context.executor.response_buffer(caller.rights);
    let is_of_each = uri.query().is_some_and(|query| {
        form_urlencoded::parse(query.as_bytes())
            .any(|(key, value)| key == "nodes" && value == "each")
    });
    let tree = tree.inspect(|tree| tree.record.expect([context.agent.node.as_str()]));
    let tree = tree.filter(|_| is_of_each);
    let is_tree = tree.is_some();
    let jobs = context.agent.jobs.clone();
    let work = move || {
        let mut readings: Vec<(Arc<Series>, f64)> = job_info_readings(&jobs);
        match &tree {
            None => drop(store.latest(&Selector::all(), 0, &mut |series, latest| {
                readings.push((series.clone(), latest.value));
            })),
            Some(tree) => {
                let found = values_of_each(&tree.source(NodeChoice::All)?, &Selector::all())?;
                let found = found
                    .into_iter()
                    .map(|(series, latest)| (series, latest.value));
                readings.extend(found);
            }
        }
        let mut collisions = 0;
        write_reduced(&mut buffer, &readings, |buffer, readings, left_out| {
            let mut text = String::with_capacity(readings.len() * 80);
            let encoded = match format {
                MetricsFormat::Text => {
                    // OpenMetrics has no comments.
                    if let Some(series) = left_out {
                        text += &format!(
                            "# pegel: the response is limited: help texts of other users and {series} of their series are left out\n"
                        );
                    }
                    prometheus::encode(readings, &mut text)
                }
                MetricsFormat::OpenMetrics => openmetrics::encode(readings, &mut text),
            };
            collisions = encoded.collisions;
            buffer.adopt(text.into_bytes())
        })?;
        drop(readings);
        let content_type = match format {
            MetricsFormat::Text => prometheus::CONTENT_TYPE,
            MetricsFormat::OpenMetrics => openmetrics::CONTENT_TYPE,
        };
        Ok((buffer.finish(content_type, gzip)?, collisions))
    };
    let (finished, collisions) = match is_tree {
        true => context.executor.query(caller.rights, work).await?,
        false => context.executor.read_latest(caller.rights, work).await?,
    };
    if is_tree {
        return Ok(finished.into_response());
    }
    if context.name_collisions.swap(collisions, Ordering::Relaxed) != collisions && collisions > 0 {
        tracing::warn!(
            series = collisions,
            "series omitted from /metrics: the name has another type there, or differs from another name only in characters that become '_'"
        );
    }
    Ok(finished.into_response())
}
