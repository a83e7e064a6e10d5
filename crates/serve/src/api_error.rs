use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pegel_store::{PushError, QueryError};
use serde_json::json;

/// An answer that says why there is no better one: `{"error":{"code","message","hint"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    hint: Option<String>,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            hint: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> ApiError {
        self.hint = Some(hint.into());
        self
    }

    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn uri_too_long(bytes_max: usize) -> ApiError {
        let message = format!("the URI is longer than {bytes_max} bytes");
        ApiError::new(StatusCode::URI_TOO_LONG, message)
            .hint("use a pattern in place of a list of names")
    }

    pub fn body_too_large(bytes_max: usize) -> ApiError {
        let message = format!("the body is larger than {bytes_max} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).hint("send it in parts")
    }

    pub fn response_too_large(bytes_max: usize) -> ApiError {
        let message = format!("the answer is larger than {bytes_max} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
            .hint("ask for fewer series, less time or a larger step")
    }

    pub fn response_memory_full() -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "answers that are still being read take all the memory set aside for them",
        )
        .hint("try again later, or ask for less")
    }

    pub fn timed_out() -> ApiError {
        ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the answer could not be made in time",
        )
        .hint("ask for less, or try again when the agent is less busy")
    }

    pub fn too_many_connections() -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections")
            .hint("close idle connections or try again later")
    }

    pub fn tls_required() -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "this address speaks TLS")
            .hint("use https:// in place of http://")
    }

    pub fn internal() -> ApiError {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the agent made a mistake; its log says more",
        )
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    fn to_json(&self) -> serde_json::Value {
        let mut error = json!({"code": self.status.as_u16(), "message": self.message});
        if let Some(hint) = &self.hint {
            error["hint"] = json!(hint);
        }
        json!({"error": error})
    }

    /// The whole answer as it goes over the wire, for a client that is not served at all.
    pub fn to_http(&self) -> String {
        let body = self.to_json().to_string();
        format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/json")];
        (self.status, headers, self.to_json().to_string()).into_response()
    }
}

impl From<PushError> for ApiError {
    fn from(error: PushError) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            .hint("nothing was stored; try again later")
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        let status = match &error {
            QueryError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            QueryError::TooLong => StatusCode::GATEWAY_TIMEOUT,
            QueryError::Step | QueryError::Reversed => StatusCode::BAD_REQUEST,
            QueryError::Read { .. } => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a question failed"
                );
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
