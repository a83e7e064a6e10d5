//! The contract between the server, which receives requests and lines, and the inputs, which handle
//! them. Neither depends on the other: the agent registers the inputs with the server. Handlers may
//! wait for the log, so the server calls them on blocking threads. The server limits the size of
//! bodies and lines before it calls them.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use pegel_metric::DropReason;

/// A request of a client that may send it.
#[derive(Debug, Clone, Copy)]
pub struct InputRequest<'a> {
    /// The name under which samples of the client are counted.
    pub sender: &'a str,
    /// The query string, without its question mark.
    pub query: &'a str,
    /// The complete body, decompressed.
    pub body: &'a [u8],
}

/// Handles the requests of one route.
pub trait RequestHandler: Send + Sync {
    /// Handles a request. Writes the JSON of the response, if it has a body, and returns the status
    /// code.
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<u16, InputError>;

    /// Counts a request whose body did not arrive in full or cannot be decompressed.
    fn count_refused(&self, sender: &str, reason: DropReason);
}

/// Why a request failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{message}")]
    Refused {
        status: u16,
        message: String,
        /// What the client can do about it.
        hint: &'static str,
    },
    #[error("cannot write the response")]
    Write(#[from] io::Error),
}

impl InputError {
    pub fn bad_request(message: impl ToString, hint: &'static str) -> InputError {
        let (status, message) = (400, message.to_string());
        InputError::Refused {
            status,
            message,
            hint,
        }
    }

    pub fn unavailable(message: impl ToString, hint: &'static str) -> InputError {
        let (status, message) = (503, message.to_string());
        InputError::Refused {
            status,
            message,
            hint,
        }
    }
}

/// A client of a line protocol.
#[derive(Debug, Clone)]
pub struct LineClient {
    /// The name under which samples of the client are counted.
    pub sender: String,
    /// The user and the process, if the kernel reports them.
    pub uid: Option<u32>,
    pub pid: Option<u32>,
}

/// Handles the lines of one protocol.
pub trait LineInput: Send + Sync {
    /// Begins the session of a client.
    fn open(&self, client: &LineClient) -> Arc<dyn LineHandler>;
}

/// The session of one client.
pub trait LineHandler: Send + Sync {
    /// Handles complete lines that arrived together, and returns a reply for each that is not
    /// empty.
    fn handle(&self, lines: &[u8]) -> Vec<LineReply>;

    /// Counts a line that did not arrive in full.
    fn count_refused(&self, reason: DropReason);
}

/// What to send to the client, verbatim, or why the line was refused.
pub type LineReply = Result<Cow<'static, str>, String>;
