//! Server-sent events: `/api/v1/stream`.

use std::time::Duration;

use pegel_metric::MetricKind;
use pegel_testkit::{AgentAddress, eventually, send_raw};
use serde_json::{Value, json};

use crate::support::{RawConnection, TestServer, now};

fn follow(server: &TestServer, query: &str) -> RawConnection {
    let mut client = server.connect();
    client.send(&format!(
        "GET /api/v1/stream?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    let head = client.until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    client
}

/// Returns the names and values of the next event.
fn event(client: &mut RawConnection) -> Vec<(String, Value)> {
    client.until("data: ");
    let data = client.until("\n\n");
    let event: Value = serde_json::from_str(data.trim_end()).expect("JSON");
    let values = event.as_array().expect("an array");
    values
        .iter()
        .map(|value| {
            (
                value["name"].as_str().expect("a name").to_owned(),
                value["value"].clone(),
            )
        })
        .collect()
}

#[test]
fn the_first_event_has_everything_and_later_ones_only_changes() {
    let server = TestServer::new();
    server.push(MetricKind::Gauge, &[("a", now(), 1.0), ("b", now(), 2.0)]);
    let mut client = follow(&server, "rate=100");
    assert_eq!(
        event(&mut client),
        [("a".into(), json!(1.0)), ("b".into(), json!(2.0))]
    );
    // The same value again is not a change.
    server.push(MetricKind::Gauge, &[("a", now(), 1.0)]);
    server.push(MetricKind::Gauge, &[("b", now(), 5.0)]);
    assert_eq!(event(&mut client), [("b".into(), json!(5.0))]);
    server.push(MetricKind::Gauge, &[("c", now(), 6.0)]);
    assert_eq!(event(&mut client), [("c".into(), json!(6.0))]);
}

#[test]
fn four_thousand_names_at_the_highest_rate_are_followed() {
    let server = TestServer::new();
    let base = now();
    server.push(MetricKind::Gauge, &[("a", base, 1.0), ("b", base, 2.0)]);
    let names = format!("{}c", "a,".repeat(4000));
    let mut client = follow(&server, &format!("rate=1000&names={names}"));
    assert_eq!(event(&mut client), [("a".into(), json!(1.0))]);
    for n in 1..=20 {
        let value = f64::from(n);
        server.push(MetricKind::Gauge, &[("b", base, value), ("c", base, value)]);
        assert_eq!(event(&mut client), [("c".into(), json!(value))]);
    }
    let answer = server.get(&format!("/api/v1/values?names={names}"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json().as_array().map(Vec::len), Some(2));
}

#[test]
fn columns_name_a_series_once() {
    let server = TestServer::new();
    let base = now() - 1000;
    server.push(
        MetricKind::Gauge,
        &[("a", base, 1.0), ("b", base - 300, 2.0)],
    );
    let mut client = follow(&server, "rate=100&form=columns");
    let mut event = || -> Value {
        client.until("data: ");
        serde_json::from_str(client.until("\n\n").trim_end()).expect("JSON")
    };
    let first = event();
    let mut names = [first["new"][0].as_str(), first["new"][1].as_str()];
    let b = names.iter().position(|name| *name == Some("b"));
    let b = b.expect("named");
    names.sort_unstable();
    assert_eq!(names, [Some("a"), Some("b")]);
    assert_eq!(first["at"], base);
    assert_eq!(first["ids"], json!([0, 1]));
    assert_eq!(
        (&first["ago"][b], &first["values"][b]),
        (&json!(300), &json!(2.0))
    );
    server.push(MetricKind::Gauge, &[("b", base + 1, 5.0)]);
    assert_eq!(
        event(),
        json!({"at": base + 1, "new": [], "ids": [b], "ago": [0], "values": [5.0]})
    );
}

#[test]
fn only_requested_series_are_sent() {
    let server = TestServer::new();
    // Points with future times would become current later.
    let past = now() - 1000;
    server.push(MetricKind::Gauge, &[("a", past, 1.0), ("b", past, 2.0)]);
    let mut client = follow(&server, "rate=100&names=b");
    assert_eq!(event(&mut client), [("b".into(), json!(2.0))]);
    server.push(MetricKind::Gauge, &[("a", now(), 3.0)]);
    server.push(MetricKind::Gauge, &[("b", now(), 4.0)]);
    assert_eq!(event(&mut client), [("b".into(), json!(4.0))]);
    let mut nothing = follow(&server, "match=missing*");
    assert_eq!(event(&mut nothing), []);
}

#[test]
fn changes_between_two_events_are_sent_once() {
    let server = TestServer::new();
    let past = now() - 1000;
    server.push(MetricKind::Gauge, &[("a", past, 0.0)]);
    let mut client = follow(&server, "rate=2");
    event(&mut client);
    // All within half a second of the first event.
    for n in 1..=20 {
        server.push(MetricKind::Gauge, &[("a", past + n, n as f64)]);
    }
    let mut events = 1;
    while event(&mut client) != [("a".into(), json!(20.0))] {
        events += 1;
    }
    assert!(events <= 3, "{events} events for what half a second holds");
}

#[test]
fn a_stream_ends_when_the_server_stops() {
    let mut server = TestServer::new();
    let mut client = follow(&server, "rate=10");
    event(&mut client);
    let running = server.running.take().expect("running");
    let begun = std::time::Instant::now();
    server
        .runtime
        .block_on(running.stop(Duration::from_secs(60)));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(
        client.rest().ends_with("0\r\n\r\n"),
        "a complete response, not a truncated one"
    );
}

#[test]
fn a_closed_client_frees_its_connection() {
    let server = TestServer::new();
    let mut client = follow(&server, "rate=1");
    event(&mut client);
    let connections = || server.get("/status").json()["http"]["connections"].clone();
    assert_eq!(connections(), 2);
    drop(client);
    eventually("one connection is left", || match connections() {
        count if count == 1 => Ok(()),
        other => Err(other),
    });
}

#[test]
fn a_stream_shows_again_what_a_filter_no_longer_hides() {
    let server = TestServer::new();
    let filter = |method: &str, body: &str| {
        let request = format!(
            "{method} /api/v1/filters/f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = send_raw(&AgentAddress::Tcp(server.tcp()), &request);
        answer.split(' ').nth(1).map(str::to_owned)
    };
    server.push(MetricKind::Gauge, &[("a", now(), 1.0), ("b", now(), 2.0)]);
    let mut client = follow(&server, "rate=100");
    assert_eq!(event(&mut client).len(), 2);
    assert_eq!(
        filter("PUT", r#"{"match":"a","max":5}"#).as_deref(),
        Some("200")
    );
    let both = [("a".into(), json!(1.0)), ("b".into(), json!(2.0))];
    assert_eq!(event(&mut client), both);
    server.push(MetricKind::Gauge, &[("a", now(), 9.0)]);
    server.push(MetricKind::Gauge, &[("b", now(), 3.0)]);
    assert_eq!(event(&mut client), [("b".into(), json!(3.0))]);
    assert_eq!(filter("DELETE", "").as_deref(), Some("204"));
    let both = [("a".into(), json!(9.0)), ("b".into(), json!(3.0))];
    assert_eq!(event(&mut client), both);
}
