//! Prometheus' HTTP API, for Grafana, promtool and other clients of Prometheus. Handlers parse the
//! request; `pegel_query::promql` evaluates expressions. Evaluation runs on the query threads, with
//! a deadline and a memory limit, and ends early if the client closes the connection.

mod encode;
mod evaluation;
mod expression_text;
mod federate;
mod metadata;
mod parameters;
mod remote_read;
mod rules;
mod series;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use pegel_query::promql::{
    PromqlError, PromqlErrorKind, PromqlLimits, QueryCancellation, Selection, StoreSource,
};
use serde_json::json;

use super::ServerContext;
use super::query_http_request::{QueryFailure, QueryHttpRequest};
use crate::api_error::ApiError;
use crate::finished_response::{FinishedResponse, ResponseBuffer};
use crate::json_response::{JSON, json_response};
use crate::request_history::RequestHistory;
use crate::tree::{
    FanOutLimits, PromqlSource, RequestTree, TextRequest, own_texts, texts_of_nodes,
};

use crate::job_query::JobOnNodes;
use parameters::{FormParameters, invalid};

type PrometheusRoute = (&'static str, fn() -> MethodRouter);

/// All routes require [`Access::Read`](super::Access).
pub(super) const ROUTES: &[PrometheusRoute] = &[
    ("/api/v1/query", || get_and_post(evaluation::query)),
    ("/api/v1/query_range", || {
        get_and_post(evaluation::query_range)
    }),
    ("/api/v1/query_exemplars", || {
        get_and_post(evaluation::query_exemplars)
    }),
    ("/api/v1/format_query", || {
        get_and_post(expression_text::format_query)
    }),
    ("/api/v1/parse_query", || {
        get_and_post(expression_text::parse_query)
    }),
    ("/federate", || get(federate::federate)),
    ("/api/v1/series", || get_and_post(series::series)),
    ("/api/v1/labels", || get_and_post(series::labels)),
    ("/api/v1/label/{name}/values", || get(series::label_values)),
    ("/api/v1/metadata", || get(metadata::metadata)),
    ("/api/v1/read", || post(remote_read::read)),
    ("/api/v1/rules", || get(rules::rules)),
    ("/api/v1/alerts", || get(rules::alerts)),
    ("/api/v1/targets", || get(status::targets)),
    ("/api/v1/status/buildinfo", || get(status::buildinfo)),
    ("/api/v1/status/config", || get(status::config)),
    ("/api/v1/status/flags", || get(status::flags)),
    ("/api/v1/status/runtimeinfo", || get(status::runtimeinfo)),
    ("/api/v1/status/tsdb", || get(status::tsdb)),
];

/// Expressions may be too long for a URI, so most requests can be sent as a form, too.
fn get_and_post<H, T>(handler: H) -> MethodRouter
where
    H: axum::handler::Handler<T, ()> + Clone,
    T: 'static,
{
    get(handler.clone()).post(handler)
}

/// A request with its parameters.
struct PrometheusRequest {
    request: QueryHttpRequest,
    parameters: FormParameters,
}

impl<S: Send + Sync> FromRequest<S> for PrometheusRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<PrometheusRequest, Response> {
        let mut request = QueryHttpRequest::from_request(request, state).await?;
        let form = request.plain_body().map_err(body_error_response)?;
        Ok(PrometheusRequest {
            parameters: FormParameters::new(&form, &request.uri),
            request,
        })
    }
}

impl PrometheusRequest {
    /// Returns the limits of this request; `timeout` and `lookback_delta` lower or replace them.
    fn limits(&self) -> Result<PromqlLimits, PromqlError> {
        let mut limits = self.request.context.promql_limits.clone();
        // Clones share it; every request has its own.
        limits.cancellation = QueryCancellation::default();
        if let Some(timeout) = self.parameters.duration("timeout")? {
            limits.time_max = limits.time_max.min(as_duration(timeout));
        }
        if let Some(lookback) = self.parameters.duration("lookback_delta")? {
            if lookback <= 0 {
                return Err(PromqlError::bad_data(
                    "invalid parameter \"lookback_delta\": must be greater than 0",
                ));
            }
            limits.lookback = as_duration(lookback);
        }
        Ok(limits)
    }

    /// Returns the range of `start` and `end`; all times by default.
    fn time_range(&self) -> Result<(i64, i64), PromqlError> {
        let start = self.parameters.time("start")?.unwrap_or(0);
        let end = self.parameters.time("end")?.unwrap_or(i64::MAX);
        if start > end {
            return Err(PromqlError::bad_data(
                "invalid parameter \"end\": end timestamp must not be before start time",
            ));
        }
        Ok((start, end))
    }
}

fn as_duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// What a handler's work gets: the limits that are left when it starts, and the buffer of its
/// response.
struct PrometheusWork<'a> {
    context: Arc<ServerContext>,
    source: PromqlSource,
    /// The series of this agent.
    own: StoreSource,
    history: Option<RequestHistory>,
    /// The job that the client names with `job`.
    job: Option<Arc<JobOnNodes>>,
    tree: RequestTree,
    parameters: FormParameters,
    limits: PromqlLimits,
    /// How long the request waited for a query thread.
    waited: Duration,
    buffer: &'a mut ResponseBuffer,
    warnings: Vec<String>,
    infos: Vec<String>,
}

impl PrometheusWork<'_> {
    /// Returns the texts of all nodes; `None` on an agent without a tree.
    fn node_texts(
        &self,
        request: &TextRequest,
        deadline: Instant,
    ) -> Result<Option<BTreeSet<String>>, PromqlError> {
        let Some(tree) = &self.tree.0 else {
            return Ok(None);
        };
        let limits = FanOutLimits {
            deadline,
            bytes_max: self.limits.bytes_max,
            cancellation: self.limits.cancellation.clone(),
        };
        let own = own_texts(&self.own, request, &limits)?;
        Ok(Some(texts_of_nodes(
            own,
            &tree.all_nodes(),
            request,
            &limits,
        )?))
    }

    /// Returns a selection of series by matchers and time.
    fn selection<'m>(
        &self,
        matchers: &'m [pegel_query::promql::LabelMatcher],
        (start, end): (i64, i64),
        deadline: Instant,
    ) -> Selection<'m> {
        Selection {
            matchers,
            input: None,
            start,
            end,
            bytes_max: self.limits.bytes_max,
            deadline,
            cancellation: self.limits.cancellation.clone(),
        }
    }
}

/// Cancels a query when the future of its request is dropped: the client closed the connection.
pub(in crate::routes) struct CancelOnDrop(pub QueryCancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// How much longer than its timeout a request waits for its own work to notice the deadline.
const DEADLINE_GRACE: Duration = Duration::from_secs(1);

/// Responds with `{"status":"success","data":…}`, where `write` writes the data on a query thread,
/// or with its error.
async fn respond(
    request: PrometheusRequest,
    write: impl FnOnce(&mut PrometheusWork<'_>) -> Result<(), PrometheusFailure> + Send + 'static,
) -> Response {
    let finished = run(request, JSON, |work| {
        work.buffer.text("{\"status\":\"success\",\"data\":")?;
        write(work)?;
        work.warnings.extend(work.tree.warning());
        if let Some(mark) = work.history.as_ref().and_then(RequestHistory::mark) {
            work.warnings.extend(mark.warnings());
            work.infos.extend(mark.info());
        }
        for (key, texts) in [("warnings", &work.warnings), ("infos", &work.infos)] {
            if !texts.is_empty() {
                work.buffer.text(&format!(",\"{key}\":"))?;
                work.buffer.json(texts)?;
            }
        }
        Ok(work.buffer.text("}")?)
    });
    finished_response(finished.await)
}

fn finished_response(finished: Result<FinishedResponse, PrometheusFailure>) -> Response {
    match finished {
        Ok(finished) => finished.into_response(),
        Err(QueryFailure::Query(error)) => error_response(&error),
        Err(QueryFailure::Api(failure)) => api_error_response(failure),
    }
}

/// Runs a handler's work on a query thread; `write` writes the whole response.
async fn run(
    request: PrometheusRequest,
    content_type: &'static str,
    write: impl FnOnce(&mut PrometheusWork<'_>) -> Result<(), PrometheusFailure> + Send + 'static,
) -> Result<FinishedResponse, PrometheusFailure> {
    let mut limits = request.limits()?;
    let PrometheusRequest {
        request,
        parameters,
    } = request;
    let deadline = request.received + limits.time_max;
    let _cancel = CancelOnDrop(limits.cancellation.clone());
    let running = request.respond(content_type, move |request, buffer| {
        let now = Instant::now();
        if deadline <= now {
            return Err(PromqlError::timeout().into());
        }
        limits.time_max = deadline - now;
        let job = parameters.get("job").map(|id| request.find_job(id));
        let job = job
            .transpose()
            .map_err(|error| invalid("job", error.message()))?;
        let own = request.context.promql_for(request.history.as_ref());
        let mut work = PrometheusWork {
            context: request.context.clone(),
            source: request.tree.promql_source(own.clone()),
            own,
            history: request.history.clone(),
            job: job.map(Arc::new),
            tree: request.tree.clone(),
            parameters,
            limits,
            waited: now - request.received,
            buffer,
            warnings: Vec::new(),
            infos: Vec::new(),
        };
        write(&mut work)
    });
    let until = tokio::time::Instant::from_std(deadline + DEADLINE_GRACE);
    match tokio::time::timeout_at(until, running).await {
        Ok(finished) => finished,
        Err(_) => Err(PromqlError::timeout().into()),
    }
}

type PrometheusFailure = QueryFailure<PromqlError>;

impl From<PromqlError> for PrometheusFailure {
    fn from(error: PromqlError) -> PrometheusFailure {
        QueryFailure::Query(error)
    }
}

/// Errors of a body get the form that clients of Prometheus read: to Prometheus, a form that it
/// cannot read is bad data.
fn body_error_response(failure: ApiError) -> Response {
    match failure.status() {
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            error_response(&PromqlError::bad_data(failure.message()))
        }
        _ => api_error_response(failure),
    }
}

/// Limits on responses get the form that clients of Prometheus read.
fn api_error_response(failure: ApiError) -> Response {
    let kind = match failure.status() {
        StatusCode::PAYLOAD_TOO_LARGE => PromqlErrorKind::Execution,
        StatusCode::SERVICE_UNAVAILABLE => PromqlErrorKind::Unavailable,
        StatusCode::INTERNAL_SERVER_ERROR => PromqlErrorKind::Internal,
        _ => return failure.into_response(),
    };
    error_response(&PromqlError::new(kind, failure.message()))
}

/// `{"status":"error","errorType":…,"error":…}`.
fn error_response(error: &PromqlError) -> Response {
    let kind = error.kind();
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if kind == PromqlErrorKind::Internal {
        tracing::error!(error = error as &dyn std::error::Error, "query failed");
    }
    let body = json!({"status": "error", "errorType": kind.as_str(), "error": error.to_string()});
    json_response(status, JSON, body.to_string())
}

/// `{"status":"success","data":…}`.
fn success(data: &serde_json::Value) -> Response {
    let body = json!({"status": "success", "data": data});
    json_response(StatusCode::OK, JSON, body.to_string())
}
