//! `POST /api/put`, compatible with OpenTSDB. Parses the points of a request body, passes them to
//! ingest in one batch, and reports refused points in OpenTSDB's form. The response is sent only
//! after the log has accepted the points; every refused point or body is counted under its sender.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_ingest::point_batch::BatchResult;
use pegel_metric::{DropReason, Input};
use pegel_wire::{PointBatch, opentsdb};
use serde::Serialize;
use serde_json::Value;

use super::{AppState, HandlerResult, SharedState};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::json_response::{JSON, json_response};
use crate::point_defaults::PUT_DEFAULTS;

/// How many refused points are listed; all are counted.
const ERRORS_SHOWN_MAX: usize = 1000;

#[derive(Debug, Clone, Copy)]
struct PutFlags {
    summary: bool,
    details: bool,
}

#[derive(Serialize)]
struct PutSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<PutPointError>>,
    failed: usize,
    success: u64,
}

#[derive(Serialize)]
struct PutPointError {
    /// As it was sent; a string if it is not JSON.
    datapoint: Value,
    error: String,
}

pub(super) async fn put(
    State(site): SharedState,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult {
    let flags = parse_flags(&uri);
    let app = site.clone();
    let (status, text) = app
        .executor
        .write(move || store_points(&site, &caller, &headers, body, flags))
        .await?;
    Ok(match text {
        None => status.into_response(),
        Some(text) => json_response(status, JSON, text),
    })
}

/// Parses the flags. Others that OpenTSDB knows, such as `sync`, have no effect: every response
/// waits for the log.
fn parse_flags(uri: &Uri) -> PutFlags {
    let query = uri.query().unwrap_or_default();
    let has = |flag: &str| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some(flag))
    };
    PutFlags {
        summary: has("summary"),
        details: has("details"),
    }
}

fn store_points(
    site: &Arc<AppState>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Bytes,
    flags: PutFlags,
) -> Result<(StatusCode, Option<Bytes>), ApiError> {
    let ingest = &site.agent.ingest;
    let sender = ingest.sender(Input::Put, &caller.peer.sender_name());
    let body = site.decompress_body(&sender, headers, body)?;
    let batch = opentsdb::put(&body).map_err(|error| {
        ingest.count_refused(&sender, DropReason::Malformed);
        let hint = "send {\"metric\",\"timestamp\",\"value\",\"tags\"}, or a list of such";
        ApiError::bad_request(error.to_string()).hint(hint)
    })?;
    let verdict = ingest.store_batch(&sender, &batch, PUT_DEFAULTS)?;
    put_response(site, flags, &body, &batch, &verdict)
}

fn put_response(
    site: &AppState,
    flags: PutFlags,
    body: &[u8],
    batch: &PointBatch<'_>,
    verdict: &BatchResult,
) -> Result<(StatusCode, Option<Bytes>), ApiError> {
    let failed = verdict.refused.len();
    let status = match (failed, flags.summary || flags.details) {
        (0, false) => return Ok((StatusCode::NO_CONTENT, None)),
        (0, true) => StatusCode::OK,
        (_, true) => StatusCode::BAD_REQUEST,
        (_, false) => {
            let (index, first) = &verdict.refused[0];
            let message = format!(
                "{failed} of {} points were refused; the first, number {index}: {first}",
                batch.len()
            );
            return Err(ApiError::bad_request(message).hint("add ?details to list each of them"));
        }
    };
    let errors = flags.details.then(|| {
        let wrong = verdict.refused.iter().take(ERRORS_SHOWN_MAX);
        wrong
            .map(|(index, refused)| {
                let (start, end) = batch.spans[*index];
                PutPointError {
                    datapoint: point_as_json(&body[start..end]),
                    error: refused.to_string(),
                }
            })
            .collect()
    });
    let mut buffer = site.executor.response_buffer();
    buffer.json(&PutSummary {
        errors,
        failed,
        success: verdict.kept,
    })?;
    Ok((status, Some(buffer.into_bytes())))
}

fn point_as_json(point: &[u8]) -> Value {
    serde_json::from_slice(point)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(point).into_owned()))
}
