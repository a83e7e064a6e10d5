//! The posts of Dragon's telemetry to a node's store, with the same responses: points, and hiding
//! old ones.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::{InputError, InputReply, InputRequest, RequestHandler, dragon};
use serde::Serialize;
use serde_json::json;

use super::{ERRORS_SHOWN_MAX, not_stored, write_json};
use crate::Ingest;
use crate::point_batch::PointDefaults;

/// The help text is stored with each series.
const HELP: &str = "Sent by a program to /api/metrics.";
const CREATED: u16 = 201;

/// Handles `POST /api/metrics`.
#[derive(Debug)]
pub struct DragonMetrics(pub Arc<Ingest>);

/// Handles `POST /api/tsdb_cleanup`: hides samples of `/api/metrics` that are older than the given
/// time.
#[derive(Debug)]
pub struct DragonCleanup(pub Arc<Ingest>);

/// Dragon's response to points.
#[derive(Serialize)]
struct DragonReply {
    success: u64,
    failed: usize,
    errors: Vec<String>,
}

impl RequestHandler for DragonMetrics {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let sender = self.0.sender(Input::Http, request.sender);
        let batch = dragon::metrics(request.body).map_err(|error| {
            self.0.count_refused(&sender, DropReason::Malformed);
            let hint = "send {\"timestamp\": SECONDS, \"dps\": [{\"metric\",\"value\",\"tags\"}]}";
            InputError::bad_request(error, hint)
        })?;
        let defaults = PointDefaults {
            help: HELP,
            level: 1,
            not_before: self.0.store().hidden_before(Input::Http),
        };
        let verdict = self.0.store_batch(&sender, &batch, defaults);
        let verdict = verdict.map_err(not_stored)?;
        let shown = verdict.refused.iter().take(ERRORS_SHOWN_MAX);
        let errors = shown.map(|(index, refused)| match &batch.points[*index] {
            Ok(point) => format!("{}: {refused}", point.name),
            Err(_) => format!("point {index}: {refused}"),
        });
        let reply = DragonReply {
            success: verdict.kept,
            failed: verdict.refused.len(),
            errors: errors.collect(),
        };
        write_json(response, &reply)?;
        Ok(InputReply::new(CREATED))
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let sender = self.0.sender(Input::Http, sender);
        self.0.count_refused(&sender, reason);
    }
}

impl RequestHandler for DragonCleanup {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let start = dragon::cleanup_time(request.body)
            .map_err(|error| InputError::bad_request(error, "send {\"start_time\": SECONDS}"))?;
        let now = self.0.now();
        // A time in the future would refuse what programs send from now on.
        let start = start.min(now - now.rem_euclid(1000));
        let hidden = self.0.store().hide_before(Input::Http, start);
        hidden.map_err(|error| {
            let message = format!("cannot record the clean-up: {error}");
            InputError::unavailable(message, "retry later")
        })?;
        let reply = json!({"success": 0, "failed": 0, "errors": []});
        write_json(response, &reply)?;
        Ok(InputReply::new(CREATED))
    }

    /// A clean-up contains no samples.
    fn count_refused(&self, _: &str, _: DropReason) {}
}
