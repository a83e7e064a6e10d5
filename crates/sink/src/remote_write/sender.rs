//! Posts requests to a receiver over a connection that stays open, and classifies the responses.
//! Every wait is bounded by the timeout of a request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use pegel_http_client::{
    HttpConnection, HttpRequest, ServerTrust, ShortResponse, WaitLimit, connect_tcp_with_limit,
    tls_config,
};

use super::retry::parse_retry_after;
use super::settings::RemoteWriteSettings;

/// The most bytes of a response that are reported.
const MESSAGE_BYTES_MAX: usize = 300;
/// The header in which a receiver of version 2.0 reports how many samples it stored.
const WRITTEN_HEADER: &str = "x-prometheus-remote-write-samples-written";
/// Errors of the client that do not depend on the samples: missing or expired credentials, a wrong
/// path, limits, and proxies. The samples wait until the cause is corrected.
const UNRELATED_TO_SAMPLES: [u16; 10] = [401, 402, 403, 404, 405, 407, 408, 421, 425, 429];
/// The beginning of VictoriaMetrics' answer to a wrong path, which has the status 400.
const WRONG_PATH: &str = "unsupported path requested";

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

    /// Sends a request; `attempt` counts from 0. Sets `may_be_stored` if the receiver may have
    /// stored the samples without confirming them: the answer was lost, or is an error of the
    /// server.
    pub(super) fn post(
        &mut self,
        body: &Bytes,
        is_v2: bool,
        attempt: u32,
        may_be_stored: &mut bool,
    ) -> PostOutcome {
        let was_open = self.connection.is_some();
        let mut answer = self.exchange(body, is_v2, attempt, may_be_stored);
        // The receiver may have closed an idle connection: retry at once on a new one.
        if was_open && answer.as_ref().is_err_and(is_closed) {
            answer = self.exchange(body, is_v2, attempt, may_be_stored);
        }
        match answer {
            Ok(response) => {
                *may_be_stored |= response.status >= 500;
                let written = response.header(WRITTEN_HEADER);
                let retry_after = response.header("retry-after");
                let headers = (written, retry_after);
                classify(response.status, headers, &response.body, is_v2)
            }
            Err(error) => PostOutcome::Retry {
                message: error.to_string(),
                after: None,
            },
        }
    }

    fn exchange(
        &mut self,
        body: &Bytes,
        is_v2: bool,
        attempt: u32,
        may_be_stored: &mut bool,
    ) -> io::Result<ShortResponse> {
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
        let limit = self.limit(deadline);
        let response = connection
            .exchange(&request, body.clone(), MESSAGE_BYTES_MAX, &limit)
            .inspect_err(|_| *may_be_stored = true)?;
        let closes = response.header("connection") == Some("close") || !response.is_complete;
        self.connection = (!closes).then_some(connection);
        Ok(response)
    }

    /// Returns the limits of a wait: until the deadline, or until the agent ends.
    fn limit(&self, deadline: Instant) -> WaitLimit {
        let left = deadline.saturating_duration_since(Instant::now());
        WaitLimit {
            timeout: Some(left.max(Duration::from_millis(1))),
            stop: Some(self.abort.clone()),
        }
    }

    fn connect(&self, deadline: Instant) -> io::Result<HttpConnection> {
        let settings = &self.settings;
        let url = settings.url.as_ref().map(|url| &url.0);
        let url = url.ok_or_else(|| io::Error::other("no URL is configured"))?;
        let stream = connect_tcp_with_limit(&url.host, url.port, &self.limit(deadline))?;
        stream.set_nodelay(true)?;
        if !url.is_encrypted {
            return HttpConnection::over_tcp(stream);
        }
        let config = tls_config(&ServerTrust {
            ca_file: settings.ca_file.clone(),
            accept_any: !settings.verify_peer,
        })?;
        HttpConnection::over_tls_with_limit(stream, &url.host, config, &self.limit(deadline))
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

/// Classifies an answer by its status, by the values of [`WRITTEN_HEADER`] and `Retry-After`, and
/// by the beginning of its body.
fn classify(
    status: u16,
    (written, retry_after): (Option<&str>, Option<&str>),
    body: &[u8],
    is_v2: bool,
) -> PostOutcome {
    let written = written.and_then(|count| count.trim().parse::<u64>().ok());
    // Without control characters: the message is written to logs and terminals.
    let text = String::from_utf8_lossy(body).replace(char::is_control, " ");
    let is_wrong_path = status == 400 && text.trim_start().starts_with(WRONG_PATH);
    let is_about_samples = !is_wrong_path && !UNRELATED_TO_SAMPLES.contains(&status);
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
        400..500 if is_about_samples => PostOutcome::Refused {
            message,
            written: written.unwrap_or(0),
        },
        // Redirects are not followed. They are retried until the configuration is corrected.
        _ => PostOutcome::Retry {
            message,
            after: retry_after.and_then(|text| parse_retry_after(text, SystemTime::now())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, written: Option<&str>, is_v2: bool) -> &'static str {
        match classify(status, (written, None), b"", is_v2) {
            PostOutcome::Stored => "stored",
            PostOutcome::Refused { .. } => "refused",
            PostOutcome::NoVersion2 => "no version 2",
            PostOutcome::Retry { .. } => "retry",
        }
    }

    #[test]
    fn only_answers_about_the_samples_are_final() {
        for status in [200, 202, 204] {
            assert_eq!(kind(status, None, false), "stored", "{status}");
        }
        for status in [400, 409, 410, 411, 413, 415, 422, 431] {
            assert_eq!(kind(status, None, false), "refused", "{status}");
        }
        for status in [
            301, 307, 401, 402, 403, 404, 405, 407, 408, 421, 425, 429, 500, 502, 503, 504, 599,
        ] {
            assert_eq!(kind(status, None, false), "retry", "{status}");
        }
        assert_eq!(kind(204, Some("7"), true), "stored");
        assert_eq!(kind(204, None, true), "no version 2");
        assert_eq!(kind(415, None, true), "no version 2");
    }

    #[test]
    fn samples_wait_while_the_path_is_wrong() {
        let body = b"unsupported path requested: \"/\"";
        let answer = classify(400, (None, None), body, false);
        let expected = PostOutcome::Retry {
            message: "HTTP status 400: unsupported path requested: \"/\"".to_owned(),
            after: None,
        };
        assert_eq!(answer, expected);
        let answer = classify(422, (None, None), body, false);
        assert!(matches!(answer, PostOutcome::Refused { .. }), "{answer:?}");
    }

    #[test]
    fn messages_have_no_control_characters_and_pauses_have_a_limit() {
        let answer = classify(401, (None, Some("99999999")), b"no\x1b[2J\nway\n", false);
        let expected = PostOutcome::Retry {
            message: "HTTP status 401: no [2J way".to_owned(),
            after: Some(Duration::from_secs(600)),
        };
        assert_eq!(answer, expected);
        let answer = classify(400, (Some("3"), None), b" ", true);
        let expected = PostOutcome::Refused {
            message: "HTTP status 400".to_owned(),
            written: 3,
        };
        assert_eq!(answer, expected);
    }
}
