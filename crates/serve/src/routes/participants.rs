//! `/api/v1/participants`: processes announce that they take part in a job, and that they are done.

use axum::Extension;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::json_response::{JSON, json_response};
use crate::participants::{ParticipantCounts, ParticipantProcess};

const ID_BYTES_MAX: usize = 64;
const ACCEPTS: &str = "{\"id\": \"…\", \"pid\": 4711, \"state\": \"active\"}; or \"done\"";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParticipantBody {
    id: String,
    pid: u32,
    #[serde(default)]
    start_ticks: u64,
    #[serde(default)]
    pid_namespace: u64,
    state: ParticipantState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ParticipantState {
    Active,
    Done,
}

pub(super) async fn counts(Extension(context): SharedContext) -> Response {
    counts_reply(context.participants.counts(), false)
}

/// Adds a participant, or marks it as done. The last one that is done stops an agent that a job
/// started.
pub(super) async fn update(Extension(context): SharedContext, body: Bytes) -> HandlerResult {
    let malformed = |problem: String| ApiError::bad_request(problem).hint(ACCEPTS);
    let body: ParticipantBody = serde_json::from_slice(&body)
        .map_err(|error| malformed(format!("malformed participant: {error}")))?;
    if body.id.is_empty() || body.id.len() > ID_BYTES_MAX {
        return Err(malformed("an id has 1 to 64 bytes".to_owned()));
    }
    let participants = &context.participants;
    if body.state == ParticipantState::Done {
        let counts = participants.finish(&body.id);
        let stop = context.agent.participants_done.as_ref();
        let stop = stop.filter(|_| counts.active == 0);
        stop.inspect(|stop| stop());
        return Ok(counts_reply(counts, stop.is_some()));
    }
    let process = ParticipantProcess {
        pid: body.pid,
        start_ticks: body.start_ticks,
        pid_namespace: body.pid_namespace,
    };
    if !participants.add(&body.id, process) {
        let message = "too many participants";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message));
    }
    Ok(counts_reply(participants.counts(), false))
}

fn counts_reply(counts: ParticipantCounts, stopping: bool) -> Response {
    let reply = json!({"active": counts.active, "done": counts.done, "stopping": stopping});
    json_response(StatusCode::OK, JSON, reply.to_string())
}
