//! `/api/annotation` and `/api/annotations`.
use axum::extract::Extension;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_query::{
    Annotation, AnnotationBulkDelete, AnnotationEditor, AnnotationUpdate, OpentsdbError,
};
use serde_json::json;

use super::super::{HandlerResult, SharedContext};
use super::{OpentsdbRequest, opentsdb_error_response, opentsdb_json, parse_pairs};
use crate::api_error::ApiError;
use crate::guard::AccessRights;

/// What an annotation takes in the file besides its text.
const RECORD_BYTES: usize = 128;

/// Returns the annotation of a series, or of all series, at a given time.
pub(super) async fn read(Extension(context): SharedContext, uri: Uri) -> Response {
    let found = parse_pairs(&uri).and_then(|pairs| {
        let (tsuid, start) = AnnotationUpdate::from_uri(&pairs)?.key()?;
        let missing = || OpentsdbError::new(404, "Unable to locate annotation in storage");
        context
            .engine
            .annotations
            .get(&tsuid, start)
            .ok_or_else(missing)
    });
    match found {
        Ok(note) => opentsdb_json(&json!(note)),
        Err(problem) => opentsdb_error_response(&problem),
    }
}

/// Stores an annotation: POST changes the given fields, PUT replaces all.
pub(super) async fn store(asked: OpentsdbRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let change = requested_change(asked, &body)?;
        let stored = asked.context.engine.annotations.put(
            change,
            asked.method == Method::PUT,
            asked.editor(),
        )?;
        Ok(match stored {
            Some(note) => opentsdb_json(&json!(note)),
            None => StatusCode::NOT_MODIFIED.into_response(),
        })
    })
    .await
}

pub(super) async fn delete(asked: OpentsdbRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let change = requested_change(asked, &body)?;
        let (tsuid, start) = change.key()?;
        let notes = &asked.context.engine.annotations;
        if notes.delete(&tsuid, start, asked.editor())? {
            Ok(StatusCode::NO_CONTENT.into_response())
        } else {
            Err(OpentsdbError::new(
                404,
                "Unable to locate annotation in storage",
            ))
        }
    })
    .await
}

pub(super) async fn store_many(asked: OpentsdbRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let notes = &asked.context.engine.annotations;
        let mut stored: Vec<Annotation> = Vec::new();
        let changes = AnnotationUpdate::list_from_json(&body)?;
        asked.charge(changes.len() * RECORD_BYTES)?;
        for change in changes {
            let (tsuid, start) = change.key()?;
            let note = notes.put(change, asked.method == Method::PUT, asked.editor())?;
            stored.extend(note.or_else(|| notes.get(&tsuid, start)));
        }
        Ok(opentsdb_json(&json!(stored)))
    })
    .await
}

pub(super) async fn delete_many(asked: OpentsdbRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let now = asked.context.agent.clock.utc();
        let bulk = if body.is_empty() {
            AnnotationBulkDelete::from_uri(&parse_pairs(&asked.uri)?, now)?
        } else {
            AnnotationBulkDelete::from_json(&body, now)?
        };
        let deleted = asked
            .context
            .engine
            .annotations
            .delete_range(&bulk, asked.editor())?;
        Ok(opentsdb_json(&json!({
            "tsuids": bulk.tsuids,
            "global": bulk.global,
            "startTime": bulk.start,
            "endTime": bulk.end,
            "totalDeleted": deleted,
        })))
    })
    .await
}

/// Parses the requested change from the body or, if that is empty, from the query string.
fn requested_change(
    asked: &OpentsdbRequest,
    body: &[u8],
) -> Result<AnnotationUpdate, OpentsdbError> {
    if body.is_empty() {
        AnnotationUpdate::from_uri(&parse_pairs(&asked.uri)?)
    } else {
        AnnotationUpdate::from_json(body)
    }
}

/// Runs off the async workers: a change waits for the disk.
async fn run(
    mut asked: OpentsdbRequest,
    work: impl FnOnce(&OpentsdbRequest, Bytes) -> Result<Response, OpentsdbError> + Send + 'static,
) -> HandlerResult {
    let context = asked.context.clone();
    let done = context.executor.read_latest(asked.rights, move || {
        let body = asked.plain_body()?;
        let bytes = RECORD_BYTES + body.len() + asked.uri.query().unwrap_or_default().len();
        let done = asked.charge(bytes).and_then(|()| work(&asked, body));
        Ok::<_, ApiError>(done.unwrap_or_else(|problem| opentsdb_error_response(&problem)))
    });
    done.await
}

impl OpentsdbRequest {
    fn editor(&self) -> AnnotationEditor<'_> {
        match self.rights {
            AccessRights::None | AccessRights::User => Some(&self.sender),
            AccessRights::Owner => None,
        }
    }

    /// Charges the client for what a change writes.
    fn charge(&self, bytes: usize) -> Result<(), OpentsdbError> {
        charge(self.editor(), bytes, &*self.context.agent.charge_bytes)
    }
}

/// Charges users other than the agent's.
fn charge(
    editor: AnnotationEditor<'_>,
    bytes: usize,
    try_charge: &dyn Fn(&str, u64) -> bool,
) -> Result<(), OpentsdbError> {
    if editor.is_none_or(|sender| try_charge(sender, bytes as u64)) {
        return Ok(());
    }
    let error = OpentsdbError::new(429, "too many changes of annotations");
    Err(error.with_details("the sender exceeds limits.sender_bytes; retry later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_charged_to_users_other_than_the_agents() {
        let try_charge = |sender: &str, bytes: u64| {
            assert_eq!(sender, "uid 1003");
            bytes <= 500
        };
        assert!(charge(None, 1000, &try_charge).is_ok());
        assert!(charge(Some("uid 1003"), 500, &try_charge).is_ok());
        let refused = charge(Some("uid 1003"), 501, &try_charge);
        assert_eq!(refused.expect_err("too much").status(), 429);
    }
}
