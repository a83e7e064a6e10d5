//! `POST /tree/select` and `POST /tree/annotations`: what a parent needs for its own responses. To
//! all other clients these paths do not exist.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Extension;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use bytes::Bytes;
use pegel_metric::{Family, MetricKind, Millis, Series};
use pegel_query::promql::{
    LabelMatcher, LabelSet, PromqlError, PromqlErrorKind, QueryCancellation, Selection,
    SeriesSource, StoreSource,
};
use pegel_store::{QueryError, RangeQuery, TimeLimit};
use pegel_tree_protocol::{
    SelectTooLarge, SelectWriter, SelectedSeries, encode_times, encode_values,
    select_request::Content,
};

use super::prometheus::CancelOnDrop;
use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::guard::{Caller, PeerIdentity};
use crate::json_response::JSON;
use crate::query_parameters::QueryParameters;
use crate::request_history::RequestHistory;
use crate::tree::{
    ChosenNodes, FanOutLimits, NodeAnnotation, NodeAnnotations, NodeChoice, NodeRecord,
    RequestTree, SelectPlan, SelectView, TreeDeadline, annotations_below, latest_columns,
    to_selected,
};

/// PromQL needs no more of a series than its labels.
static UNKNOWN_FAMILY: Family = Family::new("", MetricKind::Unknown, "", 1, "");

pub(super) const PROTOBUF: &str = "application/x-protobuf";
/// The longest time for a response.
pub(super) const SELECT_TIME: Duration = Duration::from_secs(60);

/// Refuses requests that do not come from a parent itself.
pub(super) fn check_peer(caller: &Caller, uri: &Uri) -> Result<(), ApiError> {
    match caller.peer {
        PeerIdentity::Tree => Ok(()),
        _ => {
            let message = format!("no such path: {}", uri.path());
            Err(ApiError::new(StatusCode::NOT_FOUND, message).hint("GET / lists the routes"))
        }
    }
}

/// Returns the series of this agent and of the nodes below it.
pub(super) async fn select(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let plan = SelectPlan::parse(&body)?;
    if plan.content == Content::Latest {
        context.refresh_programs().await;
    }
    let received = Instant::now();
    let deadline = deadline.map_or(received + SELECT_TIME, |Extension(deadline)| deadline.0);
    let cancellation = QueryCancellation::default();
    let _cancel = CancelOnDrop(cancellation.clone());
    let bytes_max = usize::try_from(plan.request.bytes_max).unwrap_or(usize::MAX);
    let limits = FanOutLimits {
        deadline,
        bytes_max: bytes_max.min(context.settings.response_bytes_max),
        cancellation,
    };
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let nodes = match tree {
            Some(tree) => {
                let choice = match plan.request.nodes.is_empty() {
                    true => NodeChoice::All,
                    false => NodeChoice::named(plan.request.nodes.iter().cloned()),
                };
                // Nodes that moved to another parent meanwhile are left out.
                Some((
                    ChosenNodes::new(tree.clone(), tree.index(), choice),
                    tree.record,
                ))
            }
            None => None,
        };
        // What is missing from the history of a node makes it late for its parent.
        let history = RequestHistory::of(&context);
        let mut answer = SelectAnswer {
            own: context.promql_for(history.as_ref()),
            context: &context,
            writer: SelectWriter::new(limits.bytes_max),
            limits: &limits,
            host: String::new(),
        };
        let record = match &nodes {
            None => {
                answer.write_own(&plan)?;
                let record = NodeRecord::default();
                record.expect([context.agent.node.as_str()]);
                Arc::new(record)
            }
            Some((nodes, record)) => {
                answer.host = context.agent.node.clone();
                if nodes.includes_own() {
                    answer.write_own(&plan)?;
                }
                let found = nodes.select(plan.request.clone(), &|_| true, &limits)?;
                let mut limit = limits.time();
                for series in found {
                    limit.spend(TimeLimit::STEP + series.values.len())?;
                    answer.writer.series(&series).map_err(too_large)?;
                }
                record.clone()
            }
        };
        if history.is_some_and(|history| history.is_incomplete()) {
            record.miss([context.agent.node.as_str()]);
        }
        buffer.adopt(answer.writer.finish(record.select_end()).into())?;
        buffer.finish(PROTOBUF, false)
    });
    Ok(made.await?.into_response())
}

fn too_large(error: SelectTooLarge) -> ApiError {
    QueryError::TooLarge(error.limit).into()
}

pub(super) fn promql_failure(error: PromqlError) -> ApiError {
    let status = StatusCode::from_u16(error.kind().status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    ApiError::new(status, error.to_string())
}

/// A selection fails in execution only if it exceeds its memory.
fn selection_failure(error: PromqlError) -> ApiError {
    match error.kind() {
        PromqlErrorKind::Execution => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
        _ => promql_failure(error),
    }
}

struct SelectAnswer<'a> {
    context: &'a ServerContext,
    own: StoreSource,
    writer: SelectWriter,
    limits: &'a FanOutLimits,
    /// Empty on a node without a tree: its parent knows the name.
    host: String,
}

impl SelectAnswer<'_> {
    /// Writes the series of this agent.
    fn write_own(&mut self, plan: &SelectPlan) -> Result<(), ApiError> {
        match (&plan.view, plan.content) {
            (SelectView::Promql(matchers), _) => self.write_promql(plan, matchers),
            (SelectView::Stored(selector), Content::Latest) => {
                let store = &self.context.agent.store;
                let mut written = Ok(());
                store.latest_until(self.limits.deadline, selector, 0, &mut |series, latest| {
                    if written.is_ok() {
                        let (times, values) = latest_columns(latest);
                        written = self.writer.series(&SelectedSeries {
                            times,
                            values,
                            ..to_selected(series, &self.host)
                        });
                    }
                })?;
                written.map_err(too_large)
            }
            (SelectView::Stored(selector), content) => {
                let (start, end) = (plan.request.start_ms, plan.request.end_ms);
                let query = RangeQuery {
                    bytes_max: self.limits.bytes_max,
                    deadline: self.limits.deadline,
                    cancellation: self.limits.cancellation.clone(),
                    ..RangeQuery::new(selector.clone(), start, end, plan.step)
                };
                self.write_stored(&query, content == Content::Samples)
            }
        }
    }

    fn write_stored(&mut self, query: &RangeQuery, has_samples: bool) -> Result<(), ApiError> {
        let store = self.own.stored_series();
        let mut written = Ok(());
        // The store's scan cannot be stopped; after the first error the rest is skipped.
        if has_samples {
            store.query_range(query, &mut |series, points| {
                if written.is_ok() {
                    let (times, values): (Vec<Millis>, Vec<f64>) = points.iter().copied().unzip();
                    written = self.writer.series(&SelectedSeries {
                        times: encode_times(&times).into(),
                        values: encode_values(&values).into(),
                        ..to_selected(series, &self.host)
                    });
                }
            })?;
        } else {
            store.series(query, &mut |series| {
                if written.is_ok() {
                    written = self.writer.series(&to_selected(series, &self.host));
                }
            })?;
        }
        written.map_err(too_large)
    }

    fn write_promql(
        &mut self,
        plan: &SelectPlan,
        matchers: &[LabelMatcher],
    ) -> Result<(), ApiError> {
        let source = self.own.clone();
        let selection = Selection {
            matchers,
            input: None,
            start: plan.request.start_ms,
            end: plan.request.end_ms,
            bytes_max: self.limits.bytes_max,
            deadline: self.limits.deadline,
            cancellation: self.limits.cancellation.clone(),
        };
        let write = |writer: &mut SelectWriter, selected: &SelectedSeries| {
            let written = writer.series(selected);
            let failure = |error: SelectTooLarge| {
                PromqlError::new(PromqlErrorKind::TooLarge, error.to_string())
            };
            written.map_err(failure)
        };
        let written = match plan.content {
            Content::Samples => {
                // Series of one group share their times, and so their encoded form.
                let mut shared: (Arc<[Millis]>, Bytes) = (Arc::new([]), encode_times(&[]).into());
                source.select(&selection, &mut |labels, samples| {
                    let Some(series) = labelled_series(&labels, &UNKNOWN_FAMILY) else {
                        return Ok(());
                    };
                    if !Arc::ptr_eq(&shared.0, samples.times) {
                        shared = (samples.times.clone(), encode_times(samples.times).into());
                    }
                    let selected = SelectedSeries {
                        times: shared.1.clone(),
                        values: encode_values(samples.values).into(),
                        ..to_selected(&series, &self.host)
                    };
                    write(&mut self.writer, &selected)
                })
            }
            _ => source.series(&selection, &mut |labels, family| match labelled_series(
                &labels, family,
            ) {
                Some(series) => write(&mut self.writer, &to_selected(&series, &self.host)),
                None => Ok(()),
            }),
        };
        written.map_err(selection_failure)
    }
}

/// Returns a series with the name and labels that PromQL shows. `None` if they exceed the limits of
/// a series, as only texts of marks can.
fn labelled_series(labels: &LabelSet, family: &Family) -> Option<Series> {
    let own = labels.iter().filter(|(key, _)| *key != "__name__");
    let own: Vec<(&str, &str)> = own.collect();
    let series = Series::named(Arc::new(family.clone()), labels.metric_name(), &own);
    if let Err(error) = &series {
        tracing::warn!(%error, name = labels.metric_name(), "a series is not sent to the parent");
    }
    series.ok()
}

/// Returns the annotations of this agent and of the nodes below it.
pub(super) async fn annotations(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    deadline: Option<Extension<TreeDeadline>>,
    uri: Uri,
) -> HandlerResult {
    check_peer(&caller, &uri)?;
    let parameters = QueryParameters::parse(&uri, &["start", "end"])?;
    let time = |key: &'static str, default: Millis| -> Result<Millis, ApiError> {
        let text = parameters.single(key)?;
        let time = text.map_or(Ok(default), str::parse);
        time.map_err(|_| ApiError::bad_request(format!("{key}: not a time in milliseconds")))
    };
    let range = (time("start", 0)?, time("end", Millis::MAX)?);
    let deadline = deadline.map_or(Instant::now() + SELECT_TIME, |Extension(deadline)| {
        deadline.0
    });
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let own = context.agent.annotations.in_range(range.0, range.1);
        let host = match &tree {
            Some(_) => context.agent.node.clone(),
            None => String::new(),
        };
        let own = own.into_iter().map(|annotation| NodeAnnotation {
            host: host.clone(),
            annotation,
        });
        let mut list = NodeAnnotations {
            annotations: own.collect(),
            late: Vec::new(),
        };
        if let Some(tree) = &tree {
            let below = annotations_below(&tree.all_nodes(), range, deadline)?;
            list.annotations.extend(below);
            list.late = tree.record.report().late;
        }
        buffer.json(&list)?;
        buffer.finish(JSON, false)
    });
    Ok(made.await?.into_response())
}
