//! Posts alerts over HTTP.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_http_client::{HttpConnection, HttpRequest, WaitLimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::SendError;
use super::receiver_url::ReceiverUrl;

/// The part of an error response that is logged.
const MESSAGE_BYTES_MAX: u64 = 300;

/// Posts a JSON body. Names are resolved each time, so that a moved receiver is found.
pub(super) fn post(
    url: &ReceiverUrl,
    path: &str,
    body: Vec<u8>,
    (timeout, ca_file): (Duration, Option<&Path>),
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
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(1))
    };
    let connection = if url.is_encrypted {
        client_config(ca_file)
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

/// Where distributions keep the certificates of authorities.
const CA_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const CA_BYTES_MAX: u64 = 4 << 20;

/// Reads the authorities for each connection: alerts are rare, and renewed files are noticed.
fn client_config(ca_file: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let bundle = CA_BUNDLES.iter().map(Path::new).find(|path| path.exists());
    let path = ca_file.or(bundle).ok_or_else(|| {
        io::Error::other("no certificates of authorities found; set alerts.ca_file")
    })?;
    let unusable = |problem: String| io::Error::other(format!("{}: {problem}", path.display()));
    let text = pegel_plain_file::read_plain(path, CA_BYTES_MAX)
        .map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
    if added == 0 {
        return Err(unusable("holds no certificate in PEM form".to_owned()));
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
