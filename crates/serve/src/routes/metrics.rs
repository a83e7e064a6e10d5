//! `GET /metrics`, for Prometheus.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Extension;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use pegel_metric::{Selector, Series};
use pegel_wire::{openmetrics, prometheus};

use super::{HandlerResult, SharedContext};
use crate::content_negotiation::{self, MetricsFormat};
use crate::guard::Caller;

/// All current values. Query parameters are ignored: a scraper may add its own.
pub(super) async fn metrics(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> HandlerResult {
    let format = content_negotiation::metrics_format(&headers);
    let gzip = content_negotiation::accepts_gzip(&headers);
    let store = context.agent.store.clone();
    context.refresh_programs().await;
    let mut buffer = context.executor.response_buffer(caller.rights);
    let (finished, collisions) = context
        .executor
        .read_latest(caller.rights, move || {
            let mut readings: Vec<(Arc<Series>, f64)> = Vec::new();
            store.latest(&Selector::all(), 0, &mut |series, latest| {
                readings.push((series.clone(), latest.value));
            });
            let mut text = String::with_capacity(readings.len() * 80);
            let (encoded, content_type) = match format {
                MetricsFormat::Text => (
                    prometheus::encode(&readings, &mut text),
                    prometheus::CONTENT_TYPE,
                ),
                MetricsFormat::OpenMetrics => (
                    openmetrics::encode(&readings, &mut text),
                    openmetrics::CONTENT_TYPE,
                ),
            };
            drop(readings);
            buffer.adopt(text.into_bytes())?;
            Ok((buffer.finish(content_type, gzip)?, encoded.collisions))
        })
        .await?;
    if context.name_collisions.swap(collisions, Ordering::Relaxed) != collisions && collisions > 0 {
        tracing::warn!(
            series = collisions,
            "series omitted from /metrics: the name has another type there, or differs from another name only in characters that become '_'"
        );
    }
    Ok(finished.into_response())
}
