//! The error type of PromQL queries.

use pegel_store::QueryError;

/// The error types of Prometheus' HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromqlErrorKind {
    /// The request is malformed.
    BadData,
    /// The expression cannot be evaluated over these series, or exceeds a limit.
    Execution,
    /// The samples exceed the memory of a query.
    TooLarge,
    Timeout,
    /// The client closed the connection.
    Canceled,
    /// The data cannot be read.
    Internal,
    /// There is no memory or thread for the request at present.
    Unavailable,
}

impl PromqlErrorKind {
    /// Returns the `errorType` of a response.
    pub fn as_str(self) -> &'static str {
        match self {
            PromqlErrorKind::BadData => "bad_data",
            PromqlErrorKind::Execution | PromqlErrorKind::TooLarge => "execution",
            PromqlErrorKind::Timeout => "timeout",
            PromqlErrorKind::Canceled => "canceled",
            PromqlErrorKind::Internal => "internal",
            PromqlErrorKind::Unavailable => "unavailable",
        }
    }

    /// Returns the HTTP status of a response.
    pub fn status(self) -> u16 {
        match self {
            PromqlErrorKind::BadData => 400,
            PromqlErrorKind::Execution => 422,
            PromqlErrorKind::TooLarge => 413,
            PromqlErrorKind::Timeout | PromqlErrorKind::Unavailable => 503,
            PromqlErrorKind::Canceled => 499,
            PromqlErrorKind::Internal => 500,
        }
    }
}

/// Why a query failed, with the type and the wording that Prometheus' clients expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PromqlError {
    kind: PromqlErrorKind,
    message: String,
}

impl PromqlError {
    pub fn new(kind: PromqlErrorKind, message: impl Into<String>) -> PromqlError {
        PromqlError {
            kind,
            message: message.into(),
        }
    }

    pub fn bad_data(message: impl Into<String>) -> PromqlError {
        PromqlError::new(PromqlErrorKind::BadData, message)
    }

    pub fn execution(message: impl Into<String>) -> PromqlError {
        PromqlError::new(PromqlErrorKind::Execution, message)
    }

    pub fn internal(message: impl Into<String>) -> PromqlError {
        PromqlError::new(PromqlErrorKind::Internal, message)
    }

    /// The error of a query that exceeds its time.
    pub fn timeout() -> PromqlError {
        PromqlError::new(
            PromqlErrorKind::Timeout,
            "query timed out in expression evaluation",
        )
    }

    /// The error of a query whose client closed the connection.
    pub fn canceled() -> PromqlError {
        PromqlError::new(
            PromqlErrorKind::Canceled,
            "query was canceled in expression evaluation",
        )
    }

    /// The error of a query that exceeds its samples or its memory.
    pub fn too_many_samples() -> PromqlError {
        PromqlError::execution(
            "query processing would load too many samples into memory in query execution",
        )
    }

    pub(crate) fn same_labels() -> PromqlError {
        PromqlError::execution("vector cannot contain metrics with the same labelset")
    }

    pub fn kind(&self) -> PromqlErrorKind {
        self.kind
    }
}

impl From<QueryError> for PromqlError {
    fn from(error: QueryError) -> PromqlError {
        match error {
            QueryError::TooLarge(_) => PromqlError::too_many_samples(),
            QueryError::TooLong => PromqlError::timeout(),
            QueryError::Canceled => PromqlError::canceled(),
            QueryError::Step | QueryError::Reversed => PromqlError::bad_data(error.to_string()),
            QueryError::Read { .. } => PromqlError::internal(pegel_metric::with_causes(&error)),
        }
    }
}
