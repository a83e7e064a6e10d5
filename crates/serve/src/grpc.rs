//! Converts responses of routes to gRPC. A request is one message (`BodyMemory::unframe_grpc`); its
//! response is one message with the status in the trailers, or a status alone. Routes and their
//! checks are the same as for HTTP/1.1.

use std::fmt::Write;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::status::{RpcCode, RpcStatus};

use crate::api_error::ErrorText;

const GRPC: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The largest response. Inputs send far smaller ones.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of an error message: clients limit all headers together to 8 KiB.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Returns whether a request is a gRPC request with protobuf.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let rest = content_type.and_then(|value| value.strip_prefix(GRPC));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("+proto") || rest.starts_with(';'))
}

/// Converts the response of a route to a gRPC response.
pub(crate) async fn grpc_response(response: Response<Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        let reason = head.status.canonical_reason().unwrap_or("failed");
        let text = head.extensions.get::<ErrorText>();
        let text = text.map_or(reason, |text| &text.0);
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        return status_response(RpcCode::from_http(head.status.as_u16()), text, retry_after);
    }
    match Limited::new(body, RESPONSE_BYTES_MAX).collect().await {
        Ok(body) => message_response(&body.to_bytes()),
        Err(_) => status_response(RpcCode::Internal, "the response is too large", None),
    }
}

fn message_response(message: &[u8]) -> Response<Body> {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(frame)).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    insert_content_type(&mut response);
    response
}

/// Returns a response without a message: the status is in its headers.
fn status_response(code: RpcCode, text: &str, retry_after: Option<u32>) -> Response<Body> {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let mut response = Response::new(Body::empty());
    insert_content_type(&mut response);
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from(code as u16));
    // Percent-encoded text is always a valid value.
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(text)) {
        headers.insert(MESSAGE, text);
    }
    if retry_after.is_some() {
        let status = RpcStatus::new(code, text, retry_after).encode_to_vec();
        if let Ok(details) = HeaderValue::from_str(&STANDARD_NO_PAD.encode(status)) {
            headers.insert(DETAILS, details);
        }
    }
    response
}

fn insert_content_type(response: &mut Response<Body>) {
    let content_type = HeaderValue::from_static(GRPC);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
}

/// Encodes a message as gRPC requires: printable ASCII without `%`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;
    use crate::api_error::ApiError;

    fn converted(response: Response<Body>) -> Response<Body> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .expect("a runtime")
            .block_on(grpc_response(response))
    }

    #[test]
    fn only_protobuf_over_grpc_is_accepted() {
        let is_grpc = |content_type: &'static str| {
            let value = HeaderValue::from_static(content_type);
            is_grpc(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        assert!(is_grpc("application/grpc") && is_grpc("application/grpc+proto"));
        for other in [
            "application/grpc-web",
            "application/grpc+json",
            "application/json",
        ] {
            assert!(!is_grpc(other), "{other}");
        }
    }

    #[test]
    fn errors_become_a_status_with_the_delay_before_a_retry() {
        let retry = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from(30))]);
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "100 % used\n").headers(retry);
        let response = converted(error.into_response());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[STATUS], "8");
        assert_eq!(response.headers()[MESSAGE], "100 %25 used%0A");
        let details = STANDARD_NO_PAD.decode(&response.headers()[DETAILS]);
        let status = RpcStatus::decode(&*details.expect("base64")).expect("a status");
        assert_eq!(status.retry_after(), Some(30));
        let error = ApiError::bad_request("ü".repeat(1000)).hint("x");
        let response = converted(error.into_response());
        assert_eq!(response.headers()[STATUS], "3");
        assert!(!response.headers().contains_key(DETAILS));
        assert_eq!(response.headers()[MESSAGE].len(), 3 * MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_message_is_framed_and_followed_by_its_status() {
        let response = converted(Response::new(Body::from("abc")));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let body = runtime
            .expect("a runtime")
            .block_on(response.into_body().collect());
        let body = body.expect("a body");
        assert_eq!(body.trailers().expect("trailers")[STATUS], "0");
        assert_eq!(body.to_bytes(), &b"\0\0\0\0\x03abc"[..]);
    }
}
