//! Error responses of the HTTP API.
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use pegel_store::QueryError;
use serde_json::json;

use crate::json_response::{JSON, json_response};

/// An error response: `{"error":{"code","message","hint"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    hint: Option<String>,
    /// Further headers; boxed, because few errors have them.
    headers: Option<Box<HeaderMap>>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            hint: None,
            headers: None,
        }
    }

    /// Adds headers to the response.
    pub(crate) fn headers(mut self, headers: HeaderMap) -> ApiError {
        self.headers = (!headers.is_empty()).then(|| Box::new(headers));
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> ApiError {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn uri_too_long(bytes_max: usize) -> ApiError {
        let message = format!("the URI exceeds {bytes_max} bytes");
        ApiError::new(StatusCode::URI_TOO_LONG, message)
            .hint("use a pattern instead of a list of names")
    }

    pub(crate) fn body_too_large(bytes_max: usize) -> ApiError {
        let message = format!("the request body exceeds {bytes_max} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).hint("send it in parts")
    }

    pub(crate) fn response_too_large(bytes_max: usize) -> ApiError {
        let message = format!("the response exceeds {bytes_max} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
            .hint("request fewer series, a shorter time range or a larger step")
    }

    pub(crate) fn response_memory_full() -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the memory for responses is in use by responses that are still being sent",
        )
        .hint("retry later, or request less data")
    }

    pub(crate) fn timed_out() -> ApiError {
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "the request timed out")
            .hint("request less data, or retry when the agent is less busy")
    }

    pub(crate) fn too_many_connections() -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections")
            .hint("close idle connections or retry later")
    }

    pub(crate) fn tls_required() -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "this address requires TLS")
            .hint("use https:// instead of http://")
    }

    pub(crate) fn unknown_node(node: &str) -> ApiError {
        let message = format!("there is no node {node:?} below this agent");
        ApiError::new(StatusCode::NOT_FOUND, message).hint("GET /api/v1/nodes lists the nodes")
    }

    /// The error of a request through the tree that would change something.
    pub(crate) fn only_reads() -> ApiError {
        let message = "requests through the tree can only read";
        ApiError::new(StatusCode::FORBIDDEN, message).hint("send it to the agent of the node")
    }

    pub(crate) fn internal() -> ApiError {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error; see the agent's log",
        )
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn to_json(&self) -> serde_json::Value {
        let mut error = json!({"code": self.status.as_u16(), "message": self.message});
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        json!({"error": error})
    }

    /// The complete response as raw HTTP, for a connection that is refused before it reaches the
    /// router.
    pub(crate) fn to_http(&self) -> String {
        let body = self.to_json().to_string();
        format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
    }
}

/// The message of an error, in the extensions of its response: gRPC has another place for it.
#[derive(Debug, Clone)]
pub(crate) struct ErrorText(pub String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, JSON, self.to_json().to_string());
        let hint = self.hint.as_deref().filter(|hint| !hint.is_empty());
        let text = match hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        };
        response.extensions_mut().insert(ErrorText(text));
        if let Some(headers) = self.headers {
            response.headers_mut().extend(*headers);
        }
        response
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        let status = match &error {
            QueryError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            QueryError::TooLong | QueryError::Canceled => StatusCode::GATEWAY_TIMEOUT,
            QueryError::Step | QueryError::Reversed => StatusCode::BAD_REQUEST,
            QueryError::Read { .. } => {
                tracing::error!(error = &error as &dyn std::error::Error, "query failed");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        ApiError::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_a_whole_answer() {
        let failure = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no").hint("later");
        let body = r#"{"error":{"code":503,"hint":"later","message":"no"}}"#;
        let expected = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(failure.to_http(), expected);
    }
}
