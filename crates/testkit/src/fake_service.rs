//! A fake metadata service on loopback.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// The response to a request.
#[derive(Debug, Clone)]
pub struct FakeReply {
    pub status: u16,
    pub body: String,
    /// Delay before the response is sent.
    pub delay: Duration,
}

impl FakeReply {
    pub fn ok(body: impl Into<String>) -> FakeReply {
        FakeReply {
            status: 200,
            body: body.into(),
            delay: Duration::ZERO,
        }
    }
}

/// A header that a request must have: name in lower case, value.
type RequiredHeader = Option<(&'static str, &'static str)>;

#[derive(Debug, Default)]
struct FakeServiceState {
    replies: BTreeMap<String, (RequiredHeader, FakeReply)>,
    requests: Vec<String>,
}

#[derive(Debug)]
pub struct FakeService {
    pub url: String,
    state: Arc<Mutex<FakeServiceState>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeService {
    pub fn start() -> FakeService {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (state, stop) = (
            Arc::new(Mutex::new(FakeServiceState::default())),
            Arc::new(AtomicBool::new(false)),
        );
        let (for_thread, stop_thread) = (state.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop_thread.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), state) = (stream, for_thread.clone()) else {
                    continue;
                };
                std::thread::spawn(move || answer(stream, &state));
            }
        });
        FakeService {
            url,
            state,
            stop,
            thread: Some(thread),
        }
    }

    /// Sets the reply to a request. `path` begins with the method: `GET /metadata/versions`.
    pub fn set(&self, path: &str, required: RequiredHeader, reply: FakeReply) {
        let mut state = self.state.lock();
        state.replies.insert(path.to_owned(), (required, reply));
    }

    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }
}

impl Drop for FakeService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<FakeServiceState>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let path = lines
        .next()
        .unwrap_or_default()
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let found = {
        let mut state = state.lock();
        state.requests.push(path.clone());
        state.replies.get(&path).cloned()
    };
    let missing = FakeReply {
        status: 404,
        body: "not found".to_owned(),
        delay: Duration::ZERO,
    };
    let reply = match found {
        Some((Some((name, value)), _))
            if !headers.iter().any(|(n, v)| n == name && *v == value) =>
        {
            FakeReply {
                status: 401,
                ..missing
            }
        }
        Some((_, reply)) => reply,
        None => missing,
    };
    std::thread::sleep(reply.delay);
    let flavor = if path.contains("computeMetadata") {
        "Metadata-Flavor: Google\r\n"
    } else if reply.body.starts_with("<!doctype html>") {
        "Content-Type: text/html\r\n"
    } else {
        ""
    };
    let text = format!(
        "HTTP/1.1 {} X\r\n{flavor}Content-Length: {}\r\n\r\n{}",
        reply.status,
        reply.body.len(),
        reply.body
    );
    // Fails if the client has closed the connection.
    let _ = stream.write_all(text.as_bytes());
}
