//! Posts alerts over HTTP.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use pegel_http_client::{
    HttpConnection, HttpRequest, ServerTrust, WaitLimit, connect_tcp, tls_config,
};

use super::SendError;
use super::receiver_url::ReceiverUrl;

/// The part of an error response that is logged.
const MESSAGE_BYTES_MAX: u64 = 300;

/// Posts a JSON body. The authorities are read for each connection: alerts are rare.
pub(super) fn post(
    url: &ReceiverUrl,
    path: &str,
    body: Vec<u8>,
    (timeout, ca_file): (Duration, Option<&Path>),
) -> Result<(), SendError> {
    let deadline = Instant::now() + timeout;
    let stream = connect_tcp(&url.host, url.port, deadline);
    let stream = stream.map_err(|error| SendError::Retry(error.to_string()))?;
    let request = HttpRequest {
        method: "POST",
        target: path,
        host: url.host_header(),
        headers: &[
            ("Content-Type", "application/json"),
            ("User-Agent", concat!("pegel/", env!("CARGO_PKG_VERSION"))),
        ],
    };
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(1))
    };
    let connection = if url.is_encrypted {
        let trust = ServerTrust {
            ca_file: ca_file.map(Path::to_owned),
            accept_any: false,
        };
        tls_config(&trust)
            .and_then(|config| HttpConnection::over_tls(stream, &url.host, config, left()))
    } else {
        HttpConnection::over_tcp(stream)
    };
    let response = connection
        .and_then(|connection| connection.send_body(&request, body, WaitLimit::timeout(left())))
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
