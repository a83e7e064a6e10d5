//! Responses with a JSON body.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

pub(crate) const JSON: &str = "application/json";
/// The content type of OpenTSDB's responses.
pub(crate) const OPENTSDB_JSON: &str = "application/json; charset=UTF-8";

pub(crate) fn json_response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type)];
    (status, headers, body.into()).into_response()
}
