//! Sends requests to metadata services: bounded time and size, no name resolution. Responses are
//! untrusted.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pegel_http_client::{HttpConnection, HttpRequest, HttpResponse, WaitLimit};

/// A metadata service is on the same host or link: it accepts at once, or does not exist.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
const RESPONSE_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataError {
    #[error(
        "invalid metadata service address {0:?}; expected http://IP[:PORT][/PREFIX], such as http://127.0.0.1:8080"
    )]
    Address(String),
    #[error("cannot connect to the metadata service at {address}")]
    Connect {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("metadata request {path} failed")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("metadata request {path} timed out after {} s", timeout.as_secs())]
    Timeout { path: String, timeout: Duration },
    #[error("response to metadata request {path} exceeds {RESPONSE_BYTES_MAX} bytes")]
    TooLarge { path: String },
    #[error("malformed response to metadata request {path}")]
    Malformed { path: String },
    #[error("metadata request {path} failed with HTTP status {status}")]
    Status { path: String, status: u16 },
    #[error("response to metadata request {path} is not the expected JSON")]
    Json { path: String },
    #[error("the agent is stopping")]
    Stopped,
}

/// A client for one service.
#[derive(Debug, Clone)]
pub(crate) struct MetadataClient {
    address: SocketAddr,
    /// Prefix of every path.
    prefix: String,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct MetadataRequest<'a> {
    pub method: &'static str,
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    /// Timeout for the whole request, after the connection is made.
    pub timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct MetadataResponse {
    pub status: u16,
    /// Google's mark of its responses.
    pub flavor: Option<String>,
    pub body: Vec<u8>,
}

impl MetadataClient {
    /// The client for the link-local address that all three clouds use.
    pub(super) fn link_local(stop: Arc<AtomicBool>) -> MetadataClient {
        MetadataClient {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80),
            prefix: String::new(),
            stop,
        }
    }

    /// Parses `http://IP[:PORT][/PREFIX]`. Host names other than `localhost` are rejected: name
    /// resolution has no bounded time.
    pub(super) fn at(url: &str, stop: Arc<AtomicBool>) -> Result<MetadataClient, MetadataError> {
        let invalid = || MetadataError::Address(pegel_machine::redact::redact_address(url));
        let rest = url.strip_prefix("http://").ok_or_else(invalid)?;
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let authority = authority.replace("localhost", "127.0.0.1");
        let with_port = authority.parse::<SocketAddr>().ok();
        let without_port = authority.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let address = with_port.or_else(|| Some(SocketAddr::new(without_port?, 80)));
        Ok(MetadataClient {
            address: address.ok_or_else(invalid)?,
            prefix: prefix.trim_end_matches('/').to_owned(),
            stop,
        })
    }

    pub(super) fn send(
        &self,
        request: &MetadataRequest<'_>,
    ) -> Result<MetadataResponse, MetadataError> {
        let (address, started) = (self.address, Instant::now());
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            .map_err(|source| MetadataError::Connect { address, source })?;
        let limit = WaitLimit {
            timeout: Some(request.timeout),
            stop: Some(self.stop.clone()),
        };
        let host = address.to_string();
        let target = format!("{}{}", self.prefix, request.path);
        let http_request = HttpRequest {
            method: request.method,
            target: &target,
            host: &host,
            headers: request.headers,
        };
        HttpConnection::over_tcp(stream)
            .and_then(|connection| connection.send(&http_request, limit))
            .and_then(|response| read_response(response, started + request.timeout))
            .map_err(|error| self.request_error(request, error))
    }

    fn request_error(&self, request: &MetadataRequest<'_>, source: io::Error) -> MetadataError {
        let (path, timeout) = (request.path.to_owned(), request.timeout);
        match source.kind() {
            _ if self.stop.load(Ordering::Relaxed) => MetadataError::Stopped,
            io::ErrorKind::TimedOut => MetadataError::Timeout { path, timeout },
            io::ErrorKind::FileTooLarge => MetadataError::TooLarge { path },
            _ => MetadataError::Io { path, source },
        }
    }
}

fn read_response(mut response: HttpResponse, deadline: Instant) -> io::Result<MetadataResponse> {
    let mut body = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        response.body.limit.timeout = Some(left);
        match response.body.read(&mut buffer)? {
            0 => break,
            count => body.extend_from_slice(&buffer[..count]),
        }
        if body.len() > RESPONSE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(MetadataResponse {
        status: response.status,
        flavor: response.header("metadata-flavor").map(str::to_owned),
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numeric_addresses_are_accepted() {
        let stop = Arc::new(AtomicBool::new(false));
        let at = |url: &str| {
            MetadataClient::at(url, stop.clone()).map(|client| (client.address, client.prefix))
        };
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        assert_eq!(
            at("http://127.0.0.1:81/").ok(),
            Some((local(81), String::new()))
        );
        assert_eq!(
            at("http://localhost:81/a/").ok(),
            Some((local(81), "/a".to_owned()))
        );
        assert_eq!(
            at("http://127.0.0.1").ok(),
            Some((local(80), String::new()))
        );
        assert!(at("http://[fd00:ec2::254]").is_ok());
        for invalid in [
            "https://127.0.0.1",
            "http://metadata.google.internal",
            "",
            "http://u:PLANTED@h",
        ] {
            let error = at(invalid).expect_err("rejected").to_string();
            assert!(!error.contains("PLANTED"), "{error}");
        }
    }
}
