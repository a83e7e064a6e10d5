//! `GET /api/v1/values`, and the current values that other routes share.
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::{Selector, Series};
use pegel_store::{LatestValue, QueryError, Store};
use serde::Serialize;

use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;

/// Time limit for matching, as for range queries: patterns come from the client.
const MATCH_TIME: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct CurrentValue<'a> {
    name: &'a str,
    /// In seconds.
    ts: f64,
    /// Null if it is not finite.
    value: f64,
}

/// Current values, sorted by name; `ts` is the time of the last change.
pub(super) async fn values(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let selector = QueryParameters::parse(&uri, &["match", "names"])?.selector()?;
    let store = context.agent.store.clone();
    context.refresh_programs().await;
    context
        .respond_latest(&caller, &headers, move |buffer| {
            write_current(buffer, &store, &selector, 0).map(drop)
        })
        .await
}

/// How many values were written, and the number of the latest change.
pub(super) struct WrittenChanges {
    pub count: usize,
    pub change: u64,
}

/// Series with their current values, and the number of the latest change.
pub(super) type ChangedValues = (Vec<(Arc<Series>, LatestValue)>, u64);

/// Returns the values that changed after change number `after`.
pub(super) fn changed_after(
    store: &Store,
    selector: &Selector,
    after: u64,
) -> Result<ChangedValues, QueryError> {
    let mut found = Vec::new();
    let deadline = Instant::now() + MATCH_TIME;
    let change = store.latest_until(deadline, selector, after, &mut |series, latest| {
        found.push((series.clone(), latest))
    })?;
    Ok((found, change))
}

/// Writes the values that changed after change number `after`, as a JSON array.
pub(super) fn write_current(
    buffer: &mut ResponseBuffer,
    store: &Store,
    selector: &Selector,
    after: u64,
) -> Result<WrittenChanges, ApiError> {
    let (mut found, change) = changed_after(store, selector, after)?;
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let current: Vec<CurrentValue<'_>> = found
        .iter()
        .map(|(series, latest)| CurrentValue {
            name: series.text(),
            ts: latest.last_changed as f64 / 1000.0,
            value: latest.value,
        })
        .collect();
    buffer.json(&current)?;
    Ok(WrittenChanges {
        count: current.len(),
        change,
    })
}
