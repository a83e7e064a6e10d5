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
    pub method: &'a str,
    /// The path, percent-encoded.
    pub path: &'a str,
    /// The query string, without its question mark.
    pub query: &'a str,
    /// The header `Content-Type`; empty without one.
    pub content_type: &'a str,
    /// The label `instance` of this node's series in PromQL.
    pub node_instance: &'a str,
    /// The complete body, decompressed.
    pub body: &'a [u8],
}

/// The methods of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestMethods {
    Post,
    PostPutDelete,
}

/// How the bodies of a route are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEncoding {
    /// As the header `Content-Encoding` says: not at all, or with gzip.
    ByHeader,
    /// With snappy, in its block format; another `Content-Encoding` is refused.
    Snappy,
    /// One gRPC message, compressed as stated in the header `grpc-encoding`.
    Grpc,
}

/// The status and the headers of a response.
#[derive(Debug)]
pub struct InputReply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
}

impl InputReply {
    pub fn new(status: u16) -> InputReply {
        let headers = Vec::new();
        InputReply { status, headers }
    }

    pub fn with_headers(mut self, headers: Vec<(&'static str, String)>) -> InputReply {
        self.headers = headers;
        self
    }
}

/// Handles the requests of one route.
pub trait RequestHandler: Send + Sync {
    fn methods(&self) -> RequestMethods {
        RequestMethods::Post
    }

    fn body_encoding(&self) -> BodyEncoding {
        BodyEncoding::ByHeader
    }

    /// Handles a request. Writes the response, if it has a body, and returns the status code. A
    /// body is JSON, unless the reply has a header `content-type`.
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError>;

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
        headers: Vec<(&'static str, String)>,
    },
    #[error("cannot write the response")]
    Write(#[from] io::Error),
}

impl InputError {
    pub fn refused(status: u16, message: impl ToString, hint: &'static str) -> InputError {
        InputError::Refused {
            status,
            message: message.to_string(),
            hint,
            headers: Vec::new(),
        }
    }

    pub fn bad_request(message: impl ToString, hint: &'static str) -> InputError {
        InputError::refused(400, message, hint)
    }

    pub fn unavailable(message: impl ToString, hint: &'static str) -> InputError {
        InputError::refused(503, message, hint)
    }

    /// Returns the same error with headers of the response.
    pub fn with_headers(mut self, added: Vec<(&'static str, String)>) -> InputError {
        if let InputError::Refused { headers, .. } = &mut self {
            headers.extend(added);
        }
        self
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
