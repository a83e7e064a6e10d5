//! Prometheus' HTTP API, for Grafana, promtool and other clients of Prometheus. Handlers parse the
//! request; `pegel_query::promql` evaluates expressions. Evaluation runs on the query threads, with
//! a deadline and a memory limit, and ends early if the client closes the connection.

mod encode;
mod evaluation;
mod expression_text;
mod metadata;
mod parameters;
mod rules;
mod series;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::RequestExt;
use axum::extract::{FromRequest, RawPathParams, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use pegel_query::promql::{
    PromqlError, PromqlErrorKind, PromqlLimits, QueryCancellation, Selection,
};
use serde_json::json;

use super::ServerContext;
use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::finished_response::{FinishedResponse, ResponseBuffer};
use crate::guard::{AccessRights, Caller};
use crate::json_response::{JSON, json_response};

use parameters::FormParameters;

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
    ("/api/v1/series", || get_and_post(series::series)),
    ("/api/v1/labels", || get_and_post(series::labels)),
    ("/api/v1/label/{name}/values", || get(series::label_values)),
    ("/api/v1/metadata", || get(metadata::metadata)),
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

/// A request, ready to be handled off the async workers.
struct PrometheusRequest {
    context: Arc<ServerContext>,
    rights: AccessRights,
    headers: HeaderMap,
    parameters: FormParameters,
    /// The decoded part of the path that the route leaves open.
    path_value: String,
    received: Instant,
}

impl<S: Send + Sync> FromRequest<S> for PrometheusRequest {
    type Rejection = Response;

    async fn from_request(mut request: Request, state: &S) -> Result<PrometheusRequest, Response> {
        let received = Instant::now();
        let extensions = request.extensions();
        let (Some(context), Some(caller)) = (
            extensions.get::<Arc<ServerContext>>(),
            extensions.get::<Caller>(),
        ) else {
            // Unreachable: every request has both.
            return Err(ApiError::internal().into_response());
        };
        let (context, rights) = (context.clone(), caller.rights);
        let path = request.extract_parts::<RawPathParams>().await.ok();
        let path_value = path.and_then(|path| path.iter().next().map(|(_, text)| text.to_owned()));
        let (uri, headers) = (request.uri().clone(), request.headers().clone());
        let body = Bytes::from_request(request, state)
            .await
            .map_err(IntoResponse::into_response)?;
        let form = context.body_memory.decompress(&headers, body, rights);
        let form = form.map_err(|(failure, _)| failure.into_response())?;
        Ok(PrometheusRequest {
            parameters: FormParameters::new(&form, &uri),
            context,
            rights,
            headers,
            path_value: path_value.unwrap_or_default(),
            received,
        })
    }
}

impl PrometheusRequest {
    /// Returns the limits of this request; `timeout` and `lookback_delta` lower or replace them.
    fn limits(&self) -> Result<PromqlLimits, PromqlError> {
        let mut limits = self.context.promql_limits.clone();
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
struct PrometheusWork {
    context: Arc<ServerContext>,
    parameters: FormParameters,
    limits: PromqlLimits,
    /// How long the request waited for a query thread.
    waited: Duration,
    buffer: ResponseBuffer,
    warnings: Vec<String>,
    infos: Vec<String>,
}

impl PrometheusWork {
    /// Returns a selection of series by matchers and time.
    fn selection<'a>(
        &self,
        matchers: &'a [pegel_query::promql::LabelMatcher],
        (start, end): (i64, i64),
        deadline: Instant,
    ) -> Selection<'a> {
        Selection {
            matchers,
            start,
            end,
            bytes_max: self.limits.bytes_max,
            deadline,
            cancellation: self.limits.cancellation.clone(),
        }
    }
}

/// Cancels a query when the future of its request is dropped: the client closed the connection.
struct CancelOnDrop(QueryCancellation);

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
    write: impl FnOnce(&mut PrometheusWork) -> Result<(), PrometheusFailure> + Send + 'static,
) -> Response {
    match run(request, write).await {
        Ok(finished) => finished.into_response(),
        Err(PrometheusFailure::Promql(error)) => error_response(&error),
        Err(PrometheusFailure::Api(failure)) => failure.into_response(),
    }
}

async fn run(
    request: PrometheusRequest,
    write: impl FnOnce(&mut PrometheusWork) -> Result<(), PrometheusFailure> + Send + 'static,
) -> Result<FinishedResponse, PrometheusFailure> {
    let mut limits = request.limits()?;
    let deadline = request.received + limits.time_max;
    let _cancel = CancelOnDrop(limits.cancellation.clone());
    let gzip = content_negotiation::accepts_gzip(&request.headers);
    let context = request.context.clone();
    let buffer = context.executor.response_buffer(request.rights);
    let work = move || -> Result<Result<FinishedResponse, PromqlError>, ApiError> {
        let now = Instant::now();
        if deadline <= now {
            return Ok(Err(PromqlError::timeout()));
        }
        limits.time_max = deadline - now;
        let mut work = PrometheusWork {
            context: request.context,
            parameters: request.parameters,
            limits,
            waited: now - request.received,
            buffer,
            warnings: Vec::new(),
            infos: Vec::new(),
        };
        work.buffer.text("{\"status\":\"success\",\"data\":")?;
        match write(&mut work) {
            Ok(()) => {}
            Err(PrometheusFailure::Promql(error)) => return Ok(Err(error)),
            Err(PrometheusFailure::Api(failure)) => return Err(failure),
        }
        for (key, texts) in [("warnings", &work.warnings), ("infos", &work.infos)] {
            if !texts.is_empty() {
                work.buffer.text(&format!(",\"{key}\":"))?;
                work.buffer.json(texts)?;
            }
        }
        work.buffer.text("}")?;
        work.buffer.finish(JSON, gzip).map(Ok)
    };
    let running = context.executor.query(request.rights, work);
    let until = tokio::time::Instant::from_std(deadline + DEADLINE_GRACE);
    match tokio::time::timeout_at(until, running).await {
        Ok(finished) => Ok(finished??),
        Err(_) => Err(PromqlError::timeout().into()),
    }
}

/// Why a request failed: in Prometheus' form, or in that of the other routes.
enum PrometheusFailure {
    Promql(PromqlError),
    Api(ApiError),
}

impl From<PromqlError> for PrometheusFailure {
    fn from(error: PromqlError) -> PrometheusFailure {
        PrometheusFailure::Promql(error)
    }
}

impl From<ApiError> for PrometheusFailure {
    /// Limits on responses get the form that clients of Prometheus read.
    fn from(failure: ApiError) -> PrometheusFailure {
        let kind = match failure.status() {
            StatusCode::PAYLOAD_TOO_LARGE => PromqlErrorKind::Execution,
            StatusCode::SERVICE_UNAVAILABLE => PromqlErrorKind::Unavailable,
            StatusCode::INTERNAL_SERVER_ERROR => PromqlErrorKind::Internal,
            _ => return PrometheusFailure::Api(failure),
        };
        PromqlError::new(kind, failure.message()).into()
    }
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
