//! The routes that read: their responses and errors.

use std::io::Read;

use flate2::read::GzDecoder;
use pegel_metric::MetricKind;
use pegel_testkit::{AgentAddress, ExporterReadings, check_conserved, get, get_with};
use serde_json::json;

use crate::support::{TestServer, now};

#[test]
fn metrics_have_the_requested_format() {
    let server = TestServer::new();
    let now = now();
    server.push(
        MetricKind::Counter,
        &[
            (r#"hits_total{call="b"}"#, now, 2.0),
            (r#"hits_total{call="a"}"#, now, 1.5),
        ],
    );
    server.push(MetricKind::Gauge, &[("queue.depth", now, 7.0)]);

    let text = server.get("/metrics");
    assert_eq!(text.status, 200);
    assert_eq!(
        text.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let expected = "# HELP hits_total About hits_total.\n# TYPE hits_total counter\n\
                    hits_total{call=\"a\"} 1.5\nhits_total{call=\"b\"} 2\n\
                    # HELP queue_depth About queue.depth.\n# TYPE queue_depth gauge\nqueue_depth 7\n";
    assert_eq!(text.text(), expected);
    assert_eq!(server.get("/metrics/").text(), expected);

    let tcp = AgentAddress::Tcp(server.tcp());
    let open = get_with(
        &tcp,
        "/metrics",
        &[("accept", "application/openmetrics-text;version=1.0.0")],
    );
    let open = open.expect("an answer");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(content_type));
    assert!(open.text().starts_with("# TYPE hits counter\n") && open.text().ends_with("# EOF\n"));
    assert_eq!(
        ExporterReadings::parse_openmetrics(open.text()).value("queue_depth"),
        7.0
    );
}

#[test]
fn large_answers_are_compressed_on_request() {
    let server = TestServer::new();
    let names: Vec<String> = (0..200).map(|n| format!("m{n:03}")).collect();
    let samples: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), now(), 1.0))
        .collect();
    server.push(MetricKind::Gauge, &samples);
    let zipped = get_with(
        &AgentAddress::Tcp(server.tcp()),
        "/metrics",
        &[("accept-encoding", "gzip")],
    );
    let zipped = zipped.expect("an answer");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    let mut plain = String::new();
    GzDecoder::new(&*zipped.body)
        .read_to_string(&mut plain)
        .expect("gzip");
    assert_eq!(plain, server.get("/metrics").text());
    assert!(zipped.body.len() * 4 < plain.len());
}

#[test]
fn names_that_collide_are_counted() {
    let server = TestServer::new();
    server.push(
        MetricKind::Gauge,
        &[("a.b", now(), 1.0), ("a_b", now(), 2.0)],
    );
    assert_eq!(
        ExporterReadings::parse_prometheus(server.get("/metrics").text()).value("a_b"),
        2.0
    );
    assert_eq!(server.get("/status").json()["http"]["name_collisions"], 1);
}

#[test]
fn values_carry_the_time_of_the_last_change() {
    let server = TestServer::new();
    let base = now() / 1000 * 1000 - 10_000;
    server.push(
        MetricKind::Gauge,
        &[
            ("a", base, 1.0),
            (r#"b{x="1"}"#, base, f64::NAN),
            (r#"b{x="2"}"#, base, 2.0),
        ],
    );
    server.push(MetricKind::Gauge, &[("a", base + 500, 3.0)]);
    server.push(MetricKind::Gauge, &[("a", base + 1000, 3.0)]);
    let seconds = base as f64 / 1000.0;
    let a = json!({"name": "a", "ts": seconds + 0.5, "value": 3.0});
    let b1 = json!({"name": "b{x=\"1\"}", "ts": seconds, "value": null});
    let b2 = json!({"name": "b{x=\"2\"}", "ts": seconds, "value": 2.0});
    assert_eq!(server.get("/api/v1/values").json(), json!([a, b1, b2]));
    assert_eq!(server.get("/api/v1/values?names=b").json(), json!([b1, b2]));
    assert_eq!(
        server.get("/api/v1/values?names=b%7Bx=%222%22%7D,a").json(),
        json!([a, b2])
    );
    assert_eq!(
        server.get("/api/v1/values?match=a&match=*2*").json(),
        json!([a, b2])
    );
    assert_eq!(server.get("/api/v1/values?names=missing").json(), json!([]));
}

#[test]
fn the_list_describes_the_series() {
    let server = TestServer::new();
    server.push(
        MetricKind::Counter,
        &[(r#"hits_total{call="a"}"#, now(), 1.0)],
    );
    server.push(MetricKind::Unknown, &[("other", now(), 1.0)]);
    let hits = json!({"name": "hits_total{call=\"a\"}", "doc": "About hits_total.", "type": "counter", "unit": ""});
    let other = json!({"name": "other", "doc": "About other.", "type": "unknown", "unit": ""});
    assert_eq!(server.get("/api/v1/list").json(), json!([hits, other]));
    assert_eq!(server.get("/api/v1/list?match=o*").json(), json!([other]));
}

#[test]
fn range_answers_with_points_per_series() {
    let server = TestServer::new();
    let base = now() / 10_000 * 10_000 - 60_000;
    let points: Vec<_> = (0..4)
        .map(|n| (r#"a{x="1"}"#, base + n * 500, n as f64))
        .collect();
    server.push(MetricKind::Gauge, &points);
    let raw = server
        .get(&format!("/api/v1/range?match=a&start={base}"))
        .json();
    let expected: Vec<_> = (0..4).map(|n| json!([base + n * 500, n as f64])).collect();
    assert_eq!(
        raw,
        json!([{"name": "a", "labels": {"x": "1"}, "points": expected}])
    );
    for (fold, first) in [
        ("first", 0.0),
        ("last", 1.0),
        ("sum", 1.0),
        ("count", 2.0),
        ("avg", 0.5),
    ] {
        let seconds = base / 1000;
        let path = format!("/api/v1/range?match=a&start={seconds}&end=now&step=1s&agg={fold}");
        let folded = server.get(&path).json();
        assert_eq!(folded[0]["points"][0], json!([base, first]), "{fold}");
        assert_eq!(
            folded[0]["points"].as_array().map(Vec::len),
            Some(2),
            "{fold}"
        );
    }
    assert_eq!(server.get("/api/v1/range?match=nothing").json(), json!([]));
}

#[test]
fn status_shows_the_agent_and_its_ledger() {
    let server = TestServer::new();
    server.push(MetricKind::Gauge, &[("a", now(), 1.0)]);
    let status = server.get("/status").json();
    check_conserved(&status).expect("received = kept + dropped");
    assert_eq!(status["node"], "nid0001", "extra fields do not override");
    assert_eq!(status["fact"], "shown");
    assert_eq!(status["version"], "1.2.3");
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["rate"], 0.5);
    assert_eq!(status["degraded"], false);
    assert_eq!(status["collectors"][0]["name"], "cpu");
    assert_eq!(status["store"]["series"], 1);
    assert_eq!(status["http"]["connections"], 1);
    assert_eq!(status["http"]["refused"]["uri_length"], 0);
    for path in ["/healthz", "/-/healthy", "/-/ready"] {
        let health = server.get(path);
        assert_eq!((health.status, health.text()), (200, "ok\n"), "{path}");
    }
}

#[test]
fn a_browser_gets_the_page_and_others_the_list_of_routes() {
    let server = TestServer::new();
    let page = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let answer = get_with(&AgentAddress::Tcp(server.tcp()), "/", &page).expect("an answer");
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(answer.text().contains("<title>Pegel</title>"));
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    assert!(server.get("/").text().contains("/api/v1/range"));
    let missing = server.get("/page/nothing.js");
    assert_eq!(missing.status, 404);
    assert_eq!(server.get("/page/uplot.js").status, 200);
    assert_eq!(server.get("/api/v1/config").json()[0]["key"], "level");
}

#[test]
fn every_listener_and_the_socket_have_the_same_routes() {
    let server = TestServer::new();
    server.push(MetricKind::Gauge, &[("a", now(), 1.0)]);
    let socket = server.running().socket_path().expect("a socket").to_owned();
    let mut places: Vec<AgentAddress> = server
        .running()
        .http_addresses()
        .iter()
        .map(|address| AgentAddress::Tcp(*address))
        .collect();
    places.push(AgentAddress::Unix(socket));
    assert_eq!(places.len(), 3);
    for place in places {
        let answer = get(&place, "/metrics").expect("an answer");
        assert_eq!(
            ExporterReadings::parse_prometheus(answer.text()).value("a"),
            1.0,
            "{place}"
        );
    }
}

#[test]
fn errors_have_a_reason() {
    let server = TestServer::new();
    for (path, code, message) in [
        ("/nothing", 404, "no such path: /nothing"),
        ("/api/v1/range?start=x", 400, "start=x: not a time"),
        (
            "/api/v1/range?start=now&end=-5m",
            400,
            "the start is after the end",
        ),
        ("/api/v1/values?name=a", 400, "unknown parameter \"name\""),
        (
            "/api/v1/stream?rate=5000",
            400,
            "rate=5000: not a valid rate",
        ),
        (
            "/api/v1/list?match=m%7Ba=~%22(%22%7D",
            400,
            "match=m{a=~\"(\"}: invalid regular expression \"(\"",
        ),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, code, "{path}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{path}");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|m| m.starts_with(message)),
            "{path}: {error}"
        );
    }
    let mut client = server.connect();
    client.send(
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    );
    let answer = client.rest();
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET"),
        "{answer}"
    );
    assert!(
        answer.contains("/metrics does not support POST"),
        "{answer}"
    );
    assert!(server.get("/").text().contains("/api/v1/range"));
}

#[test]
fn processes_are_listed_with_what_they_use() {
    let site = TestServer::new();
    let found = site.get("/api/v1/processes").json();
    let expected = json!({
        "time": 1_700_000_005_000_i64, "interval": 5.0, "by": "process", "total": 1,
        "rows": [{
            "pid": 7, "comm": "a\"b\n", "user": "root", "uid": 0, "state": "R", "threads": 3,
            "cpu": 1.5, "memory": 4096, "read": null, "write": null, "gpu_memory": null,
            "cgroup": "/system.slice", "job": null, "started": 1_700_000_000,
            "command": "run --fast",
        }],
    });
    assert_eq!(found, expected);
    let users = site
        .get("/api/v1/processes?by=user&sort=memory&limit=5")
        .json();
    assert_eq!(users["rows"][0]["processes"], json!(1));
    let wrong = site.get("/api/v1/processes?sort=size");
    assert_eq!(wrong.status, 400);
    let hint = &wrong.json()["error"]["hint"];
    assert_eq!(
        hint,
        "accepted values: cpu, memory, read, write, io, gpu, threads"
    );
}
