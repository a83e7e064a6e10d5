//! Annotations: created by a client, stored, and shown by Grafana.

use pegel_testkit::BlockedFile;
use serde_json::{Value, json};

use super::grafana::{BrowserSeries, GoAnnotation, GoSeries};
use super::{ask, server};
use crate::support::{RawConnection, TestServer};

/// Sends a request with any method.
fn begin(server: &TestServer, method: &str, path: &str, body: &str) -> RawConnection {
    let mut client = RawConnection::new(server.tcp());
    client.send(&format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client
}

/// Returns the status and body of a request with any method.
fn send(server: &TestServer, method: &str, path: &str, body: &str) -> (u16, Value) {
    let answer = begin(server, method, path, body).rest();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn changes_that_wait_for_a_hanging_disk_delay_no_reader() {
    let (server, _) = server(|_| {});
    let path = server.store.status().dir.join("annotations.jsonl");
    let mut file = BlockedFile::replace(path);
    let change = |second: u32| format!(r#"{{"startTime":{second},"description":"x"}}"#);
    // More than run at a time, of reads and on the server's threads.
    let hanging: Vec<RawConnection> = (1..=8)
        .map(|second| begin(&server, "POST", "/api/annotation", &change(second)))
        .collect();
    let (status, refused) = send(&server, "POST", "/api/annotation", &change(9));
    let details = refused["error"]["details"].as_str().unwrap_or_default();
    assert!(
        status == 503 && details.contains("does not respond"),
        "{status} {refused}"
    );
    for (path, status) in [
        ("/healthz", 200),
        ("/metrics", 200),
        ("/status", 200),
        ("/api/v1/values", 200),
        ("/api/v1/marks?start=-1h", 200),
        ("/api/annotation?start_time=1", 404),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    file.resume();
    drop(hanging);
}

#[test]
fn annotations_are_created_read_changed_and_deleted() {
    let (server, _) = server(|_| {});
    let body = r#"{"startTime":"1369141261","tsuid":"000001","description":"Testing","custom":{"owner":"jdoe"}}"#;
    let note = json!({"tsuid": "000001", "description": "Testing", "notes": "", "custom": {"owner": "jdoe"}, "endTime": 0, "startTime": 1_369_141_261});
    assert_eq!(
        send(&server, "POST", "/api/annotation", body),
        (200, note.clone())
    );
    assert_eq!(
        send(&server, "POST", "/api/annotation", body),
        (304, Value::Null)
    );
    let place = "/api/annotation?start_time=1369141261&tsuid=000001";
    assert_eq!(send(&server, "GET", place, ""), (200, note));
    let body = r#"{"startTime":1369141261,"tsuid":"000001","notes":"only"}"#;
    let (status, replaced) = send(&server, "PUT", "/api/annotation", body);
    assert_eq!(
        (status, &replaced["description"], &replaced["notes"]),
        (200, &json!(""), &json!("only"))
    );
    assert_eq!(send(&server, "DELETE", place, "").0, 204);
    assert_eq!(send(&server, "GET", place, "").0, 404);
    assert_eq!(send(&server, "DELETE", place, "").0, 404);
}

#[test]
fn many_at_once() {
    let (server, _) = server(|_| {});
    let body =
        r#"[{"startTime":10,"description":"a"},{"startTime":20,"tsuid":"0A","description":"b"}]"#;
    let (status, made) = send(&server, "POST", "/api/annotation/bulk", body);
    assert_eq!((status, made.as_array().map(Vec::len)), (200, Some(2)));
    let body = r#"{"startTime":1,"endTime":30,"tsuids":["0a"],"global":true}"#;
    let (status, deleted) = send(&server, "DELETE", "/api/annotation/bulk", body);
    assert_eq!((status, &deleted["totalDeleted"]), (200, &json!(2)));
    assert_eq!(send(&server, "POST", "/api/annotation/bulk", "[]").0, 400);
}

#[test]
fn grafana_shows_annotations_in_both_forms() {
    let (server, at) = server(|_| {});
    let second = at / 1_000 + 3;
    let answer = ask(&server, "/api/query", &format!(r#"{{"start":{at},"showTSUIDs":true,"queries":[{{"metric":"cpu_percent","aggregator":"sum"}}]}}"#)).json();
    let id = answer[0]["tsuids"][0].as_str().expect("an id").to_owned();
    for body in [
        format!(r#"{{"startTime":{second},"description":"for all"}}"#),
        format!(r#"{{"startTime":{second},"tsuid":"{id}","description":"for one"}}"#),
    ] {
        assert_eq!(send(&server, "POST", "/api/annotation", &body).0, 200);
    }
    let note = |description: &str| GoAnnotation {
        description: description.into(),
        start_time: second as f64,
    };
    let old = format!(
        r#"{{"start":{at},"queries":[{{"aggregator":"sum","metric":"cpu_percent"}}],"msResolution":false,"globalAnnotations":true}}"#
    );
    let lines: Vec<BrowserSeries> =
        serde_json::from_slice(&ask(&server, "/api/query", &old).body).expect("lines");
    assert_eq!(lines[0].annotations, [note("for one")]);
    assert_eq!(lines[0].global_annotations, [note("for all")]);
    let new = format!(
        r#"{{"start":{},"end":{},"queries":[{{"metric":"cpu_percent","aggregator":"sum"}}]}}"#,
        at / 1_000,
        at / 1_000 + 60
    );
    let lines: Vec<GoSeries> =
        serde_json::from_slice(&ask(&server, "/api/query", &new).body).expect("lines");
    assert_eq!(lines[0].annotations, [note("for one")]);
    assert_eq!(lines[0].global_annotations, []);
}
