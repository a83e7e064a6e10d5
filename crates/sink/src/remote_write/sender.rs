//! Posts requests to a receiver over a connection that stays open, and classifies the responses.
//! Every wait is bounded by the timeout of a request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use pegel_http_client::{
    HttpConnection, HttpRequest, ServerTrust, ShortResponse, WaitLimit, connect_tcp, tls_config,
};

use super::retry::parse_retry_after;
use super::settings::RemoteWriteSettings;

/// The most bytes of a response that are reported.
const MESSAGE_BYTES_MAX: usize = 300;
/// The header in which a receiver of version 2.0 reports how many samples it stored.
const WRITTEN_HEADER: &str = "x-prometheus-remote-write-samples-written";

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostOutcome {
    Stored,
    /// A retry would be refused again. `written` is the number of samples that were stored
    /// nevertheless, if the receiver reports it.
    Refused {
        message: String,
        written: u64,
    },
    /// The receiver does not read version 2.0.
    NoVersion2,
    /// A later attempt may succeed.
    Retry {
        message: String,
        after: Option<Duration>,
    },
}

/// The connection of one shard.
#[derive(Debug)]
pub(super) struct WriteSender {
    settings: Arc<RemoteWriteSettings>,
    connection: Option<HttpConnection>,
    /// Ends waits for the receiver.
    abort: Arc<AtomicBool>,
}

impl WriteSender {
    pub(super) fn new(settings: &Arc<RemoteWriteSettings>, abort: &Arc<AtomicBool>) -> WriteSender {
        WriteSender {
            settings: settings.clone(),
            connection: None,
            abort: abort.clone(),
        }
    }

    /// Sends a request; `attempt` counts from 0.
    pub(super) fn post(&mut self, body: &Bytes, is_v2: bool, attempt: u32) -> PostOutcome {
        let was_open = self.connection.is_some();
        let mut answer = self.exchange(body, is_v2, attempt);
        // The receiver may have closed an idle connection: retry at once on a new one.
        if was_open && answer.as_ref().is_err_and(is_closed) {
            answer = self.exchange(body, is_v2, attempt);
        }
        match answer {
            Ok(response) => classify(&response, is_v2),
            Err(error) => PostOutcome::Retry {
                message: error.to_string(),
                after: None,
            },
        }
    }

    fn exchange(&mut self, body: &Bytes, is_v2: bool, attempt: u32) -> io::Result<ShortResponse> {
        let settings = self.settings.clone();
        let Some(url) = settings.url.as_ref().map(|url| &url.0) else {
            return Err(io::Error::other("no URL is configured"));
        };
        let deadline = Instant::now() + settings.timeout.duration();
        let authorization = settings.authorization().header();
        let authorization = authorization.map_err(io::Error::other)?;
        let mut headers = message_headers(is_v2);
        let attempt = attempt.to_string();
        if attempt != "0" {
            headers.push(("Retry-Attempt", &attempt));
        }
        headers.extend({ authorization.as_deref() }.map(|value| ("Authorization", value)));
        let more = settings.headers.iter();
        headers.extend(more.map(|(name, value)| (name.as_str(), value.reveal())));
        let request = HttpRequest {
            method: "POST",
            target: if url.path.is_empty() { "/" } else { &url.path },
            host: url.host_header(),
            headers: &headers,
        };
        // Removed first, so that a connection is not used again after an error.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(deadline)?,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = WaitLimit {
            timeout: Some(left.max(Duration::from_millis(1))),
            stop: Some(self.abort.clone()),
        };
        let response = connection.exchange(&request, body.clone(), MESSAGE_BYTES_MAX, &limit)?;
        let closes = response.header("connection") == Some("close");
        self.connection = (!closes).then_some(connection);
        Ok(response)
    }

    fn connect(&self, deadline: Instant) -> io::Result<HttpConnection> {
        let settings = &self.settings;
        let url = settings.url.as_ref().map(|url| &url.0);
        let url = url.ok_or_else(|| io::Error::other("no URL is configured"))?;
        let stream = connect_tcp(&url.host, url.port, deadline)?;
        stream.set_nodelay(true)?;
        if !url.is_encrypted {
            return HttpConnection::over_tcp(stream);
        }
        let config = tls_config(&ServerTrust {
            ca_file: settings.ca_file.clone(),
            accept_any: !settings.verify_peer,
        })?;
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        HttpConnection::over_tls(stream, &url.host, config, left)
    }
}

fn message_headers(is_v2: bool) -> Vec<(&'static str, &'static str)> {
    let (content_type, version) = match is_v2 {
        true => (
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            "2.0.0",
        ),
        false => ("application/x-protobuf", "0.1.0"),
    };
    vec![
        ("Content-Type", content_type),
        ("Content-Encoding", "snappy"),
        ("X-Prometheus-Remote-Write-Version", version),
        ("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION"))),
    ]
}

/// Returns whether the receiver closed the connection before it answered.
fn is_closed(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::ConnectionAborted
    )
}

fn classify(response: &ShortResponse, is_v2: bool) -> PostOutcome {
    let status = response.status;
    let written = response.header(WRITTEN_HEADER);
    let written = written.and_then(|count| count.trim().parse::<u64>().ok());
    let text = String::from_utf8_lossy(&response.body);
    let message = match text.trim() {
        "" => format!("HTTP status {status}"),
        text => format!("HTTP status {status}: {text}"),
    };
    match status {
        // A receiver of 1.0 that ignores the content type finds no series in a message of 2.0: it
        // answers with success, without the header.
        200..300 if is_v2 && written.is_none() => PostOutcome::NoVersion2,
        200..300 => PostOutcome::Stored,
        415 if is_v2 => PostOutcome::NoVersion2,
        429 | 500.. => {
            let after = response.header("retry-after");
            let after = after.and_then(|text| parse_retry_after(text, SystemTime::now()));
            PostOutcome::Retry { message, after }
        }
        400..500 => PostOutcome::Refused {
            message,
            written: written.unwrap_or(0),
        },
        // Redirects are not followed. They are retried until the configuration is corrected.
        _ => PostOutcome::Retry {
            message,
            after: None,
        },
    }
}
