//! `POST /api/put`, as OpenTSDB has it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_ingest::point_batch::BatchResult;
use pegel_metric::{Input, Reason};
use pegel_wire::{PointBatch, opentsdb};
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Shared, Site};
use crate::failure::Failure;
use crate::guard::Caller;
use crate::writes::PUT;

/// How many wrong points are shown; all are counted.
const SHOWN_MAX: usize = 1000;

#[derive(Debug, Clone, Copy)]
struct Flags {
    summary: bool,
    details: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<Wrong>>,
    failed: usize,
    success: u64,
}

#[derive(Serialize)]
struct Wrong {
    /// As it was sent; as text where it is not JSON.
    datapoint: Value,
    error: String,
}

pub(super) async fn put(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let flags = flags(&uri);
    let answers = site.clone();
    let (status, text) = answers
        .answers
        .write(move || store(&site, &caller, &headers, body, flags))
        .await?;
    Ok(match text {
        None => status.into_response(),
        Some(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
    })
}

/// Others, such as `sync`, are known to OpenTSDB and say nothing here: every answer waits for the log.
fn flags(uri: &Uri) -> Flags {
    let query = uri.query().unwrap_or_default();
    let has = |flag: &str| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some(flag))
    };
    Flags {
        summary: has("summary"),
        details: has("details"),
    }
}

fn store(
    site: &Arc<Site>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Bytes,
    flags: Flags,
) -> Result<(StatusCode, Option<Bytes>), Failure> {
    let intake = &site.app.intake;
    let sender = intake.sender(Input::Put, &caller.peer.account());
    let body = site.plain(&sender, headers, body)?;
    let batch = opentsdb::put(&body).map_err(|error| {
        intake.count_refused(&sender, Reason::Malformed);
        let hint = "send {\"metric\",\"timestamp\",\"value\",\"tags\"}, or a list of such";
        Failure::bad(error.to_string()).hint(hint)
    })?;
    let verdict = intake.store_batch(&sender, &batch, PUT)?;
    report(site, flags, &body, &batch, &verdict)
}

fn report(
    site: &Site,
    flags: Flags,
    body: &[u8],
    batch: &PointBatch<'_>,
    verdict: &BatchResult,
) -> Result<(StatusCode, Option<Bytes>), Failure> {
    let failed = verdict.refused.len();
    let status = match (failed, flags.summary || flags.details) {
        (0, false) => return Ok((StatusCode::NO_CONTENT, None)),
        (0, true) => StatusCode::OK,
        (_, true) => StatusCode::BAD_REQUEST,
        (_, false) => {
            let (place, first) = &verdict.refused[0];
            let message = format!(
                "{failed} of {} points were refused; the first, number {place}: {first}",
                batch.len()
            );
            return Err(Failure::bad(message).hint("add ?details to see each of them"));
        }
    };
    let errors = flags.details.then(|| {
        let wrong = verdict.refused.iter().take(SHOWN_MAX);
        wrong
            .map(|(place, refused)| {
                let (start, end) = batch.spans[*place];
                Wrong {
                    datapoint: shown(&body[start..end]),
                    error: refused.to_string(),
                }
            })
            .collect()
    });
    let mut room = site.answers.room();
    room.json(&Report {
        errors,
        failed,
        success: verdict.kept,
    })?;
    Ok((status, Some(room.into_bytes())))
}

fn shown(point: &[u8]) -> Value {
    serde_json::from_slice(point)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(point).into_owned()))
}
