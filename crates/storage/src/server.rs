//! Requests to storage servers and metadata services: one per connection, each within a time limit.
//! A target and headers may contain secrets: neither appears in a message.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_http_client::{
    HttpConnection, HttpRequest, HttpResponse, ServerTrust, ServerUrl, WaitLimit, connect_tcp,
    tls_config,
};
use pegel_metric::with_causes;
use rustls::ClientConfig;

use super::response::StorageResponse;
use super::{StorageProblem, StorageProblemKind};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A metadata service is on the same host or link: it accepts at once, or does not exist.
const METADATA_CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const METADATA_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The lowest rate at which a body must be sent and received.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// The most bytes of the body of an error.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// One server.
#[derive(Debug)]
pub(super) struct StorageServer {
    pub(super) url: ServerUrl,
    ca_file: Option<PathBuf>,
    /// Kept while requests succeed: reading the authorities takes milliseconds.
    tls: Option<Arc<ClientConfig>>,
    connect_timeout: Duration,
    response_timeout: Duration,
    /// The place that is stored there, for messages.
    label: String,
}

/// One request.
pub(super) struct StorageRequest<'a> {
    /// The name of the operation, for messages.
    pub(super) operation: &'static str,
    pub(super) method: &'static str,
    /// Path and query.
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: &'a [u8],
    /// The most bytes of the response's body.
    pub(super) bytes_max: u64,
}

impl StorageServer {
    pub(super) fn new(url: ServerUrl, ca_file: Option<PathBuf>, label: String) -> StorageServer {
        StorageServer {
            url,
            ca_file,
            tls: None,
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            label,
        }
    }

    /// Returns the metadata service at this address.
    pub(super) fn metadata(url: ServerUrl) -> StorageServer {
        let label = format!("metadata service {url}");
        StorageServer {
            connect_timeout: METADATA_CONNECT_TIMEOUT,
            response_timeout: METADATA_RESPONSE_TIMEOUT,
            ..StorageServer::new(url, None, label)
        }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// Fails if a secret would be sent over the network without encryption.
    pub(super) fn check_confidential(&self, secret: &str) -> Result<(), StorageProblem> {
        let is_loopback = match self.url.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.url.host == "localhost",
        };
        if self.url.is_encrypted || is_loopback {
            return Ok(());
        }
        let text = format!(
            "{}: {secret} is not sent to {} without encryption; use an https:// endpoint",
            self.label, self.url
        );
        Err(StorageProblem::new(StorageProblemKind::Rejected, text))
    }

    /// Sends a request and reads the whole response, whatever its status.
    pub(super) fn send(
        &mut self,
        request: &StorageRequest<'_>,
    ) -> Result<StorageResponse, StorageProblem> {
        self.exchange(request).map_err(|error| {
            // Renewed authorities are read for the next attempt.
            self.tls = None;
            let operation = request.operation;
            match error.kind() {
                io::ErrorKind::FileTooLarge => StorageProblem::new(
                    StorageProblemKind::Rejected,
                    format!(
                        "{}: the response to {operation} exceeds {} bytes",
                        self.label, request.bytes_max
                    ),
                ),
                _ => StorageProblem::new(
                    StorageProblemKind::Unreachable,
                    format!("{}: {operation}: {}", self.label, with_causes(&error)),
                ),
            }
        })
    }

    /// Like [`StorageServer::send`]; a status that is not accepted is a problem.
    pub(super) fn send_expecting(
        &mut self,
        request: &StorageRequest<'_>,
        accepted: &[u16],
    ) -> Result<StorageResponse, StorageProblem> {
        let response = self.send(request)?;
        match accepted.contains(&response.status) {
            true => Ok(response),
            false => Err(response.problem(&self.label, request.operation)),
        }
    }

    fn exchange(&mut self, request: &StorageRequest<'_>) -> io::Result<StorageResponse> {
        let connection = self.connect(Instant::now() + self.connect_timeout)?;
        let mut headers: Vec<(&str, &str)> = Vec::with_capacity(request.headers.len() + 2);
        let headers_given = request.headers.iter();
        headers.extend(headers_given.map(|(name, value)| (*name, value.as_str())));
        headers.push(("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION"))));
        let length = request.body.len().to_string();
        if matches!(request.method, "PUT" | "POST") {
            headers.push(("Content-Length", &length));
        }
        let http_request = HttpRequest {
            method: request.method,
            target: &request.target,
            host: self.url.host_header(),
            headers: &headers,
        };
        let limit = WaitLimit::timeout(self.transfer_time(request.body.len() as u64));
        let response = connection.send_body(&http_request, request.body.to_vec(), limit)?;
        let bytes_max = match response.status {
            200..300 => request.bytes_max,
            _ => ERROR_BYTES_MAX,
        };
        let deadline = Instant::now() + self.transfer_time(bytes_max);
        read_response(response, bytes_max, (self.response_timeout, deadline))
    }

    /// Returns the time limit for a body with this many bytes.
    fn transfer_time(&self, bytes: u64) -> Duration {
        let transfer = Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        self.response_timeout.saturating_add(transfer)
    }

    fn connect(&mut self, deadline: Instant) -> io::Result<HttpConnection> {
        let stream = connect_tcp(&self.url.host, self.url.port, deadline)?;
        stream.set_nodelay(true)?;
        if !self.url.is_encrypted {
            return HttpConnection::over_tcp(stream);
        }
        let config = match &self.tls {
            Some(config) => config.clone(),
            None => {
                let config = tls_config(&ServerTrust {
                    ca_file: self.ca_file.clone(),
                    accept_any: false,
                })?;
                self.tls.insert(config).clone()
            }
        };
        HttpConnection::over_tls(stream, &self.url.host, config, time_left(deadline))
    }
}

fn time_left(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

fn read_response(
    mut response: HttpResponse,
    bytes_max: u64,
    (pause_max, deadline): (Duration, Instant),
) -> io::Result<StorageResponse> {
    let mut body = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        response.body.limit.timeout = Some(time_left(deadline).min(pause_max));
        match response.body.read(&mut buffer)? {
            0 => break,
            count => body.extend_from_slice(&buffer[..count]),
        }
        if body.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    let headers = response.headers();
    Ok(StorageResponse {
        status: response.status,
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body,
    })
}
