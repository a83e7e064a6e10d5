//! Small HTTP servers for tests: each request gets the bytes that a function returns.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_testkit::eventually;

/// A request and the connection on which it came.
pub(super) struct TestRequest<'a> {
    head: String,
    stream: &'a mut dyn Write,
}

impl TestRequest<'_> {
    pub(super) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line == header)
    }
}

/// A server whose threads end with the test process.
pub(super) struct ScriptedServer {
    pub url: String,
    requests: Arc<AtomicUsize>,
}

type Respond = dyn Fn(&mut TestRequest<'_>) -> Vec<u8> + Send + Sync;

impl ScriptedServer {
    pub(super) fn start(
        respond: impl Fn(&mut TestRequest<'_>) -> Vec<u8> + Send + Sync + 'static,
    ) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        ScriptedServer::serve(url, respond, move || Ok(listener.accept()?.0))
    }

    pub(super) fn start_unix(
        path: &Path,
        respond: impl Fn(&mut TestRequest<'_>) -> Vec<u8> + Send + Sync + 'static,
    ) -> ScriptedServer {
        let listener = UnixListener::bind(path).expect("a free path");
        ScriptedServer::serve(String::new(), respond, move || Ok(listener.accept()?.0))
    }

    fn serve<S: Read + Write + Send + 'static>(
        url: String,
        respond: impl Fn(&mut TestRequest<'_>) -> Vec<u8> + Send + Sync + 'static,
        accept: impl Fn() -> io::Result<S> + Send + 'static,
    ) -> ScriptedServer {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        let respond: Arc<Respond> = Arc::new(respond);
        std::thread::spawn(move || {
            while let Ok(mut stream) = accept() {
                let (respond, counter) = (respond.clone(), counter.clone());
                std::thread::spawn(move || {
                    let head = read_head(&mut stream);
                    counter.fetch_add(1, Ordering::Relaxed);
                    let mut request = TestRequest {
                        head,
                        stream: &mut stream,
                    };
                    let response = respond(&mut request);
                    // The client may have closed the connection.
                    let _ = stream.write_all(&response);
                });
            }
        });
        ScriptedServer { url, requests }
    }

    #[track_caller]
    pub(super) fn wait_for_requests(&self, count: usize) {
        eventually("requests", || {
            let found = self.requests.load(Ordering::Relaxed);
            (found >= count).then_some(()).ok_or(found)
        });
    }
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A complete response with the status 200.
pub(super) fn respond_with(header: &str, body: &[u8]) -> Vec<u8> {
    let header = match header {
        "" => String::new(),
        header => format!("{header}\r\n"),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\n{header}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(super) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("compressed");
    encoder.finish().expect("compressed")
}

/// Never responds.
pub(super) fn hang(_: &mut TestRequest<'_>) -> Vec<u8> {
    loop {
        std::thread::park();
    }
}

/// Sends one byte at a time, for ever.
pub(super) fn drip(request: &mut TestRequest<'_>) -> Vec<u8> {
    let _ = request.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    while request.stream.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Vec::new()
}

/// Sends a body without end.
pub(super) fn endless(request: &mut TestRequest<'_>) -> Vec<u8> {
    let _ = request.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    while request.stream.write_all(&[b' '; 4096]).is_ok() {}
    Vec::new()
}
