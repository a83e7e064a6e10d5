use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use pegel_metric::{Selector, Series};
use pegel_wire::{openmetrics, prometheus};

use super::{Answer, Shared};
use crate::guard::Caller;
use crate::negotiate::{self, Format};

/// All current values, for Prometheus. Parameters are ignored: a scraper may add its own.
pub(super) async fn metrics(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Answer {
    let format = negotiate::format(&headers);
    let gzip = negotiate::gzip(&headers);
    let store = site.app.store.clone();
    site.answers.refresh(&site.app.intake).await;
    let mut room = site.answers.room();
    let (finished, collisions) = site
        .answers
        .look(caller.rights, move || {
            let mut readings: Vec<(Arc<Series>, f64)> = Vec::new();
            store.latest(&Selector::all(), 0, &mut |series, latest| {
                readings.push((series.clone(), latest.value));
            });
            let mut text = String::with_capacity(readings.len() * 80);
            let (encoded, content_type) = match format {
                Format::Text => (
                    prometheus::encode(&readings, &mut text),
                    prometheus::CONTENT_TYPE,
                ),
                Format::OpenMetrics => (
                    openmetrics::encode(&readings, &mut text),
                    openmetrics::CONTENT_TYPE,
                ),
            };
            drop(readings);
            room.admit(text.into_bytes())?;
            Ok((room.finish(content_type, gzip)?, encoded.collisions))
        })
        .await?;
    if site.collisions.swap(collisions, Ordering::Relaxed) != collisions && collisions > 0 {
        tracing::warn!(
            series = collisions,
            "series were left out of /metrics: the name has another kind there, or differs from another only in characters that become '_'"
        );
    }
    Ok(finished.into_response())
}
