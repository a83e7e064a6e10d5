//! A blocking HTTP/1.1 client for the requests that Pegel sends itself: to an agent's UNIX socket,
//! to metadata services, to receivers of alerts and to storage of records over TCP, with or without
//! TLS. One request per connection, or several with [`HttpConnection::exchange`]; no redirects, no
//! proxies. [`call_http2`] is for gRPC.
//!
//! hyper speaks the protocol; this crate adds blocking calls with limited waits. Callers connect
//! themselves, so that they can verify the server before anything is sent ([`connect_tcp`] resolves
//! names, [`tls_config`] reads authorities), and limit the size of a body with [`Read::take`].

mod authorization;
mod connect;
mod http2_call;
mod resolve;
mod server_url;

pub use authorization::{Authorization, AuthorizationError, check_secret_file};
pub use connect::{ServerTrust, connect_tcp, connect_tcp_with_limit, tls_config};
pub use http2_call::{Http2Response, call_http2};
pub use server_url::ServerUrl;

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// Interval at which a wait checks its stop flag.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The most bytes of a body that [`HttpConnection::exchange`] reads, beyond those that it returns.
const IGNORED_BYTES_MAX: usize = 64 << 10;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct HttpRequest<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub host: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
}

/// Limits of a wait for the server.
#[derive(Debug, Clone, Default)]
pub struct WaitLimit {
    /// The wait ends with [`io::ErrorKind::TimedOut`] after this time.
    pub timeout: Option<Duration>,
    /// The wait ends with [`io::ErrorKind::ConnectionAborted`] soon after another thread sets this
    /// flag.
    pub stop: Option<Arc<AtomicBool>>,
}

/// A connection for one request, or for several that follow each other.
pub struct HttpConnection {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
}

/// A response whose body is still unread.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    headers: hyper::HeaderMap,
    pub body: HttpBody,
}

/// A response with the beginning of its body.
#[derive(Debug)]
pub struct ShortResponse {
    pub status: u16,
    headers: hyper::HeaderMap,
    pub body: Vec<u8>,
    /// Whether the body was read to its end. Otherwise the connection cannot be used again.
    pub is_complete: bool,
}

/// A body, read as it arrives. A truncated one ends with an error.
pub struct HttpBody {
    // Declared first: the body is dropped before the runtime that drives its connection.
    incoming: Incoming,
    unread: Bytes,
    runtime: Runtime,
    /// Limits of each read.
    pub limit: WaitLimit,
}

/// Names the usual cause of a handshake with a server that answers without TLS.
fn explain_handshake(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => io::Error::new(
            error.kind(),
            format!("{error}; the server may not speak TLS"),
        ),
        _ => error,
    }
}

impl HttpConnection {
    pub fn over_unix(stream: UnixStream) -> io::Result<HttpConnection> {
        stream.set_nonblocking(true)?;
        HttpConnection::new(|| tokio::net::UnixStream::from_std(stream))
    }

    pub fn over_tcp(stream: TcpStream) -> io::Result<HttpConnection> {
        stream.set_nonblocking(true)?;
        HttpConnection::new(|| tokio::net::TcpStream::from_std(stream))
    }

    /// Performs a TLS handshake within `timeout`. The server must have a certificate for `host`
    /// from one of the authorities in `config`.
    pub fn over_tls(
        stream: TcpStream,
        host: &str,
        config: Arc<ClientConfig>,
        timeout: Duration,
    ) -> io::Result<HttpConnection> {
        let limit = WaitLimit::timeout(timeout);
        HttpConnection::over_tls_with_limit(stream, host, config, &limit)
    }

    /// Like [`HttpConnection::over_tls`], with a wait that can also be stopped.
    pub fn over_tls_with_limit(
        stream: TcpStream,
        host: &str,
        config: Arc<ClientConfig>,
        limit: &WaitLimit,
    ) -> io::Result<HttpConnection> {
        stream.set_nonblocking(true)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let runtime = new_runtime()?;
        let connected = limit.wait_for(&runtime, async {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let connecting = TlsConnector::from(config).connect(name, stream);
            connecting.await.map_err(explain_handshake)
        })?;
        HttpConnection::with_stream(runtime, connected)
    }

    fn new<S>(register: impl FnOnce() -> io::Result<S>) -> io::Result<HttpConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let runtime = new_runtime()?;
        let stream = {
            let _context = runtime.enter();
            register()?
        };
        HttpConnection::with_stream(runtime, stream)
    }

    fn with_stream<S>(runtime: Runtime, stream: S) -> io::Result<HttpConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = runtime
            .block_on(handshake(TokioIo::new(stream)))
            .map_err(io::Error::other)?;
        // Errors of the connection are reported to the request and its body.
        runtime.spawn(connection);
        Ok(HttpConnection { runtime, sender })
    }

    /// Sends a request without a body and waits for the response headers. `limit` also applies to
    /// each read of the response's body.
    pub fn send(self, request: &HttpRequest<'_>, limit: WaitLimit) -> io::Result<HttpResponse> {
        self.send_body(request, Vec::new(), limit)
    }

    /// Like [`HttpConnection::send`], with a body. Its length is sent as `Content-Length`.
    pub fn send_body(
        mut self,
        request: &HttpRequest<'_>,
        body: Vec<u8>,
        limit: WaitLimit,
    ) -> io::Result<HttpResponse> {
        let request = request.builder().header("Connection", "close");
        let request = with_body(request, body.into())?;
        let response = limit.wait(&self.runtime, self.sender.send_request(request))?;
        let (head, incoming) = response.into_parts();
        Ok(HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: HttpBody {
                incoming,
                unread: Bytes::new(),
                runtime: self.runtime,
                limit,
            },
        })
    }

    /// Sends a request, reads the response, of whose body the first `body_max` bytes are returned,
    /// and keeps the connection for the next request. `limit` applies to all of it. After an error
    /// the connection cannot be used again, nor after a response that is not complete: its body is
    /// too long to be read to its end.
    pub fn exchange(
        &mut self,
        request: &HttpRequest<'_>,
        body: Bytes,
        body_max: usize,
        limit: &WaitLimit,
    ) -> io::Result<ShortResponse> {
        let request = with_body(request.builder(), body)?;
        let sender = &mut self.sender;
        let exchange = async {
            sender.ready().await?;
            let (head, mut incoming) = sender.send_request(request).await?.into_parts();
            let (mut body, mut ignored) = (Vec::new(), 0);
            let is_complete = loop {
                let Some(frame) = incoming.frame().await.transpose()? else {
                    break true;
                };
                let data = frame.into_data().unwrap_or_default();
                let count = data.len().min(body_max - body.len());
                body.extend_from_slice(&data[..count]);
                ignored += data.len() - count;
                if ignored > IGNORED_BYTES_MAX {
                    break false;
                }
            };
            Ok(ShortResponse {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
                is_complete,
            })
        };
        limit.wait(&self.runtime, exchange)
    }
}

impl HttpRequest<'_> {
    fn builder(&self) -> hyper::http::request::Builder {
        let builder = hyper::Request::builder()
            .method(self.method)
            .uri(self.target)
            .header("Host", self.host);
        let headers = self.headers.iter();
        headers.fold(builder, |builder, (name, value)| {
            builder.header(*name, *value)
        })
    }
}

fn with_body(
    builder: hyper::http::request::Builder,
    body: Bytes,
) -> io::Result<hyper::Request<Full<Bytes>>> {
    let request = builder.body(Full::new(body));
    request.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Returns a runtime that runs on the calling thread and starts no other.
fn new_runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
}

impl ShortResponse {
    /// Returns a header by its name in lower case; `None` if it is missing or not ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl HttpResponse {
    /// Returns a header by its name in lower case; `None` if it is missing or not ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns all headers whose values are ASCII, with names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let headers = self.headers.iter();
        headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }
}

impl Read for HttpBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            let incoming = &mut self.incoming;
            let next = async { incoming.frame().await.transpose() };
            match self.limit.wait(&self.runtime, next)? {
                // Trailers are ignored.
                Some(frame) => self.unread = frame.into_data().unwrap_or_default(),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.unread.len());
        self.unread.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl WaitLimit {
    pub fn timeout(timeout: Duration) -> WaitLimit {
        WaitLimit {
            timeout: Some(timeout),
            stop: None,
        }
    }

    fn wait<T>(
        &self,
        runtime: &Runtime,
        future: impl Future<Output = hyper::Result<T>>,
    ) -> io::Result<T> {
        self.wait_for(runtime, async { future.await.map_err(io::Error::other) })
    }

    fn wait_for<T>(
        &self,
        runtime: &Runtime,
        future: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let is_stopped = || {
            let stop = self.stop.as_ref();
            stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
        };
        runtime.block_on(async {
            let mut future = pin!(future);
            loop {
                let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
                let poll = self.stop.as_ref().map(|_| STOP_POLL_INTERVAL);
                let Some(wait) = left.into_iter().chain(poll).min() else {
                    return future.await;
                };
                if let Ok(result) = tokio::time::timeout(wait, &mut future).await {
                    return result;
                }
                if is_stopped() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                if left.is_some_and(|left| left <= wait) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        })
    }
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnection").finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::thread;

    use super::*;

    /// Sends a request to a server that answers with these bytes. Returns the request's lines and
    /// the response.
    fn exchange(answer: &'static str, limit: WaitLimit) -> (Vec<String>, io::Result<HttpResponse>) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let server = thread::spawn(move || {
            let mut reader = BufReader::new(server);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let lines = lines.take_while(|line| !line.is_empty()).collect();
            reader.get_mut().write_all(answer.as_bytes()).expect("sent");
            // A server without an answer never closes the connection.
            if answer.is_empty() {
                reader.read_to_end(&mut Vec::new()).expect("closed");
            }
            lines
        });
        let request = HttpRequest {
            method: "GET",
            target: "/a?b=c",
            host: "localhost",
            headers: &[("Accept", "text/plain")],
        };
        let response = HttpConnection::over_unix(client).and_then(|one| one.send(&request, limit));
        if answer.is_empty() {
            assert!(response.is_err());
        }
        (server.join().expect("served"), response)
    }

    fn body(answer: &'static str) -> io::Result<String> {
        let mut text = String::new();
        let (_, response) = exchange(answer, WaitLimit::timeout(Duration::from_secs(20)));
        response?.body.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn a_request_has_host_and_headers() {
        let answer = "HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 2\r\n\r\nno";
        let (request, response) = exchange(answer, WaitLimit::default());
        assert_eq!(request[0], "GET /a?b=c HTTP/1.1");
        assert!(
            request.contains(&"host: localhost".to_owned()),
            "{request:?}"
        );
        assert!(
            request.contains(&"accept: text/plain".to_owned()),
            "{request:?}"
        );
        let response = response.expect("a response");
        assert_eq!((response.status, response.header("x-a")), (404, Some("b")));
    }

    #[test]
    fn a_connection_serves_several_requests() {
        let (client, server) = UnixStream::pair().expect("a pair");
        let server = thread::spawn(move || {
            let mut reader = BufReader::new(server);
            for answer in [
                "HTTP/1.1 204 No Content\r\n\r\n",
                "HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nlater",
            ] {
                let lines = reader.by_ref().lines().map_while(Result::ok);
                let lines = lines.take_while(|line| !line.is_empty());
                assert!(!lines.collect::<Vec<_>>().concat().contains("close"));
                let mut body = [0; 3];
                reader.read_exact(&mut body).expect("a body");
                reader.get_mut().write_all(answer.as_bytes()).expect("sent");
            }
        });
        let request = HttpRequest {
            method: "POST",
            target: "/",
            host: "localhost",
            headers: &[],
        };
        let limit = WaitLimit::timeout(Duration::from_secs(20));
        let mut connection = HttpConnection::over_unix(client).expect("connected");
        let mut exchange = || connection.exchange(&request, Bytes::from_static(b"abc"), 3, &limit);
        let first = exchange().expect("a response");
        assert_eq!((first.status, first.body), (204, Vec::new()));
        let second = exchange().expect("a response");
        assert_eq!(second.status, 429);
        assert_eq!(second.header("retry-after"), Some("7"));
        assert_eq!(second.body, b"lat");
        server.join().expect("served");
        assert!(exchange().is_err());
    }

    #[test]
    fn an_endless_body_is_not_read_to_its_end() {
        let (client, server) = UnixStream::pair().expect("a pair");
        let server = thread::spawn(move || {
            let mut reader = BufReader::new(server);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let mut answer = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
            while reader.get_mut().write_all(answer).is_ok() {
                answer = b"4\r\naaaa\r\n";
            }
        });
        let request = HttpRequest {
            method: "POST",
            target: "/",
            host: "localhost",
            headers: &[],
        };
        let limit = WaitLimit::timeout(Duration::from_secs(60));
        let mut connection = HttpConnection::over_unix(client).expect("connected");
        let response = connection.exchange(&request, Bytes::new(), 3, &limit);
        let response = response.expect("a response");
        assert_eq!((response.status, response.is_complete), (200, false));
        assert_eq!(response.body, b"aaa");
        // Closes the connection, which ends the server.
        drop(connection);
        server.join().expect("served");
    }

    #[test]
    fn a_tls_handshake_can_be_stopped() {
        let limit = WaitLimit {
            timeout: Some(Duration::from_secs(600)),
            stop: Some(Arc::new(AtomicBool::new(true))),
        };
        // The kernel completes the connection; nothing answers the handshake.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let stream = connect_tcp_with_limit("127.0.0.1", port, &limit).expect("connected");
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let trust = ServerTrust {
            ca_file: None,
            accept_any: true,
        };
        let config = tls_config(&trust).expect("valid");
        let ended = HttpConnection::over_tls_with_limit(stream, "a", config, &limit);
        let kind = ended.expect_err("stopped").kind();
        assert_eq!(kind, io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn bodies_end_by_length_by_chunks_or_with_the_connection() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nabc",
        ] {
            assert_eq!(body(answer).expect(answer), "abc");
        }
    }

    #[test]
    fn truncated_and_malformed_responses_are_errors() {
        for answer in [
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 2\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            assert!(body(answer).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn a_wait_ends_after_its_timeout_or_when_stopped() {
        let kind = |limit| {
            exchange("", limit)
                .1
                .map(|_| ())
                .map_err(|error| error.kind())
        };
        let timeout = WaitLimit::timeout(Duration::from_millis(10));
        assert_eq!(kind(timeout), Err(io::ErrorKind::TimedOut));
        let stop = Some(Arc::new(AtomicBool::new(true)));
        let stopped = WaitLimit {
            stop,
            timeout: None,
        };
        assert_eq!(kind(stopped), Err(io::ErrorKind::ConnectionAborted));
    }
}
