//! Posts alerts over HTTP.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use pegel_http_client::{HttpConnection, HttpRequest, WaitLimit};

use super::SendError;
use super::receiver_url::ReceiverUrl;

/// The part of an error response that is logged.
const MESSAGE_BYTES_MAX: u64 = 300;

/// Posts a JSON body. Names are resolved each time, so that a moved receiver is found.
pub(super) fn post(
    url: &ReceiverUrl,
    path: &str,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<(), SendError> {
    let deadline = Instant::now() + timeout;
    let stream = connect(url, deadline).map_err(|error| SendError::Retry(error.to_string()))?;
    let request = HttpRequest {
        method: "POST",
        target: path,
        host: url.host_header(),
        headers: &[
            ("Content-Type", "application/json"),
            ("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION"))),
        ],
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = WaitLimit::timeout(left.max(Duration::from_millis(1)));
    let response = HttpConnection::over_tcp(stream)
        .and_then(|connection| connection.send_body(&request, body, limit))
        .map_err(|error| SendError::Retry(error.to_string()))?;
    let status = response.status;
    if (200..300).contains(&status) {
        return Ok(());
    }
    let mut text = Vec::new();
    // The status is enough if the body cannot be read.
    let _ = response.body.take(MESSAGE_BYTES_MAX).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let message = format!("HTTP status {status}: {}", text.trim());
    // The server will not accept this body later either, unless it is busy.
    if (400..500).contains(&status) && !matches!(status, 404 | 408 | 429) {
        Err(SendError::Refused(message))
    } else {
        Err(SendError::Retry(message))
    }
}

fn connect(url: &ReceiverUrl, deadline: Instant) -> io::Result<TcpStream> {
    let addresses = (url.host.as_str(), url.port).to_socket_addrs()?;
    let addresses: Vec<SocketAddr> = addresses.take(8).collect();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
