//! `POST /api/v1/read`: Prometheus' remote read. The samples of series as PromQL selects them, with
//! the labels that PromQL shows, as one compressed message (`SAMPLES`). Chunks in the format of
//! Prometheus' blocks are optional for a server, and not offered.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_query::promql::{
    LabelMatcher, LabelSet, PromqlError, PromqlLimits, QueryCancellation, Selection, SeriesSource,
    StoreSource,
};
use pegel_wire::prompb::{
    self, Label, Message, Query, ReadRequest, Sample, TimeSeries, label_matcher, read_request,
};

use super::super::query_http_request::QueryFailure;
use super::{CancelOnDrop, DEADLINE_GRACE, PrometheusFailure, api_error_response, error_response};
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::request_history::RequestHistory;
use crate::server_context::ServerContext;
use crate::tree::RequestTree;

/// The largest decompressed request. Its decoded form takes up to thirty times as much.
const REQUEST_BYTES_MAX: usize = 64 << 10;
const QUERIES_MAX: usize = 64;
const MATCHERS_MAX: usize = 64;
/// The tag of the field 1 that contains a message: of the lists in both messages of the response.
const LIST_TAG: u8 = 1 << 3 | 2;

/// Returns the samples that the queries of a request select.
pub(super) async fn read(
    Extension(context): Extension<Arc<ServerContext>>,
    Extension(caller): Extension<Caller>,
    tree: RequestTree,
    history: Option<Extension<RequestHistory>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let own = context.promql_for(history.as_deref());
    match run(context, caller, (tree, own), headers, body).await {
        Ok(body) => {
            let headers = [
                (header::CONTENT_TYPE.as_str(), "application/x-protobuf"),
                (header::CONTENT_ENCODING.as_str(), "snappy"),
                ("x-prometheus-remote-read-version", "0.1.0"),
            ];
            (headers, Body::from(body)).into_response()
        }
        Err(QueryFailure::Query(error)) => error_response(&error),
        Err(QueryFailure::Api(failure)) => api_error_response(failure),
    }
}

async fn run(
    context: Arc<ServerContext>,
    caller: Caller,
    (tree, own): (RequestTree, StoreSource),
    headers: HeaderMap,
    body: Bytes,
) -> Result<Bytes, PrometheusFailure> {
    let mut limits = context.promql_limits.clone();
    // Clones share it; every request has its own.
    limits.cancellation = QueryCancellation::default();
    let deadline = Instant::now() + limits.time_max;
    let _cancel = CancelOnDrop(limits.cancellation.clone());
    let executor = context.clone();
    let work = move || -> Result<Result<Bytes, PromqlError>, ApiError> {
        let bodies = &context.body_memory;
        let body = bodies.decompress_snappy(&headers, &body, caller.rights);
        let body = body.map_err(|(failure, _)| failure)?;
        if body.len() > REQUEST_BYTES_MAX {
            let message = format!("the request exceeds {REQUEST_BYTES_MAX} bytes");
            return Ok(Err(PromqlError::bad_data(message)));
        }
        let source = tree.promql_source(own);
        let response = match respond(&source, &body, &limits, deadline) {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        let packed = snap::raw::Encoder::new().compress_vec(&response);
        drop(response);
        // Only more than four gigabytes cannot be compressed.
        let packed = packed.map_err(|_| ApiError::internal())?;
        let mut buffer = context.executor.response_buffer(caller.rights);
        buffer.adopt(packed)?;
        Ok(Ok(buffer.into_bytes()))
    };
    let running = executor.executor.query(caller.rights, work);
    let until = tokio::time::Instant::from_std(deadline + DEADLINE_GRACE);
    match tokio::time::timeout_at(until, running).await {
        Ok(finished) => Ok(finished??),
        Err(_) => Err(PromqlError::timeout().into()),
    }
}

/// Returns the encoded response, uncompressed.
fn respond(
    source: &impl SeriesSource,
    body: &[u8],
    limits: &PromqlLimits,
    deadline: Instant,
) -> Result<Vec<u8>, PromqlError> {
    let malformed = |error: prompb::DecodeError| {
        PromqlError::bad_data(format!("malformed protobuf message: {error}"))
    };
    let request = ReadRequest::decode(body).map_err(malformed)?;
    let accepted = &request.accepted_response_types;
    let samples = read_request::ResponseType::Samples as i32;
    if !accepted.is_empty() && !accepted.contains(&samples) {
        return Err(PromqlError::bad_data(
            "none of the accepted response types is supported; accept SAMPLES",
        ));
    }
    if request.queries.len() > QUERIES_MAX {
        return Err(PromqlError::bad_data(format!(
            "{} queries; at most {QUERIES_MAX} are accepted",
            request.queries.len()
        )));
    }
    let mut response = Vec::new();
    for query in &request.queries {
        let bytes_left = limits.bytes_max.saturating_sub(response.len());
        let matchers = matchers(query)?;
        let selection = Selection {
            matchers: &matchers,
            input: None,
            start: query.start_timestamp_ms,
            end: query.end_timestamp_ms,
            bytes_max: bytes_left,
            deadline,
            cancellation: limits.cancellation.clone(),
        };
        let result = read_series(source, &selection)?;
        response.push(LIST_TAG);
        put_length(result.len(), &mut response);
        response.extend_from_slice(&result);
    }
    Ok(response)
}

/// Returns the encoded series of one query, sorted by labels.
fn read_series(
    source: &impl SeriesSource,
    selection: &Selection<'_>,
) -> Result<Vec<u8>, PromqlError> {
    let mut bytes_left = selection.bytes_max;
    let mut found: Vec<(LabelSet, Vec<u8>)> = Vec::new();
    source.select(selection, &mut |labels, samples| {
        let label = |(name, value): (&str, &str)| Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let samples = samples.times.iter().zip(samples.values);
        let sample = |(&timestamp, &value): (&i64, &f64)| Sample { timestamp, value };
        let series = TimeSeries {
            labels: labels.iter().map(label).collect(),
            samples: samples.map(sample).collect(),
            ..TimeSeries::default()
        };
        let encoded = series.encode_to_vec();
        bytes_left = bytes_left
            .checked_sub(encoded.len() + labels.bytes())
            .ok_or_else(PromqlError::too_many_samples)?;
        found.push((labels, encoded));
        Ok(())
    })?;
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut result = Vec::new();
    for (_, series) in found {
        result.push(LIST_TAG);
        put_length(series.len(), &mut result);
        result.extend_from_slice(&series);
    }
    Ok(result)
}

fn put_length(len: usize, out: &mut Vec<u8>) {
    // A vector has room for everything.
    let _ = prompb::encode_length_delimiter(len, out);
}

fn matchers(query: &Query) -> Result<Vec<LabelMatcher>, PromqlError> {
    if query.matchers.len() > MATCHERS_MAX {
        return Err(PromqlError::bad_data(format!(
            "{} matchers; at most {MATCHERS_MAX} are accepted",
            query.matchers.len()
        )));
    }
    let conditions = query.matchers.iter().map(|matcher| {
        let operator = match matcher.r#type() {
            label_matcher::Type::Eq => "=",
            label_matcher::Type::Neq => "!=",
            label_matcher::Type::Re => "=~",
            label_matcher::Type::Nre => "!~",
        };
        (&*matcher.name, operator, &*matcher.value)
    });
    LabelMatcher::list(&conditions.collect::<Vec<_>>())
}
