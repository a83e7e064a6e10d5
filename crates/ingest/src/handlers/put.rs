//! `POST /api/put`, compatible with OpenTSDB: stores the points of a body in one batch, and reports
//! refused points in OpenTSDB's form.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::{InputError, InputReply, InputRequest, PointBatch, RequestHandler, opentsdb};
use serde::Serialize;
use serde_json::Value;

use super::{ERRORS_SHOWN_MAX, not_stored, write_json};
use crate::Ingest;
use crate::point_batch::{BatchResult, PointDefaults};

/// The defaults of points from `put`, in a body or a line. The help text is stored with each
/// series.
pub(super) const PUT_DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program with put.",
    level: 1,
    not_before: None,
};

/// Handles `POST /api/put`.
#[derive(Debug)]
pub struct PutPoints(pub Arc<Ingest>);

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

impl RequestHandler for PutPoints {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let sender = self.0.sender(Input::Put, request.sender);
        let batch = opentsdb::put(request.body).map_err(|error| {
            self.0.count_refused(&sender, DropReason::Malformed);
            let hint = "send {\"metric\",\"timestamp\",\"value\",\"tags\"}, or a list of such";
            InputError::bad_request(error, hint)
        })?;
        let verdict = self.0.store_batch(&sender, &batch, PUT_DEFAULTS);
        let verdict = verdict.map_err(not_stored)?;
        respond(&request, &batch, &verdict, response)
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let sender = self.0.sender(Input::Put, sender);
        self.0.count_refused(&sender, reason);
    }
}

/// Parses the flags. Others that OpenTSDB knows, such as `sync`, have no effect: every response
/// waits for the log.
fn parse_flags(query: &str) -> PutFlags {
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

fn respond(
    request: &InputRequest<'_>,
    batch: &PointBatch<'_>,
    verdict: &BatchResult,
    response: &mut dyn io::Write,
) -> Result<InputReply, InputError> {
    let flags = parse_flags(request.query);
    let failed = verdict.refused.len();
    let status = match (verdict.refused.first(), flags.summary || flags.details) {
        (None, false) => return Ok(InputReply::new(204)),
        (None, true) => 200,
        (Some(_), true) => 400,
        (Some((index, first)), false) => {
            let message = format!(
                "{failed} of {} points were refused; the first, number {index}: {first}",
                batch.len()
            );
            let hint = "add ?details to list each of them";
            return Err(InputError::bad_request(message, hint));
        }
    };
    let errors = flags.details.then(|| {
        let shown = verdict.refused.iter().take(ERRORS_SHOWN_MAX);
        let described = shown.map(|(index, refused)| {
            let (start, end) = batch.spans[*index];
            PutPointError {
                datapoint: point_as_json(&request.body[start..end]),
                error: refused.to_string(),
            }
        });
        described.collect()
    });
    let summary = PutSummary {
        errors,
        failed,
        success: verdict.kept,
    };
    write_json(response, &summary)?;
    Ok(InputReply::new(status))
}

fn point_as_json(point: &[u8]) -> Value {
    serde_json::from_slice(point)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(point).into_owned()))
}
