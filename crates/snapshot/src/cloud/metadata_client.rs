//! A minimal HTTP/1.1 client for metadata services: one request per plain TCP connection, bounded time and size, no
//! proxies, no redirects, no name resolution. Responses are untrusted; parsing is a pure function.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A metadata service is on the same host or link: it accepts at once, or does not exist.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval at which a pending request checks the stop flag and its timeout.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const RESPONSE_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
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

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MetadataResponse {
    pub status: u16,
    /// Header names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl MetadataResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl MetadataClient {
    /// The client for the link-local address that all three clouds use.
    pub fn link_local(stop: Arc<AtomicBool>) -> MetadataClient {
        MetadataClient {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80),
            prefix: String::new(),
            stop,
        }
    }

    /// Parses `http://IP[:PORT][/PREFIX]`. Host names other than `localhost` are rejected: name resolution has no
    /// bounded time.
    pub fn at(url: &str, stop: Arc<AtomicBool>) -> Result<MetadataClient, MetadataError> {
        let invalid = || MetadataError::Address(crate::redact::redact_address(url));
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

    pub fn send(&self, request: &MetadataRequest<'_>) -> Result<MetadataResponse, MetadataError> {
        let path = || request.path.to_owned();
        let failed = |source| MetadataError::Io {
            path: path(),
            source,
        };
        let (address, started) = (self.address, Instant::now());
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            .map_err(|source| MetadataError::Connect { address, source })?;
        stream
            .set_read_timeout(Some(POLL_INTERVAL))
            .map_err(failed)?;
        stream
            .set_write_timeout(Some(POLL_INTERVAL))
            .map_err(failed)?;
        stream
            .write_all(self.request_head(request).as_bytes())
            .map_err(failed)?;
        let mut raw = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => raw.extend_from_slice(&buffer[..count]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(failed(error)),
            }
            if raw.len() > RESPONSE_BYTES_MAX {
                return Err(MetadataError::TooLarge { path: path() });
            }
            if is_complete(&raw) {
                break;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(MetadataError::Stopped);
            }
            if started.elapsed() > request.timeout {
                let timeout = request.timeout;
                return Err(MetadataError::Timeout {
                    path: path(),
                    timeout,
                });
            }
        }
        parse(&raw).ok_or_else(|| MetadataError::Malformed { path: path() })
    }

    fn request_head(&self, request: &MetadataRequest<'_>) -> String {
        let MetadataRequest {
            method,
            path,
            headers,
            ..
        } = request;
        let (prefix, address) = (&self.prefix, self.address);
        let mut head = format!("{method} {prefix}{path} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in *headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if *method == "PUT" {
            head.push_str("Content-Length: 0\r\n");
        }
        head.push_str("Connection: close\r\n\r\n");
        head
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Whether a response with a known length is complete. Not every service closes the connection.
fn is_complete(raw: &[u8]) -> bool {
    let Some((_, headers, body)) = split_response(raw) else {
        return false;
    };
    let length = headers.iter().find(|(name, _)| name == "content-length");
    match length.and_then(|(_, value)| value.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => decode_chunked(body).is_some() && is_chunked(&headers),
    }
}

/// Parses a response; `None` if it is truncated or not HTTP.
pub(crate) fn parse(raw: &[u8]) -> Option<MetadataResponse> {
    let (status, headers, body) = split_response(raw)?;
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let body = match length {
        _ if is_chunked(&headers) => decode_chunked(body)?,
        Some((_, length)) => body.get(..length.parse().ok()?)?.to_vec(),
        None => body.to_vec(),
    };
    Some(MetadataResponse {
        status,
        headers,
        body,
    })
}

type HeaderList = Vec<(String, String)>;

fn split_response(raw: &[u8]) -> Option<(u16, HeaderList, &[u8])> {
    let end = raw.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.")?
        .get(2..5)?
        .parse()
        .ok()?;
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Some((
        status,
        headers.collect::<Option<HeaderList>>()?,
        &raw[end + 4..],
    ))
}

fn is_chunked(headers: &HeaderList) -> bool {
    headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked")
}

fn decode_chunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_with_length_chunks_or_neither_are_parsed() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore";
        assert_eq!(
            parse(whole).map(|response| response.body),
            Some(b"ok".to_vec())
        );
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1;x\r\n!\r\n0\r\n\r\n";
        assert!(is_complete(chunked));
        assert_eq!(
            parse(chunked).map(|response| response.body),
            Some(b"ok!".to_vec())
        );
        let open = b"HTTP/1.0 404 Not Found\r\nX: y\r\n\r\nno";
        let response = parse(open).expect("a response");
        assert_eq!((response.status, response.header("x")), (404, Some("y")));
    }

    #[test]
    fn truncated_and_malformed_responses_are_rejected() {
        for raw in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 2\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            assert_eq!(parse(raw.as_bytes()), None, "{raw:?}");
            assert!(!is_complete(raw.as_bytes()), "{raw:?}");
        }
    }

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
