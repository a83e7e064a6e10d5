//! The error type of the OpenTSDB API.

use std::io;

use pegel_store::QueryError;

/// Why a request failed, with the status and the wording that an OpenTSDB client expects.
#[derive(Debug, thiserror::Error)]
pub enum OpentsdbError {
    #[error("{message}")]
    Refused {
        status: u16,
        message: String,
        /// What is accepted, or what to do.
        details: Option<String>,
    },
    #[error("{0}")]
    Store(#[from] QueryError),
    /// The writer of the caller failed.
    #[error("cannot write the response")]
    Write(#[source] io::Error),
}

impl OpentsdbError {
    pub fn new(status: u16, message: impl Into<String>) -> OpentsdbError {
        OpentsdbError::Refused {
            status,
            message: message.into(),
            details: None,
        }
    }

    /// Creates an error for a malformed request (400).
    pub fn bad_request(message: impl Into<String>) -> OpentsdbError {
        OpentsdbError::new(400, message)
    }

    /// Creates an error for a request that exceeds a limit (413).
    pub fn too_large(message: impl Into<String>) -> OpentsdbError {
        OpentsdbError::new(413, message)
    }

    pub fn with_details(mut self, text: impl Into<String>) -> OpentsdbError {
        if let OpentsdbError::Refused { details, .. } = &mut self {
            *details = Some(text.into());
        }
        self
    }

    /// Creates the error for an unknown name, in OpenTSDB's wording.
    pub(crate) fn unknown_name(kind: &str, name: &str) -> OpentsdbError {
        OpentsdbError::bad_request(format!("No such name for '{kind}': '{name}'"))
    }

    pub fn status(&self) -> u16 {
        match self {
            OpentsdbError::Refused { status, .. } => *status,
            OpentsdbError::Store(QueryError::TooLarge(_)) => 413,
            OpentsdbError::Store(QueryError::TooLong | QueryError::Canceled) => 504,
            OpentsdbError::Store(QueryError::Step | QueryError::Reversed) => 400,
            OpentsdbError::Store(QueryError::Read { .. }) | OpentsdbError::Write(_) => 500,
        }
    }

    pub fn details(&self) -> Option<&str> {
        match self {
            OpentsdbError::Refused { details, .. } => details.as_deref(),
            _ => None,
        }
    }
}
