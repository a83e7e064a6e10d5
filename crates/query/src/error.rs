use std::io;

use pegel_store::QueryError;

/// Why there is no answer, with the status and the words that an OpenTSDB client expects.
#[derive(Debug, thiserror::Error)]
pub enum OpentsdbError {
    #[error("{message}")]
    Refused {
        status: u16,
        message: String,
        /// What to do about it.
        details: Option<String>,
    },
    #[error("{0}")]
    Store(#[from] QueryError),
    /// The answer could not be written; whoever gave the writer knows why.
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

    /// A request that cannot be right.
    pub fn bad_request(message: impl Into<String>) -> OpentsdbError {
        OpentsdbError::new(400, message)
    }

    /// A request that asks for more than one answer may hold.
    pub fn too_large(message: impl Into<String>) -> OpentsdbError {
        OpentsdbError::new(413, message)
    }

    pub fn with_details(mut self, text: impl Into<String>) -> OpentsdbError {
        if let OpentsdbError::Refused { details, .. } = &mut self {
            *details = Some(text.into());
        }
        self
    }

    /// No series of this name was ever stored, as OpenTSDB says it.
    pub(crate) fn unknown_name(kind: &str, name: &str) -> OpentsdbError {
        OpentsdbError::bad_request(format!("No such name for '{kind}': '{name}'"))
    }

    pub fn status(&self) -> u16 {
        match self {
            OpentsdbError::Refused { status, .. } => *status,
            OpentsdbError::Store(QueryError::TooLarge(_)) => 413,
            OpentsdbError::Store(QueryError::TooLong) => 504,
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
