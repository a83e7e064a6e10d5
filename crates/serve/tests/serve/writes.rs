//! Points that programs post: OpenTSDB's `put`, and Dragon's calls.

use std::io::Write;
use std::sync::atomic::Ordering;

use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_config::ByteSize;
use pegel_testkit::{AgentAddress, TestResponse, check_conserved, post};
use serde_json::{Value, json};

use crate::support::{TestServer, now};

impl TestServer {
    #[track_caller]
    fn post(&self, path: &str, body: impl AsRef<[u8]>) -> TestResponse {
        self.post_with(path, &[], body)
    }

    #[track_caller]
    fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> TestResponse {
        let address = AgentAddress::Tcp(self.tcp());
        post(&address, path, headers, body.as_ref()).expect("an answer")
    }

    /// The stored points of one name: labels, milliseconds, value.
    fn stored(&self, name: &str) -> Vec<(Value, i64, f64)> {
        let answer = self
            .get(&format!("/api/v1/range?start=-1h&match={name}"))
            .json();
        let series = answer.as_array().expect("a list").iter();
        let points = series.flat_map(|series| {
            let points = series["points"].as_array().expect("points").clone();
            let labels = series["labels"].clone();
            points.into_iter().map(move |point| {
                let time = point[0].as_i64().expect("a time");
                (labels.clone(), time, point[1].as_f64().expect("a value"))
            })
        });
        points.collect()
    }

    fn ledger_of(&self, input: &str) -> Value {
        let status = self.get("/status").json();
        check_conserved(&status).expect("received = kept + dropped");
        let mut inputs = status["inputs"].as_array().expect("inputs").iter();
        inputs
            .find(|ledger| ledger["input"] == input)
            .expect("this input")
            .clone()
    }

    #[track_caller]
    pub(crate) fn assert_ledger(
        &self,
        input: &str,
        received: u64,
        kept: u64,
        dropped: &[(&str, u64)],
    ) {
        let ledger = self.ledger_of(input);
        assert_eq!(
            (&ledger["received"], &ledger["kept"]),
            (&json!(received), &json!(kept)),
            "{ledger}"
        );
        for (reason, count) in dropped {
            assert_eq!(
                ledger["dropped"][reason],
                json!(count),
                "{reason}: {ledger}"
            );
        }
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("written");
    encoder.finish().expect("finished")
}

#[test]
fn dragons_points_are_stored_and_answered_as_dragon_does() {
    let server = TestServer::new();
    let time = now() / 1000 - 5;
    let body = json!({"timestamp": time, "dps": [
        {"metric": "m", "value": 1.5, "tags": {"gpu": 0}},
        {"metric": "m", "value": "text"},
        {"metric": "n", "value": 7, "telemetry_level": 4},
        {"metric": "o", "value": 2, "telemetry_level": 1},
    ]});
    let answer = server.post("/api/metrics", body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(
        answer.text(),
        "{\"success\":2,\"failed\":2,\"errors\":[\"point 1: malformed value; expected a number\",\
         \"n: metric level 4 exceeds the agent's level 3\"]}"
    );
    assert_eq!(
        server.stored("m"),
        [(json!({"gpu": "0"}), time * 1000, 1.5)]
    );
    assert_eq!(server.stored("o"), [(json!({}), time * 1000, 2.0)]);
    let listed = server.get("/api/v1/list?match=m").json();
    assert_eq!(listed[0]["doc"], "Sent by a program to /api/metrics.");
    server.assert_ledger("http", 4, 2, &[("bad_value", 1), ("level", 1)]);

    let before = now();
    let answer = server.post("/api/metrics", r#"{"dps":[{"metric":"p","value":3}]}"#);
    assert_eq!(
        answer.json(),
        json!({"success": 1, "failed": 0, "errors": []})
    );
    let stored = server.stored("p");
    assert!((before..=now()).contains(&stored[0].1), "{stored:?}");

    let millis = now() - 777;
    let body = json!({"timestamp": millis, "dps": [{"metric": "q", "value": -1}]});
    server.post("/api/metrics", body.to_string());
    assert_eq!(server.stored("q"), [(json!({}), millis, -1.0)]);
}

#[test]
fn an_invalid_body_is_refused_and_counted() {
    let server = TestServer::new();
    for (path, input) in [("/api/metrics", "http"), ("/api/put", "put")] {
        for body in ["", "x", "{", "[1", "\u{0}", "\"text\"", "[[["] {
            let answer = server.post(path, body);
            assert_eq!(answer.status, 400, "{path} {body:?}");
            assert!(
                answer.json()["error"]["hint"].is_string(),
                "{}",
                answer.text()
            );
        }
        server.assert_ledger(input, 7, 0, &[("malformed", 7)]);
    }
    let answer = server.post("/api/metrics", "[]");
    assert_eq!(
        answer.json()["error"]["message"],
        "not JSON: byte 0: expected an object"
    );
}

#[test]
fn put_accepts_one_point_or_many_and_responds_by_its_flags() {
    let server = TestServer::new();
    let time = now() - 1000;
    let good = json!({"metric": "a.b", "timestamp": time, "value": "1.5", "tags": {"host": "x"}});
    let answer = server.post("/api/put", good.to_string());
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(server.stored("a.b"), [(json!({"host": "x"}), time, 1.5)]);

    for (flags, expected) in [
        ("?summary", json!({"failed": 0, "success": 2})),
        (
            "?details=true&sync",
            json!({"errors": [], "failed": 0, "success": 2}),
        ),
    ] {
        let answer = server.post(&format!("/api/put{flags}"), json!([good, good]).to_string());
        assert_eq!((answer.status, answer.json()), (200, expected), "{flags}");
    }
    let seconds = json!({"metric": "c", "timestamp": time / 1000, "value": 2, "tags": {"n": 7}});
    let bad = json!({"metric": "c", "timestamp": "soon", "value": 2});
    let body = json!([bad, seconds, 7]).to_string();
    let answer = server.post("/api/put?details", &body);
    assert_eq!(answer.status, 400);
    let time_fault =
        "the timestamp is not a number of seconds (up to 10 digits) or milliseconds since 1970";
    let not_a_point = "a point must be an object with a metric and a value";
    assert_eq!(
        answer.json(),
        json!({"errors": [
            {"datapoint": bad, "error": time_fault},
            {"datapoint": 7, "error": not_a_point},
        ], "failed": 2, "success": 1})
    );
    assert_eq!(
        server.stored("c"),
        [(json!({"n": "7"}), time / 1000 * 1000, 2.0)]
    );
    let answer = server.post("/api/put?summary", &body);
    assert_eq!(answer.json(), json!({"failed": 2, "success": 1}));
    let answer = server.post("/api/put", &body);
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"]
        .as_str()
        .expect("a text")
        .to_owned();
    assert!(
        message.starts_with("2 of 3 points were refused; the first, number 0: "),
        "{message}"
    );
    server.assert_ledger("put", 14, 8, &[("malformed", 6)]);
}

#[test]
fn invalid_numbers_affect_only_their_point() {
    let server = TestServer::new();
    let time = now();
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "\"nan\"",
        "[1]",
        "true",
        "null",
    ] {
        let body = format!(
            r#"[{{"metric":"bad","timestamp":{time},"value":{value}}},{{"metric":"good","timestamp":{time},"value":1}}]"#
        );
        let answer = server.post("/api/put?details", body);
        assert_eq!(answer.status, 400, "{value}");
        let json = answer.json();
        assert_eq!(
            (&json["success"], &json["failed"]),
            (&json!(1), &json!(1)),
            "{value}: {json}"
        );
    }
    assert_eq!(server.stored("bad"), []);
    assert_eq!(server.stored("good").len(), 1);
    server.assert_ledger("put", 16, 8, &[("bad_value", 7), ("malformed", 1)]);
}

#[test]
fn names_have_limits_and_old_and_future_points_are_refused() {
    let server = TestServer::new();
    let time = now();
    let point = |name: &str, time: i64, tag: &str| json!({"metric": name, "timestamp": time, "value": 1, "tags": {"k": tag}});
    let long = "x".repeat(2000);
    let huge = "x".repeat(17 << 10);
    let day = 86_400_000;
    let body = json!([
        point("", time, "v"),
        point(&long, time, "v"),
        point("a\u{0}b", time, "v"),
        point("ok", time, &huge),
        point("ok", time, "a\nb"),
        point("ok", time - 3 * day, "v"),
        point("ok", time + day, "v"),
        point("ok", time, "v"),
    ]);
    let answer = server.post("/api/put?details", body.to_string());
    let json = answer.json();
    assert_eq!(
        (answer.status, &json["success"]),
        (400, &json!(1)),
        "{json}"
    );
    server.assert_ledger(
        "put",
        8,
        1,
        &[("bad_name", 5), ("too_old", 1), ("future", 1)],
    );
    let status = server.get("/status").json();
    let sender = &status["senders"][0];
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(sender["sender"], json!(format!("uid {uid}")));
    assert_eq!(sender["dropped"]["bad_name"], 5);
}

#[test]
fn gzip_bodies_are_accepted_and_limited() {
    let server = TestServer::with(|settings| settings.limits.body = ByteSize::bytes(2000));
    let good = json!({"metric": "z", "timestamp": now(), "value": 1}).to_string();
    let headers = [("Content-Encoding", "gzip")];
    assert_eq!(
        server.post_with("/api/put", &headers, gzip(&good)).status,
        204
    );
    assert_eq!(server.stored("z").len(), 1);
    assert_eq!(server.post_with("/api/put", &headers, &good).status, 400);
    let bomb = gzip(&" ".repeat(100 << 10));
    assert!(bomb.len() < 2000);
    assert_eq!(server.post_with("/api/put", &headers, bomb).status, 413);
    let zstd = [("Content-Encoding", "zstd")];
    assert_eq!(server.post_with("/api/put", &zstd, &good).status, 415);
    assert_eq!(server.post("/api/put", " ".repeat(2001)).status, 413);
    server.assert_ledger("put", 5, 1, &[("malformed", 2), ("too_large", 2)]);
    assert_eq!(server.refused("body_size"), 1);
    let limited = server.get("/status").json()["http"]["limited"].clone();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(limited[format!("uid {uid}")], json!({"body_size": 1}));
}

#[test]
fn all_bodies_together_have_a_limit() {
    let server = TestServer::with(|settings| settings.limits.bodies = ByteSize::bytes(64 << 10));
    let mut slow = server.connect();
    slow.send("POST /api/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n");
    slow.send(&" ".repeat(40_000));
    pegel_testkit::eventually("the first body is held", || {
        let held = server.get("/status").json()["http"]["body_bytes"].as_u64();
        match held {
            Some(held) if held >= 40_000 => Ok(()),
            held => Err(held),
        }
    });
    let answer = server.post("/api/put", " ".repeat(40_000));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("limits.bodies"), "{}", answer.text());
    assert_eq!(server.refused("body_memory"), 1);
    let small = json!({"metric": "s", "timestamp": now(), "value": 1}).to_string();
    assert_eq!(
        server.post("/api/put", &small).status,
        204,
        "small ones find room"
    );
    slow.send(&" ".repeat(10_000));
    assert!(slow.until("\r\n").starts_with("HTTP/1.1 400 "), "no JSON");
    server.assert_ledger("put", 3, 1, &[("busy", 1), ("malformed", 1)]);
    assert_eq!(server.get("/status").json()["http"]["body_bytes"], 0);
}

#[test]
fn a_truncated_body_is_counted() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.send("POST /api/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n[{\"me");
    // If the client disconnects at once, the kernel does not report the owner.
    pegel_testkit::eventually("it is on its way", || {
        match server.get("/status").json()["http"]["body_bytes"].as_u64() {
            Some(1024) => Ok(()),
            held => Err(held),
        }
    });
    drop(client);
    pegel_testkit::eventually("it is counted", || {
        let ledger = server.ledger_of("put");
        match ledger["dropped"]["malformed"].as_u64() {
            Some(1) => Ok(()),
            _ => Err(ledger),
        }
    });
}

#[test]
fn a_clean_up_is_for_dragons_series_only() {
    let server = TestServer::new();
    let time = now() / 1000;
    for (name, at) in [("d", time - 100), ("d", time - 50), ("gone", time - 100)] {
        let body = json!({"timestamp": at, "dps": [{"metric": name, "value": at}]});
        assert_eq!(server.post("/api/metrics", body.to_string()).status, 201);
    }
    let body = json!({"metric": "p", "timestamp": time - 100, "value": 1, "tags": {}});
    server.post("/api/put", body.to_string());
    let answer = server.post(
        "/api/tsdb_cleanup",
        json!({"start_time": time - 50}).to_string(),
    );
    assert_eq!(answer.status, 201);
    assert_eq!(answer.text(), "{\"errors\":[],\"failed\":0,\"success\":0}");
    assert_eq!(server.stored("d").len(), 1, "strictly older ones are gone");
    assert_eq!(server.stored("gone"), []);
    assert_eq!(server.get("/api/v1/values?match=gone").text(), "[]");
    assert_eq!(server.stored("p").len(), 1);
    let late = json!({"timestamp": time - 60, "dps": [{"metric": "d", "value": 1}]});
    let answer = server.post("/api/metrics", late.to_string()).json();
    assert_eq!(
        answer["errors"],
        json!(["d: the timestamp is before the last clean-up"])
    );
    for body in ["{}", "", r#"{"start_time":"x"}"#] {
        assert_eq!(server.post("/api/tsdb_cleanup", body).status, 400, "{body}");
    }
    // A future time hides existing points, not later ones.
    let answer = server.post(
        "/api/tsdb_cleanup",
        json!({"start_time": time + 9999}).to_string(),
    );
    assert_eq!(answer.status, 201);
    assert_eq!(server.stored("d"), []);
    let body = json!({"timestamp": now(), "dps": [{"metric": "d", "value": 5}]});
    assert_eq!(
        server.post("/api/metrics", body.to_string()).json()["success"],
        1
    );
    server.assert_ledger("http", 5, 4, &[("too_old", 1)]);
}

#[test]
fn only_an_agent_of_a_job_can_be_stopped_by_a_client() {
    let server = TestServer::new();
    assert_eq!(server.get("/api/ready").text(), "{\"is_ready\":true}");
    let paths = [
        "/api/set_shutdown",
        "/api/telemetry_shutdown",
        "/api/set_telemetry_shutdown",
    ];
    for path in paths {
        let answer = server.get(path);
        assert_eq!(answer.status, 403, "{path}");
        assert!(
            answer.text().contains("not started by a job"),
            "{}",
            answer.text()
        );
    }
    for path in &paths[1..] {
        let server = TestServer::of_job();
        let mut client = server.connect();
        client.send(&format!(
            "HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        assert!(client.rest().starts_with("HTTP/1.1 405 "), "{path}");
        let foreign = [("Origin", "http://evil.example")];
        let address = AgentAddress::Tcp(server.tcp());
        let answer = pegel_testkit::get_with(&address, path, &foreign).expect("an answer");
        assert_eq!(answer.status, 403, "another server's page");
        let answer = server.get("/api/set_shutdown");
        assert_eq!(answer.text(), "{\"errors\":[],\"failed\":0,\"success\":1}");
        assert!(!server.finished.load(Ordering::Relaxed));
        let answer = server.get(path);
        assert_eq!(
            answer.json(),
            json!({"shutdown": true, "shutdown_begin": true})
        );
        assert!(server.finished.load(Ordering::Relaxed));
    }
}

#[test]
fn a_key_is_exchanged_for_a_token() {
    let server = TestServer::with(|settings| {
        settings.auth_key = Some("planted key".parse().expect("a secret"));
    });
    for body in ["", "{}", r#"{"auth_key":"wrong"}"#, r#"{"auth_key":7}"#] {
        let answer = server.post("/api/token", body);
        assert_eq!(
            (answer.status, answer.text()),
            (400, "{\"msg\":\"Bad auth_key\"}"),
            "{body}"
        );
    }
    assert_eq!(server.refused("auth_key"), 1, "the others showed none");
    let answer = server.post("/api/token", r#"{"auth_key":"planted key"}"#);
    assert_eq!(answer.status, 200);
    let token = answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert!(token.starts_with("Bearer ") && token.len() > 40);
    let none = TestServer::new();
    assert_eq!(none.post("/api/token", r#"{"auth_key":""}"#).status, 400);
}

#[test]
fn what_takes_a_body_says_so() {
    let server = TestServer::new();
    let answer = server.get("/api/put");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(server.post("/api/v1/list", "{}").status, 405);
}

/// Every response of OpenTSDB's API has the tag `host`: a series that already has it, with the
/// node's own name, must not appear twice.
#[test]
fn the_nodes_own_host_tag_is_not_stored_and_others_are() {
    let server = TestServer::new();
    let time = now() - 1000;
    for (at, host) in [(0, json!({})), (1, json!({"host": "nid0001"}))] {
        let point = json!({"metric": "depth", "timestamp": time + at, "value": at, "tags": host});
        assert_eq!(server.post("/api/put", point.to_string()).status, 204);
    }
    let expected = [(json!({}), time, 0.0), (json!({}), time + 1, 1.0)];
    assert_eq!(server.stored("depth"), expected);
    let answer = server.get("/api/search/lookup?m=depth");
    assert_eq!(answer.json()["totalResults"], 1);
}
