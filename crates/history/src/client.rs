//! Sends requests to the engine on the thread of the query. The number of concurrent requests,
//! their time and the bytes of their responses are bounded. After a failure no request is sent for
//! [`RETRY_DELAY`], and then only one, until the engine answers: an engine that is down or hangs
//! takes one query thread, not all of them. A query that is cancelled or has little time itself is
//! not a failure of the engine.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_http_client::{
    Authorization, HttpBody, HttpConnection, HttpRequest, HttpResponse, ServerTrust, WaitLimit,
    connect_tcp, tls_config,
};
use pegel_query::{HistoryProblem, HistoryProblemKind};

use crate::counters::HistoryCounters;
use crate::settings::{EngineUrl, HistorySettings};

/// How long no request is sent after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The most bytes of an error response that are reported.
const MESSAGE_BYTES_MAX: u64 = 300;
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A request to the engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineRequest<'a> {
    /// Appended to the path of the engine's URL.
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Vec<u8>,
}

/// The limits of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestLimit {
    pub deadline: Instant,
    /// Set when the query was cancelled.
    pub stop: Arc<AtomicBool>,
    /// The most bytes of the response.
    pub bytes_max: usize,
}

/// A response with status 200.
pub(crate) struct EngineResponse<'a> {
    /// Recognised by the header `X-Server-Hostname`.
    pub is_victoria_metrics: bool,
    pub body: BufReader<BoundedBody>,
    /// When the request was sent.
    pub began: Instant,
    _slot: RequestSlot<'a>,
}

/// A request without a response of status 200.
#[derive(Debug)]
pub(crate) struct EngineRefusal {
    /// `None` if there was no response.
    pub status: Option<u16>,
    pub problem: HistoryProblem,
}

#[derive(Debug)]
pub(crate) struct EngineClient {
    settings: HistorySettings,
    url: EngineUrl,
    pub address: String,
    /// The number of further requests that may be sent now.
    free: Mutex<u32>,
    freed: Condvar,
    /// `None` while the engine answers. After a failure: the time until which no request is sent;
    /// the first one after it is alone until it ends.
    blocked: Mutex<Option<Instant>>,
    /// The failure after which requests were blocked last, without the address.
    cause: Mutex<String>,
}

impl EngineClient {
    pub(crate) fn new(settings: HistorySettings, url: EngineUrl) -> EngineClient {
        EngineClient {
            address: url.to_string(),
            free: Mutex::new(settings.concurrency.get()),
            freed: Condvar::new(),
            blocked: Mutex::new(None),
            cause: Mutex::default(),
            settings,
            url,
        }
    }

    pub(crate) fn settings(&self) -> &HistorySettings {
        &self.settings
    }

    pub(crate) fn problem(
        &self,
        kind: HistoryProblemKind,
        message: impl std::fmt::Display,
    ) -> HistoryProblem {
        HistoryProblem {
            kind,
            message: format!("{}: {message}", self.address),
        }
    }

    /// Refuses further requests for [`RETRY_DELAY`] after a failure.
    fn block(&self, problem: &HistoryProblem) {
        let address = format!("{}: ", self.address);
        let cause = problem.message.strip_prefix(&address);
        *self.cause.lock() = cause.unwrap_or(&problem.message).to_owned();
        *self.blocked.lock() = Some(Instant::now() + RETRY_DELAY);
    }

    /// Permits requests: the engine answered.
    pub(crate) fn unblock(&self) {
        *self.blocked.lock() = None;
    }

    /// Notes a request without a usable answer. A timeout is a failure of the engine only if it had
    /// a quarter of `history.timeout`: a query with less time must not deny the history to others.
    pub(crate) fn note_failure(&self, problem: &HistoryProblem, began: Instant, stop: &AtomicBool) {
        let is_slow = began.elapsed() >= self.settings.timeout.duration() / 4;
        let is_of_engine = problem.kind != HistoryProblemKind::Timeout || is_slow;
        if is_of_engine && !stop.load(Ordering::Relaxed) {
            self.block(problem);
        }
    }

    fn check_blocked(&self) -> Result<(), HistoryProblem> {
        let blocked = *self.blocked.lock();
        match blocked.filter(|until| Instant::now() < *until) {
            Some(until) => Err(self.blocked_problem(until)),
            None => Ok(()),
        }
    }

    /// Begins a request. After a failure, others are refused until it succeeds or its time is over.
    fn begin(&self, deadline: Instant) -> Result<(), HistoryProblem> {
        let mut blocked = self.blocked.lock();
        match *blocked {
            Some(until) if Instant::now() < until => return Err(self.blocked_problem(until)),
            Some(_) => *blocked = Some(deadline),
            None => {}
        }
        Ok(())
    }

    fn blocked_problem(&self, until: Instant) -> HistoryProblem {
        let left = until.saturating_duration_since(Instant::now());
        let seconds = left.as_secs_f64().ceil().max(1.0);
        let cause = self.cause.lock();
        let message = format!("failed a moment ago: {cause}; next attempt within {seconds} s");
        self.problem(HistoryProblemKind::Busy, message)
    }

    fn slot(&self, limit: &RequestLimit) -> Result<RequestSlot<'_>, HistoryProblem> {
        let mut free = self.free.lock();
        while *free == 0 {
            if self.freed.wait_until(&mut free, limit.deadline).timed_out() && *free == 0 {
                let concurrency = self.settings.concurrency;
                let message = format!("{concurrency} requests are under way (history.concurrency)");
                return Err(self.problem(HistoryProblemKind::Busy, message));
            }
        }
        *free -= 1;
        Ok(RequestSlot(self))
    }

    /// Sends a request. A failure of the engine blocks further requests for [`RETRY_DELAY`].
    pub(crate) fn post(
        &self,
        request: &EngineRequest<'_>,
        limit: &RequestLimit,
        counters: &Arc<HistoryCounters>,
    ) -> Result<EngineResponse<'_>, EngineRefusal> {
        let refusal = |problem| EngineRefusal {
            status: None,
            problem,
        };
        self.check_blocked().map_err(refusal)?;
        let slot = self.slot(limit).map_err(refusal)?;
        // Another request may have failed while this one waited.
        self.begin(limit.deadline).map_err(refusal)?;
        counters.count_request();
        let began = Instant::now();
        let response = self.send(request, limit).map_err(|error| {
            let problem = self.io_problem(&error);
            self.note_failure(&problem, began, &limit.stop);
            refusal(problem)
        })?;
        let body = BoundedBody {
            left: limit.bytes_max as u64,
            deadline: limit.deadline,
            failure: None,
            counters: counters.clone(),
            is_victoria_metrics: response.header("x-server-hostname").is_some(),
            status: response.status,
            body: response.body,
        };
        if body.status != 200 {
            return Err(self.refused(body));
        }
        Ok(EngineResponse {
            is_victoria_metrics: body.is_victoria_metrics,
            body: BufReader::with_capacity(READ_BUFFER_BYTES, body),
            began,
            _slot: slot,
        })
    }

    fn io_problem(&self, error: &io::Error) -> HistoryProblem {
        match error.kind() {
            io::ErrorKind::TimedOut => self.problem(
                HistoryProblemKind::Timeout,
                "no response within the timeout",
            ),
            io::ErrorKind::ConnectionAborted => {
                self.problem(HistoryProblemKind::Unreachable, "the query was cancelled")
            }
            _ => self.problem(HistoryProblemKind::Unreachable, error),
        }
    }

    /// Reads the beginning of an error response.
    fn refused(&self, body: BoundedBody) -> EngineRefusal {
        let status = body.status;
        let mut text = Vec::new();
        // Errors are ignored: the status is reported without the body.
        let _ = body.take(MESSAGE_BYTES_MAX).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let text: String = { text.trim().chars() }
            .filter(|c| !c.is_control())
            .collect();
        let is_large = text.contains("sample limit") || text.contains("too many samples");
        let kind = match status {
            413 | 422 => HistoryProblemKind::TooLarge,
            400 if is_large => HistoryProblemKind::TooLarge,
            502..=504 | 429 => HistoryProblemKind::Unreachable,
            _ => HistoryProblemKind::Refused,
        };
        let problem = self.problem(kind, format!("HTTP status {status}: {text}"));
        match status >= 500 || status == 429 {
            true => self.block(&problem),
            false => self.unblock(),
        }
        EngineRefusal {
            status: Some(status),
            problem,
        }
    }

    fn send(&self, request: &EngineRequest<'_>, limit: &RequestLimit) -> io::Result<HttpResponse> {
        let wait = || WaitLimit {
            timeout: Some(time_left(limit.deadline)),
            stop: Some(limit.stop.clone()),
        };
        let settings = &self.settings;
        let authorization = Authorization {
            bearer_token_file: settings.bearer_token_file.as_deref(),
            user: settings.user.as_deref(),
            password_file: settings.password_file.as_deref(),
        };
        let authorization = authorization.header().map_err(io::Error::other)?;
        let stream = connect_tcp(&self.url.host, self.url.port, limit.deadline)?;
        let connection = if self.url.is_encrypted {
            let config = tls_config(&ServerTrust {
                ca_file: settings.ca_file.clone(),
                accept_any: !settings.verify_peer,
            })?;
            let left = time_left(limit.deadline);
            HttpConnection::over_tls(stream, &self.url.host, config, left)?
        } else {
            HttpConnection::over_tcp(stream)?
        };
        let mut headers = vec![("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION")))];
        let added = settings.headers.iter();
        headers.extend(added.map(|(name, value)| (name.as_str(), value.reveal())));
        headers.extend(authorization.iter().map(|text| ("Authorization", &**text)));
        headers.extend_from_slice(request.headers);
        let target = format!("{}{}", self.url.path, request.path);
        let head = HttpRequest {
            method: "POST",
            target: &target,
            host: self.url.host_header(),
            headers: &headers,
        };
        connection.send_body(&head, request.body.clone(), wait())
    }
}

fn time_left(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

/// One of the `concurrency` requests; free again when dropped.
struct RequestSlot<'a>(&'a EngineClient);

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

/// The body of a response. Reading fails beyond its limit of bytes and after its deadline.
pub(crate) struct BoundedBody {
    body: HttpBody,
    left: u64,
    deadline: Instant,
    /// Why reading failed. A parser would report it as malformed text.
    pub failure: Option<HistoryProblemKind>,
    counters: Arc<HistoryCounters>,
    is_victoria_metrics: bool,
    status: u16,
}

impl Read for BoundedBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.failure = Some(HistoryProblemKind::Timeout);
            return Err(io::ErrorKind::TimedOut.into());
        }
        // An engine that sends little by little does not extend the deadline.
        self.body.limit.timeout = Some(left);
        let count = self.body.read(buffer).inspect_err(|error| {
            self.failure = Some(match error.kind() {
                io::ErrorKind::TimedOut => HistoryProblemKind::Timeout,
                _ => HistoryProblemKind::Unreachable,
            });
        })?;
        self.counters.count_bytes(count as u64);
        let Some(left) = self.left.checked_sub(count as u64) else {
            self.failure = Some(HistoryProblemKind::TooLarge);
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.left = left;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> EngineClient {
        let url: EngineUrl = "http://127.0.0.1:9".parse().expect("a URL");
        EngineClient::new(HistorySettings::default(), url)
    }

    #[test]
    fn after_a_failure_one_request_is_sent_until_the_engine_answers() {
        let client = client();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(client.begin(deadline).is_ok() && client.begin(deadline).is_ok());
        client.block(&client.problem(HistoryProblemKind::Unreachable, "no route"));
        assert!(client.check_blocked().is_err() && client.begin(deadline).is_err());
        let refused = client.check_blocked().expect_err("blocked").message;
        let expected = "http://127.0.0.1:9: failed a moment ago: no route; next attempt within 5 s";
        assert_eq!(refused, expected);
        // The delay is over.
        *client.blocked.lock() = Some(Instant::now());
        assert!(client.check_blocked().is_ok() && client.begin(deadline).is_ok());
        let other = client.begin(deadline).expect_err("one at a time");
        assert_eq!(other.kind, HistoryProblemKind::Busy);
        client.unblock();
        assert!(client.begin(deadline).is_ok() && client.begin(deadline).is_ok());
    }

    #[test]
    fn a_query_that_is_cancelled_or_has_little_time_is_no_failure_of_the_engine() {
        let client = client();
        let (running, cancelled) = (AtomicBool::new(false), AtomicBool::new(true));
        let now = Instant::now();
        let problem = |kind| client.problem(kind, "a failure");
        client.note_failure(&problem(HistoryProblemKind::Timeout), now, &running);
        let unreachable = problem(HistoryProblemKind::Unreachable);
        client.note_failure(&unreachable, now, &cancelled);
        assert!(client.check_blocked().is_ok());
        client.note_failure(&unreachable, now, &running);
        assert!(client.check_blocked().is_err());
    }
}
