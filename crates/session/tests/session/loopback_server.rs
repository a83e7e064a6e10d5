//! An HTTP server on loopback whose responses a test determines: one request per connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// All bytes of it.
    raw: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(found, _)| found == name)?;
        Some(value)
    }

    /// Returns the path without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns a request without a body to the same server.
    pub(crate) fn with_target(&self, method: &str, target: &str) -> ReceivedRequest {
        let raw = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        ReceivedRequest {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            raw: raw.into_bytes(),
        }
    }

    /// Sends the request to another server and returns the bytes of the response.
    pub(crate) fn forward(&self, url: &str) -> Option<Vec<u8>> {
        let mut server = TcpStream::connect(url.strip_prefix("http://")?).ok()?;
        server.set_read_timeout(Some(TIMEOUT)).ok()?;
        server.write_all(&self.raw).ok()?;
        let mut response = Vec::new();
        server.read_to_end(&mut response).ok()?;
        Some(response)
    }

    fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
        let mut raw = Vec::new();
        let mut buffer = [0; 16 << 10];
        let mut receive = |raw: &mut Vec<u8>| {
            let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
            raw.extend_from_slice(&buffer[..count]);
            Some(())
        };
        let end = loop {
            match raw.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => receive(&mut raw)?,
            }
        };
        let head = String::from_utf8(raw[..end].to_vec()).ok()?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let mut request = ReceivedRequest {
            method: words.next()?.to_owned(),
            target: words.next()?.to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
            raw: Vec::new(),
        };
        let length = request.header("content-length").unwrap_or("0").parse();
        let length: usize = length.ok()?;
        while raw.len() < end + length {
            receive(&mut raw)?;
        }
        request.body = raw[end..].to_vec();
        request.raw = raw;
        Some(request)
    }
}

/// Returns the bytes of a response.
pub(crate) fn response(status: u16, headers: &str, body: &[u8]) -> Option<Vec<u8>> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n");
    Some([head.as_bytes(), body].concat())
}

/// A running server; it ends on drop.
#[derive(Debug)]
pub(crate) struct LoopbackServer {
    pub(crate) url: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Starts a server. Where `handler` returns nothing, the connection is closed.
    pub(crate) fn start(
        handler: impl Fn(&ReceivedRequest) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let stop = Arc::new(AtomicBool::new(false));
        let (handler, stop_thread) = (Arc::new(handler), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop_thread.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(mut stream), handler) = (stream, handler.clone()) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let _ = stream.set_read_timeout(Some(TIMEOUT));
                    let request = ReceivedRequest::read(&mut stream)?;
                    // Fails if the client closed the connection.
                    stream.write_all(&handler(&request)?).ok()
                });
            }
        });
        LoopbackServer {
            url,
            stop,
            thread: Some(thread),
        }
    }

    /// Starts a proxy that loses every fifth request or, alternately, the response to it.
    pub(crate) fn dropping_proxy(url: &str) -> LoopbackServer {
        let url = url.to_owned();
        let count = AtomicU32::new(0);
        LoopbackServer::start(move |request| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_multiple_of(10) {
                return None;
            }
            let response = request.forward(&url)?;
            (!number.is_multiple_of(5)).then_some(response)
        })
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
