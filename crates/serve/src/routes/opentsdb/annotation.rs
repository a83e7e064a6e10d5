//! `/api/annotation` and `/api/annotations`.
use axum::extract::Extension;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_query::{Annotation, AnnotationBulkDelete, AnnotationUpdate, OpentsdbError};
use serde_json::json;

use super::super::{HandlerResult, SharedContext};
use super::{OpentsdbRequest, opentsdb_error_response, opentsdb_json, parse_pairs};
use crate::api_error::ApiError;

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
        let stored = asked
            .context
            .engine
            .annotations
            .put(change, asked.method == Method::PUT)?;
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
        if asked.context.engine.annotations.delete(&tsuid, start)? {
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
        for change in AnnotationUpdate::list_from_json(&body)? {
            let (tsuid, start) = change.key()?;
            let note = notes.put(change, asked.method == Method::PUT)?;
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
        let deleted = asked.context.engine.annotations.delete_range(&bulk)?;
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
        Ok::<_, ApiError>(
            work(&asked, body).unwrap_or_else(|problem| opentsdb_error_response(&problem)),
        )
    });
    done.await
}
