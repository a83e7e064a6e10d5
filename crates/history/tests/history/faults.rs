//! Engines that are down, slow, wrong or huge: the store's part is answered in bounded time, and
//! the answer states what is missing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pegel_config::ByteSize;
use pegel_history::{HistoryApi, HistorySettings, PrometheusHistory};
use pegel_metric::Millis;
use pegel_query::promql::{PromqlLimits, QueryValue, range};
use pegel_query::{HistoryMark, HistoryProblemKind, HistoryRecord};
use pegel_testkit::now_millis;

use crate::data::{RetainedStore, TestData, history};

/// How a server answers one request.
type ServerAnswer = dyn Fn(&str, &mut TcpStream) + Send + Sync;

/// Starts a server; its thread ends with the test process.
fn server(respond: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let respond: Arc<ServerAnswer> = Arc::new(respond);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let respond = respond.clone();
            std::thread::spawn(move || {
                let request = read_request(&mut stream);
                respond(&request, &mut stream);
            });
        }
    });
    url
}

/// Reads the head and the body of a request.
fn read_request(stream: &mut TcpStream) -> String {
    let mut raw = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        raw.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&raw).into_owned();
        let length = text.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        let head = text.find("\r\n\r\n").map(|at| at + 4);
        match (head, length) {
            (Some(head), Some(length)) if raw.len() < head + usize::max(length, 0) && count > 0 => {
            }
            (None, _) if count > 0 => {}
            _ => return text,
        }
    }
}

fn send(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // The client may have closed the connection.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

/// Returns a matrix with one series of this agent.
fn matrix(samples: &[(f64, f64)]) -> String {
    let values: Vec<String> = { samples.iter() }
        .map(|(time, value)| format!("[{time},\"{value}\"]"))
        .collect();
    format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{"__name__":
        "queue_depth","instance":"n1:1337","job":"node","queue":"x"}},"values":[{}]}}]}}}}"#,
        values.join(",")
    )
}

struct Answered {
    mark: HistoryMark,
    took: Duration,
    reader: Arc<PrometheusHistory>,
}

/// Evaluates a range across the border. The store's part must be complete.
fn ask(url: &str, change: impl FnOnce(&mut HistorySettings)) -> Answered {
    let data = TestData::new(now_millis());
    let last = RetainedStore::of_last(&data);
    let reader = history(url, |settings| {
        settings.api = HistoryApi::Query;
        settings.timeout = pegel_config::TimeSpan::seconds(2);
        change(settings);
    });
    ask_again(&data, &last, reader)
}

fn ask_again(data: &TestData, last: &RetainedStore, reader: Arc<PrometheusHistory>) -> Answered {
    let record = Arc::new(HistoryRecord::default());
    let source = { last.source.clone() }
        .with_history(reader.clone())
        .recording(record.clone());
    let began = Instant::now();
    let times = (data.border - 1_800_000, data.now);
    let limits = PromqlLimits::default();
    let outcome = range(&source, "queue_depth{queue=\"x\"}", times, 10_000, &limits);
    let took = began.elapsed();
    let QueryValue::Matrix(series) = outcome.expect("the store's part").value else {
        panic!("not a matrix");
    };
    let points = &series[0].points;
    let of_store = points
        .iter()
        .filter(|(time, _)| *time >= data.border)
        .count();
    let expected = (data.now - data.border) / 10_000 + 1;
    assert_eq!(of_store as Millis, expected, "the store's part is complete");
    Answered {
        mark: record.mark().expect("the history was read"),
        took,
        reader,
    }
}

#[track_caller]
fn assert_marked(answered: &Answered, kind: HistoryProblemKind, text: &str) {
    let mark = &answered.mark;
    assert_eq!(mark.kind, Some(kind), "{mark:?}");
    assert!(
        mark.from.is_some() && mark.from <= Some(mark.until),
        "{mark:?}"
    );
    assert!(
        mark.header()
            .contains(&format!("incomplete={}", kind.as_str()))
    );
    let warnings = mark.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains(text)),
        "{warnings:?}"
    );
    assert!(
        answered.took < Duration::from_secs(15),
        "{:?}",
        answered.took
    );
    let status = answered.reader.status();
    let counted = status
        .problems
        .iter()
        .find(|(reason, _)| *reason == kind.as_str());
    assert!(counted.is_some_and(|(_, count)| *count >= 1), "{status:?}");
}

#[test]
fn an_engine_that_is_down_is_reported_and_not_retried_at_once() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("bound"));
    drop(free);
    let answered = ask(&url, |_| {});
    assert_marked(&answered, HistoryProblemKind::Unreachable, "refused");
    let data = TestData::new(now_millis());
    let last = RetainedStore::of_last(&data);
    let again = ask_again(&data, &last, answered.reader);
    assert_marked(&again, HistoryProblemKind::Busy, "next attempt within");
    assert_eq!(again.reader.status().requests, 1);
}

#[test]
fn slow_engines_cost_their_timeout() {
    let silent = ask(
        &server(|_, _| std::thread::sleep(Duration::from_secs(30))),
        |_| {},
    );
    assert_marked(&silent, HistoryProblemKind::Timeout, "within the timeout");
    // An engine that sends single bytes does not extend the timeout.
    let dripping = ask(
        &server(|_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
            for _ in 0..300 {
                if stream.write_all(b" ").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }),
        |_| {},
    );
    assert_marked(&dripping, HistoryProblemKind::Timeout, "within the timeout");
}

/// Neither a client that closes its connection nor one that asks for a short timeout says anything
/// about the engine.
#[test]
fn a_cancelled_or_short_query_does_not_deny_the_history_to_others() {
    let hangs = Arc::new(AtomicBool::new(true));
    let (sender, arrived) = std::sync::mpsc::channel();
    let url = server({
        let hangs = hangs.clone();
        move |_, stream| {
            if !hangs.load(Ordering::Relaxed) {
                return send(stream, "200 OK", matrix(&[]).as_bytes());
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
            // The test may have received enough.
            let _ = sender.send(());
            // Until the client closes the connection.
            let _ = stream.read(&mut [0]);
        }
    });
    let data = TestData::new(now_millis());
    let last = RetainedStore::of_last(&data);
    let reader = history(&url, |settings| settings.api = HistoryApi::Query);
    let source = last.source.clone().with_history(reader.clone());
    let times = (data.border - 1_800_000, data.now);
    let limits = PromqlLimits::default();
    let cancellation = limits.cancellation.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            arrived.recv().expect("a request");
            cancellation.cancel();
        });
        drop(range(&source, "queue_depth", times, 10_000, &limits));
    });
    let status = reader.status();
    assert_eq!((status.requests, status.last_error), (1, None));
    assert!(status.problems.iter().all(|(_, count)| *count == 0));
    let short = PromqlLimits {
        time_max: Duration::from_millis(200),
        ..PromqlLimits::default()
    };
    drop(range(&source, "queue_depth", times, 10_000, &short));
    assert_eq!(reader.status().requests, 2);
    hangs.store(false, Ordering::Relaxed);
    let answered = ask_again(&data, &last, reader);
    assert_eq!(answered.mark.from, None, "{:?}", answered.mark);
}

#[test]
fn wrong_answers_are_refused() {
    for (status, body) in [
        ("200 OK", "<html>login</html>".to_owned()),
        ("200 OK", String::new()),
        ("200 OK", r#"{"status":"error","error":"no"}"#.to_owned()),
        ("200 OK", matrix(&[(1., 1.)])),
        ("200 OK", matrix(&[(9e15, 1.)])),
        ("200 OK", matrix(&[]).replace("n1:1337", "n2:1337")),
    ] {
        let shown = body.clone();
        let url = server(move |_, stream| send(stream, status, body.as_bytes()));
        let answered = ask(&url, |_| {});
        assert_eq!(
            answered.mark.kind,
            Some(HistoryProblemKind::Malformed),
            "{shown}"
        );
        assert_marked(&answered, HistoryProblemKind::Malformed, "malformed answer");
    }
    let url = server(|_, stream| send(stream, "401 Unauthorized", b"who are you"));
    assert_marked(
        &ask(&url, |_| {}),
        HistoryProblemKind::Refused,
        "401: who are you",
    );
    let url = server(|_, stream| send(stream, "503 Unavailable", b"later"));
    assert_marked(
        &ask(&url, |_| {}),
        HistoryProblemKind::Unreachable,
        "503: later",
    );
    let url = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"status\"");
    });
    assert_marked(&ask(&url, |_| {}), HistoryProblemKind::Unreachable, "lost");
}

#[test]
fn huge_answers_are_not_buffered() {
    let url = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"status\":\"success\",\"x\":\"");
        let chunk = [b'a'; 64 << 10];
        // Four gigabytes, unless the client stops.
        for _ in 0..1 << 16 {
            if stream.write_all(&chunk).is_err() {
                return;
            }
        }
    });
    let answered = ask(&url, |settings| settings.bytes = ByteSize::mebibytes(1));
    assert_marked(&answered, HistoryProblemKind::TooLarge, "exceeds");
    let received = answered.reader.status().received_bytes;
    assert!(received < 8 << 20, "{received}");
}

#[test]
fn warnings_of_the_engine_are_passed_on_and_its_answer_is_not_kept() {
    let url = server(|_, stream| {
        let body = matrix(&[]).replace("\"status\"", "\"warnings\":[\"store gone\"],\"status\"");
        send(stream, "200 OK", body.as_bytes());
    });
    let answered = ask(&url, |_| {});
    assert_marked(&answered, HistoryProblemKind::Partial, "store gone");
    assert_eq!(answered.reader.status().cache_bytes, 0);
}

#[test]
fn credentials_and_headers_are_sent() {
    let dir = pegel_testkit::TempDir::new();
    std::fs::write(dir.join("token"), "secret\n").expect("written");
    let (sender, requests) = std::sync::mpsc::channel();
    let url = server(move |request, stream| {
        let _ = sender.send(request.to_owned());
        send(stream, "200 OK", matrix(&[]).as_bytes());
    });
    let answered = ask(&format!("{url}/tenant"), |settings| {
        settings.bearer_token_file = Some(dir.join("token"));
        let tenant = pegel_config::Secret::new("7");
        settings.headers.insert("X-Scope-OrgID".into(), tenant);
    });
    assert_eq!(answered.mark.from, None, "{:?}", answered.mark);
    let request = requests
        .recv_timeout(Duration::from_secs(5))
        .expect("a request");
    let lower = request.to_ascii_lowercase();
    assert!(
        request.starts_with("POST /tenant/api/v1/query HTTP/1.1"),
        "{request}"
    );
    assert!(lower.contains("authorization: bearer secret"), "{request}");
    assert!(lower.contains("x-scope-orgid: 7"), "{request}");
    assert!(!answered.mark.header().contains("secret"));
}
