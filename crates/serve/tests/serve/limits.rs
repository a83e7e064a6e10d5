//! Limits on time, size, memory and connections.

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use pegel_config::ByteSize;
use pegel_metric::MetricKind;
use pegel_testkit::eventually;

use crate::support::{TestServer, now};

const SHORT: Duration = Duration::from_millis(300);
const REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_silent_connection_is_closed() {
    let server = TestServer::with(|settings| settings.head_time = SHORT);
    let begun = Instant::now();
    let mut client = server.connect();
    assert_eq!(client.rest(), "");
    assert!(begun.elapsed() >= SHORT);
    eventually("the refusal is counted", || {
        match server.refused("head_time") {
            1 => Ok(()),
            other => Err(other),
        }
    });
}

#[test]
fn a_request_may_come_byte_by_byte_but_not_for_ever() {
    let server = TestServer::new();
    let mut client = server.connect();
    for byte in REQUEST.as_bytes() {
        client.0.write_all(&[*byte]).expect("sent");
    }
    assert!(client.until("ok\n").starts_with("HTTP/1.1 200 OK\r\n"));

    let server = TestServer::with(|settings| settings.head_time = SHORT);
    let mut client = server.connect();
    let begun = Instant::now();
    // Every byte arrives in time; the head as a whole does not.
    while client.0.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never closed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.refused("head_time"), 1);
}

#[test]
fn an_idle_connection_may_wait_longer_than_a_request_head() {
    let server = TestServer::with(|settings| {
        settings.head_time = SHORT;
        settings.idle_time = SHORT * 10;
    });
    let mut client = server.connect();
    client.send(REQUEST);
    client.until("ok\n");
    let begun = Instant::now();
    std::thread::sleep(SHORT * 2);
    client.send(REQUEST);
    client.until("ok\n");
    assert_eq!(client.rest(), "", "closed when idle too long");
    assert!(begun.elapsed() >= SHORT * 12);
    assert_eq!(server.refused("head_time"), 0);
}

#[test]
fn requests_that_are_too_large_have_their_own_status() {
    let server = TestServer::new();
    for (request, code, reason) in [
        (
            format!(
                "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "x".repeat(9 << 10)
            ),
            414,
            "uri_length",
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
                "x".repeat(20 << 10)
            ),
            431,
            "head_size",
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n".to_owned(),
            413,
            "body_size",
        ),
        ("what is this\r\n\r\n".to_owned(), 400, "malformed"),
    ] {
        let mut client = server.connect();
        // The server may respond and close before it has read everything.
        let _ = client.0.write_all(request.as_bytes());
        let head = client.until("\r\n");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {code} ")),
            "{reason}: {head}"
        );
        eventually(reason, || match server.refused(reason) {
            1 => Ok(()),
            other => Err(other),
        });
    }
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn a_chunked_body_is_limited_too() {
    let server = TestServer::with(|settings| settings.limits.body = ByteSize::bytes(100));
    let mut client = server.connect();
    for method in ["GET", "POST"] {
        let body = "64\r\n".to_owned() + &"x".repeat(100) + "\r\n0\r\n\r\n";
        client.send(&format!(
            "{method} /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        let code = if method == "GET" { 200 } else { 405 };
        let head = client.until("\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{head}");
        client.until(if method == "GET" { "ok\n" } else { "}}" });
    }
    assert_eq!(server.refused("body_size"), 0);
    client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    // The head never ends.
    while client.0.write_all(b"1\r\nx\r\n").is_ok() {}
    assert_eq!(server.refused("body_size"), 1);
}

#[test]
fn connections_are_limited_and_freed_again() {
    let server = TestServer::with(|settings| {
        settings.limits.connections = NonZeroU32::new(2).expect("not zero")
    });
    let held = [server.connect(), server.connect()];
    for mut client in held.iter().map(|client| &client.0) {
        client.write_all(REQUEST.as_bytes()).expect("sent");
        client.read_exact(&mut [0; 15]).expect("an answer");
    }
    let mut third = server.connect();
    third.send(REQUEST);
    let answer = third.rest();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many connections"),
        "{answer}"
    );
    assert_eq!(server.refused("connections"), 1);
    // The UNIX socket has a limit of its own.
    let socket = pegel_testkit::AgentAddress::Unix(
        server.running().socket_path().expect("a socket").to_owned(),
    );
    assert_eq!(
        pegel_testkit::get(&socket, "/healthz")
            .expect("an answer")
            .status,
        200
    );
    drop(held);
    eventually("a permit is free", || {
        let mut client = server.connect();
        client.send(REQUEST);
        match client.until("\r\n").as_str() {
            "HTTP/1.1 200 OK\r\n" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
}

#[test]
fn a_query_that_waits_too_long_is_refused() {
    let server = TestServer::with(|settings| {
        settings.queries_max = 0;
        settings.request_time = SHORT;
    });
    let answer = server.get("/api/v1/range");
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (504, &504.into())
    );
    assert_eq!(server.refused("request_time"), 1);
    assert_eq!(
        server.get("/healthz").status,
        200,
        "others are not affected"
    );
}

#[test]
fn responses_are_limited_each_and_together() {
    let server = TestServer::with(|settings| settings.response_bytes_max = 1000);
    let points: Vec<_> = (0..200).map(|n| ("a", now() - n * 100, n as f64)).collect();
    server.push(MetricKind::Gauge, &points);
    assert_eq!(server.get("/api/v1/range?match=a").status, 413);
    assert_eq!(server.refused("answer_size"), 1);
    // The other APIs have their own forms of errors and count as well.
    let end = now() / 1000;
    let range = format!("start={}&end={end}&step=0.1", end - 60);
    let promql = server.get(&format!("/api/v1/query_range?query=a&{range}"));
    assert_eq!(promql.status, 422, "{}", promql.text());
    assert_eq!(promql.json()["errorType"], "execution");
    assert_eq!(server.refused("answer_size"), 2);
    let opentsdb = server.get("/api/query?start=1m-ago&ms&m=sum:a");
    assert_eq!(opentsdb.status, 413, "{}", opentsdb.text());
    assert_eq!(server.refused("answer_size"), 3);
    let export = server.get("/api/v1/export?match=a&format=csv");
    assert_eq!(export.status, 413, "{}", export.text());
    assert_eq!(server.refused("answer_size"), 4);
    assert_eq!(server.get("/api/v1/values").status, 200);

    let server = TestServer::with(|settings| settings.responses_bytes_max = 0);
    let answer = server.get("/api/v1/values");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(server.refused("answer_memory"), 1);
}

/// Whatever other users send, lists of all series have those of the node and of the agent's user.
#[test]
fn series_of_other_users_are_left_out_of_lists_that_are_too_large() {
    use pegel_metric::{Family, Input, Point, Series};
    use std::sync::Arc;
    let push = |server: &TestServer, name: &str, help: usize, label: &[(&str, &str)]| {
        let family = Family {
            help: "h".repeat(help).into(),
            ..Family::new("", MetricKind::Gauge, "", 1, "").of_input(Input::Otlp)
        };
        let series = Series::named(Arc::new(family), name, label).expect("valid");
        let point = Point {
            series: Arc::new(series),
            time: now(),
            value: 1.0,
        };
        let pushed = server.store.push(Input::Otlp, vec![point]);
        assert_eq!(pushed.expect("stored").refused, []);
    };
    let paths = [
        "/metrics",
        "/api/v1/list",
        "/api/v1/values",
        "/api/v1/metadata",
    ];
    for (count, help) in [(10, 1_000), (200, 0), (200, 200)] {
        let server = TestServer::with(|settings| settings.response_bytes_max = 8_000);
        push(&server, "own", 20, &[]);
        for n in 0..count {
            push(&server, &format!("a_flood_{n}"), help, &[("user", "eve")]);
        }
        for path in paths {
            let answer = server.get(path);
            let text = answer.text();
            let case = format!("{path} of {count} with {help}: {} {text}", answer.status);
            assert_eq!(answer.status, 200, "{case}");
            assert!(text.len() <= 8_000, "{case}");
            assert!(text.contains("own"), "{case}");
            let has_help = path != "/api/v1/values";
            assert!(!has_help || text.contains(&"h".repeat(20)), "{case}");
            assert!(!text.contains(&"h".repeat(200)), "{case}");
            assert!(text.contains("a_flood_"), "as many as fit: {case}");
            let is_marked = match path {
                "/metrics" => text.starts_with("# pegel: the response is limited"),
                "/api/v1/metadata" => text.contains("the response is limited"),
                _ => answer.header("pegel-left-out").is_some(),
            };
            let is_whole = path == "/api/v1/values" && count == 10;
            assert_eq!(is_marked, !is_whole, "{case}");
        }
    }
}

/// Requests all values but reads nothing from the wire, while everything changes constantly.
#[test]
fn a_reader_that_stalls_delays_no_other_and_is_dropped() {
    let server = TestServer::with(|settings| settings.write_time = Duration::from_secs(1));
    let names: Vec<String> = (0..3000)
        .map(|n| format!("a_rather_long_metric_name_{n:04}"))
        .collect();
    let push = |round: i64| {
        let samples: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), now(), round as f64))
            .collect();
        server.push(MetricKind::Gauge, &samples);
    };
    push(0);
    let mut client = server.connect();
    client.send("GET /api/v1/stream?rate=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.until("data: ");
    let begun = Instant::now();
    let mut round = 1;
    while server.refused("slow_reader") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "never dropped");
        push(round);
        round += 1;
        assert_eq!(server.get("/healthz").status, 200);
    }
    eventually("its connection is gone", || {
        match &server.get("/status").json()["http"]["connections"] {
            count if *count == 1 => Ok(()),
            other => Err(other.clone()),
        }
    });
}
