//! `GET /api/v1/marks`.
use std::collections::BTreeMap;
use std::time::Instant;

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::Millis;
use pegel_query::{Annotation, Annotations, KIND_LABEL, MarkKind};
use serde::Serialize;

use super::node_values::NODE_VALUES_TIME;
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;
use crate::time_parameters::parse_time;
use crate::tree::{RequestTree, all_annotations};

/// The most marks of one response, the newest ones: more cannot be told apart on a chart.
const MARKS_MAX: usize = 2_000;

#[derive(Serialize)]
struct MarkList<'a> {
    marks: Vec<ListedMark<'a>>,
    /// The number of older marks in the range that are not listed.
    left_out: usize,
}

#[derive(Serialize)]
struct ListedMark<'a> {
    kind: &'static str,
    text: &'a str,
    start: Millis,
    /// `None` for a mark, and for a phase that is not over.
    end: Option<Millis>,
    #[serde(skip_serializing_if = "str::is_empty")]
    notes: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
}

/// The marks, phases and global annotations that overlap a time range, oldest first.
pub(super) async fn marks(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let parameters = QueryParameters::parse(&uri, &["start", "end"])?;
    let now = context.agent.clock.utc();
    let time = |key, default| parse_time(key, parameters.single(key)?.unwrap_or(default), now);
    let (start, end) = (time("start", "-1h")?, time("end", "now")?);
    let annotations = context.agent.annotations.clone();
    if let Some(tree) = tree {
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let deadline = Instant::now() + NODE_VALUES_TIME;
                let nodes = tree.all_nodes();
                let all = all_annotations(&annotations, &nodes, (start, end), deadline)?;
                write_marks(buffer, &all, start, end)
            })
            .await;
    }
    context
        .respond_latest(&caller, &headers, move |buffer| {
            write_marks(buffer, &annotations, start, end)
        })
        .await
}

fn write_marks(
    buffer: &mut ResponseBuffer,
    annotations: &Annotations,
    start: Millis,
    end: Millis,
) -> Result<(), ApiError> {
    let (found, left_out) = annotations.overlapping(start, end, MARKS_MAX);
    buffer.json(&MarkList {
        marks: found.iter().map(listed_mark).collect(),
        left_out,
    })
}

fn listed_mark(note: &Annotation) -> ListedMark<'_> {
    let labels = note.custom.iter().flatten();
    let labels = labels.filter(|(key, _)| *key != KIND_LABEL);
    ListedMark {
        kind: note.mark_kind().map_or("annotation", MarkKind::as_str),
        text: &note.description,
        start: note.start(),
        end: note.end(),
        notes: &note.notes,
        labels: labels.map(|(key, value)| (&**key, &**value)).collect(),
    }
}
