//! Sends one request over HTTP/2 and returns the response with its trailers, as gRPC requires.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::{HttpRequest, WaitLimit, new_runtime};

/// The largest response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// A complete response.
#[derive(Debug)]
pub struct Http2Response {
    pub status: u16,
    pub body: Vec<u8>,
    headers: HeaderMap,
    trailers: HeaderMap,
}

impl Http2Response {
    /// Returns a trailer or, without one of this name, a header. The name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.trailers.get(name).or_else(|| self.headers.get(name));
        value?.to_str().ok()
    }
}

/// Posts a body over a new connection and returns the response. With `config`, the connection is
/// encrypted, and the server must have a certificate for `host`.
pub fn call_http2(
    stream: TcpStream,
    (host, config): (&str, Option<Arc<ClientConfig>>),
    request: &HttpRequest<'_>,
    body: Vec<u8>,
    limit: &WaitLimit,
) -> io::Result<Http2Response> {
    stream.set_nonblocking(true)?;
    let scheme = if config.is_some() { "https" } else { "http" };
    let mut builder = Request::builder()
        .method(request.method)
        .uri(format!("{scheme}://{}{}", request.host, request.target));
    for (name, value) in request.headers {
        builder = builder.header(*name, *value);
    }
    let request = builder
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let runtime = new_runtime()?;
    limit.wait_for(&runtime, async {
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let Some(config) = config else {
            return exchange(stream, request).await;
        };
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(Arc::new(config));
        exchange(connector.connect(name, stream).await?, request).await
    })
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<Http2Response>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
    let (mut sender, connection): (SendRequest<Full<Bytes>>, _) =
        handshake.await.map_err(io::Error::other)?;
    // Errors of the connection are reported to the request and its body.
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let (head, body) = response.map_err(io::Error::other)?.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(io::Error::other)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    Ok(Http2Response {
        status: head.status.as_u16(),
        body: body.to_bytes().to_vec(),
        headers: head.headers,
        trailers,
    })
}
