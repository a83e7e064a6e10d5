use std::io;

use pegel_store::QueryError;

/// Why there is no answer, with the status and the words that an OpenTSDB client expects.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
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
    #[error("the answer could not be written")]
    Write(#[source] io::Error),
}

impl Problem {
    pub fn new(status: u16, message: impl Into<String>) -> Problem {
        Problem::Refused {
            status,
            message: message.into(),
            details: None,
        }
    }

    /// A request that cannot be right.
    pub fn bad(message: impl Into<String>) -> Problem {
        Problem::new(400, message)
    }

    /// A request that asks for more than one answer may hold.
    pub fn large(message: impl Into<String>) -> Problem {
        Problem::new(413, message)
    }

    pub fn details(mut self, text: impl Into<String>) -> Problem {
        if let Problem::Refused { details, .. } = &mut self {
            *details = Some(text.into());
        }
        self
    }

    /// No series of this name was ever stored, as OpenTSDB says it.
    pub(crate) fn unknown_name(kind: &str, name: &str) -> Problem {
        Problem::bad(format!("No such name for '{kind}': '{name}'"))
    }

    pub fn status(&self) -> u16 {
        match self {
            Problem::Refused { status, .. } => *status,
            Problem::Store(QueryError::TooLarge(_)) => 413,
            Problem::Store(QueryError::TooLong) => 504,
            Problem::Store(QueryError::Step | QueryError::Reversed) => 400,
            Problem::Store(QueryError::Read { .. }) | Problem::Write(_) => 500,
        }
    }

    pub fn to_details(&self) -> Option<&str> {
        match self {
            Problem::Refused { details, .. } => details.as_deref(),
            _ => None,
        }
    }
}
