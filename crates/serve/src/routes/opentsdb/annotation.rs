//! `/api/annotation` and `/api/annotations`.
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_config::UserInfo;
use pegel_query::{
    Annotation, AnnotationBulkDelete, AnnotationEditor, AnnotationUpdate, OpentsdbError,
};
use serde_json::json;

use super::super::HandlerResult;
use super::super::query_http_request::QueryHttpRequest;
use super::{opentsdb_error_response, opentsdb_json, parse_pairs};
use crate::api_error::ApiError;
use crate::guard::AccessRights;

/// The label with the user who set a mark or a phase.
const USER_LABEL: &str = "user";

/// What an annotation takes in the file besides its text.
const RECORD_BYTES: usize = 128;

/// Returns the annotation of a series, or of all series, at a given time.
pub(super) async fn read(asked: QueryHttpRequest) -> HandlerResult {
    if asked.tree.0.is_none() {
        return Ok(read_one(&asked).unwrap_or_else(|problem| opentsdb_error_response(&problem)));
    }
    // The annotation may be on another node.
    let context = asked.context.clone();
    let done = context.executor.query(asked.rights, move || {
        let found = read_one(&asked);
        Ok(found.unwrap_or_else(|problem| opentsdb_error_response(&problem)))
    });
    done.await
}

fn read_one(asked: &QueryHttpRequest) -> Result<Response, OpentsdbError> {
    let (tsuid, start) = AnnotationUpdate::from_uri(&parse_pairs(&asked.uri)?)?.key()?;
    let mut found = asked.context.engine.annotations.get(&tsuid, start);
    if found.is_none() && asked.tree.0.is_some() {
        let engine = asked.engine_with_annotations((start, start))?;
        found = engine.annotations.get(&tsuid, start);
    }
    let missing = || OpentsdbError::new(404, "Unable to locate annotation in storage");
    Ok(opentsdb_json(&json!(found.ok_or_else(missing)?)))
}

/// Stores an annotation: POST changes the given fields, PUT replaces all.
pub(super) async fn store(asked: QueryHttpRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let mut change = requested_change(asked, &body)?;
        asked.prepare_mark(&mut change)?;
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

pub(super) async fn delete(asked: QueryHttpRequest) -> HandlerResult {
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

pub(super) async fn store_many(asked: QueryHttpRequest) -> HandlerResult {
    run(asked, |asked, body| {
        let notes = &asked.context.engine.annotations;
        let mut stored: Vec<Annotation> = Vec::new();
        let changes = AnnotationUpdate::list_from_json(&body)?;
        asked.charge(changes.len() * RECORD_BYTES)?;
        for mut change in changes {
            asked.prepare_mark(&mut change)?;
            // The end of a phase has no key: it is found by its name.
            let key = change.key().ok();
            let note = notes.put(change, asked.method == Method::PUT, asked.editor())?;
            let unchanged = || key.and_then(|(tsuid, start)| notes.get(&tsuid, start));
            stored.extend(note.or_else(unchanged));
        }
        Ok(opentsdb_json(&json!(stored)))
    })
    .await
}

pub(super) async fn delete_many(asked: QueryHttpRequest) -> HandlerResult {
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
    asked: &QueryHttpRequest,
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
    mut asked: QueryHttpRequest,
    work: impl FnOnce(&QueryHttpRequest, Bytes) -> Result<Response, OpentsdbError> + Send + 'static,
) -> HandlerResult {
    let context = asked.context.clone();
    let done = context.executor.change(asked.rights, move || {
        let body = asked.plain_body()?;
        let bytes = RECORD_BYTES + body.len() + asked.uri.query().unwrap_or_default().len();
        let done = asked.charge(bytes).and_then(|()| work(&asked, body));
        Ok::<_, ApiError>(done.unwrap_or_else(|problem| opentsdb_error_response(&problem)))
    });
    done.await
}

impl QueryHttpRequest {
    fn editor(&self) -> AnnotationEditor<'_> {
        match self.rights {
            AccessRights::None | AccessRights::User => Some(&self.sender),
            AccessRights::Owner => None,
        }
    }

    /// Names the user in a mark or a phase, and removes marks that are too old.
    fn prepare_mark(&self, change: &mut AnnotationUpdate) -> Result<(), OpentsdbError> {
        if change.mark_kind().is_none() {
            return Ok(());
        }
        if let Some(user) = UserInfo::of_sender(&self.sender) {
            change.set_mark_label(USER_LABEL, user.short_name());
        }
        let agent = &self.context.agent;
        agent.annotations.expire_marks(agent.clock.utc())
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
