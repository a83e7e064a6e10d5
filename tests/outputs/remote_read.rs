//! Prometheus' remote read from a real agent: requests that a test builds, and those of a real
//! Prometheus.

use std::fs;

use pegel_testkit::{
    AgentProcess, PrometheusProcess, TempDir, TestResponse, eventually, need_peer, now_millis, post,
};
use pegel_wire::prompb::{
    LabelMatcher, Message, Query, ReadRequest, ReadResponse, TimeSeries, label_matcher,
};
use serde_json::{Value, json};

use crate::PEGEL;

fn agent() -> AgentProcess {
    PEGEL.agent().args(&["--node", "nid7"]).start()
}

pub(crate) fn matcher(name: &str, kind: label_matcher::Type, value: &str) -> LabelMatcher {
    LabelMatcher {
        r#type: kind.into(),
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

pub(crate) fn query(matchers: Vec<LabelMatcher>, start: i64, end: i64) -> Query {
    Query {
        start_timestamp_ms: start,
        end_timestamp_ms: end,
        matchers,
    }
}

#[track_caller]
fn send(agent: &AgentProcess, request: &[u8]) -> TestResponse {
    let packed = snap::raw::Encoder::new().compress_vec(request);
    let headers = [
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
    ];
    let body = packed.expect("compressed");
    post(agent.http(), "/api/v1/read", &headers, &body).expect("an answer")
}

/// Sends queries; returns the series of each.
#[track_caller]
pub(crate) fn read(agent: &AgentProcess, queries: Vec<Query>) -> Vec<Vec<TimeSeries>> {
    let request = ReadRequest {
        queries,
        // As Prometheus prefers it.
        accepted_response_types: vec![1, 0],
    };
    let answer = send(agent, &request.encode_to_vec());
    assert_eq!(
        answer.status,
        200,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/x-protobuf")
    );
    assert_eq!(answer.header("content-encoding"), Some("snappy"));
    let body = snap::raw::Decoder::new().decompress_vec(&answer.body);
    let response = ReadResponse::decode(&*body.expect("snappy")).expect("a response");
    let results = response.results.into_iter();
    results.map(|result| result.timeseries).collect()
}

fn labels(series: &TimeSeries) -> Vec<(&str, &str)> {
    let labels = series.labels.iter();
    labels.map(|label| (&*label.name, &*label.value)).collect()
}

#[track_caller]
fn put(agent: &AgentProcess, name: &str, tag: &str, points: &[(i64, f64)]) {
    let points: Vec<Value> = points
        .iter()
        .map(|(time, value)| {
            json!({"metric": name, "timestamp": time, "value": value, "tags": {"q": tag}})
        })
        .collect();
    let body = json!(points).to_string();
    let answer = post(agent.http(), "/api/put", &[], body.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
}

#[test]
fn queries_select_samples_with_the_labels_of_promql() {
    use label_matcher::Type;
    let agent = agent();
    let now = now_millis();
    put(
        &agent,
        "queue.depth",
        "b",
        &[(now - 3000, 1.0), (now - 2000, 2.0), (now - 1000, 3.0)],
    );
    put(&agent, "queue.depth", "a", &[(now - 1000, 4.0)]);
    put(&agent, "other", "a", &[(now - 1000, 5.0)]);
    let name = || matcher("__name__", Type::Eq, "queue_depth");
    let results = read(
        &agent,
        vec![
            query(vec![name()], now - 2000, now - 1000),
            query(
                vec![name(), matcher("q", Type::Neq, "a")],
                now - 60_000,
                now,
            ),
            query(
                vec![
                    matcher("__name__", Type::Re, "queue_.*|oth.r"),
                    matcher("q", Type::Nre, "b|c"),
                ],
                now - 60_000,
                now,
            ),
            query(
                vec![matcher("__name__", Type::Eq, "absent")],
                now - 60_000,
                now,
            ),
        ],
    );
    let counts: Vec<usize> = results.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 1, 2, 0]);
    let instance = agent.http().to_string().replace("127.0.0.1", "nid7");
    let expected = |tag| {
        [
            ("__name__", "queue_depth"),
            ("instance", &instance),
            ("job", "node"),
            ("q", tag),
        ]
    };
    assert_eq!(labels(&results[0][0]), expected("a"), "sorted by labels");
    assert_eq!(labels(&results[0][1]), expected("b"));
    let samples = results[0][1].samples.iter();
    let samples: Vec<(i64, f64)> = samples
        .map(|sample| (sample.timestamp, sample.value))
        .collect();
    assert_eq!(
        samples,
        [(now - 2000, 2.0), (now - 1000, 3.0)],
        "both ends are included"
    );
    assert_eq!(results[1][0].samples.len(), 3);
}

#[test]
fn requests_that_cannot_be_answered_are_errors() {
    let agent = agent();
    let now = now_millis();
    let by_name = |value: &str| vec![matcher("__name__", label_matcher::Type::Re, value)];
    let request = |queries: Vec<Query>, accepted: &[i32]| ReadRequest {
        queries,
        accepted_response_types: accepted.to_vec(),
    };
    let only_chunks = request(vec![query(by_name("up"), 0, now)], &[1]);
    let invalid = request(vec![query(by_name("("), 0, now)], &[]);
    let expensive = request(
        vec![query(by_name("((((\\w{99}){99}){99}){99})"), 0, now)],
        &[],
    );
    let many = request(vec![query(by_name("up"), 0, now); 65], &[]);
    for (request, reason) in [
        (only_chunks, "accept SAMPLES"),
        (invalid, "error parsing regexp"),
        (expensive, "too expensive"),
        (many, "65 queries; at most 64"),
    ] {
        let answer = send(&agent, &request.encode_to_vec());
        assert_eq!(answer.status, 400, "{reason}: {}", answer.text());
        assert!(
            answer.text().contains(reason),
            "{reason}: {}",
            answer.text()
        );
    }
    let answer = send(&agent, &[0x0a, 5, 1]);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = send(&agent, &vec![0; 65 << 10]);
    assert!(
        answer.status == 400 && answer.text().contains("exceeds 65536"),
        "{}",
        answer.text()
    );
    let headers = [("Content-Encoding", "gzip")];
    let answer = post(agent.http(), "/api/v1/read", &headers, b"x").expect("an answer");
    assert_eq!(answer.status, 415, "{}", answer.text());
}

#[test]
fn a_prometheus_reads_the_samples_of_the_agent() {
    let Some(program) = need_peer("prometheus/usr/bin/prometheus") else {
        return;
    };
    let agent = agent();
    let now = now_millis();
    let points: Vec<(i64, f64)> = (0..100)
        .map(|n| (now - 100_000 + n * 1000, (n * n) as f64))
        .collect();
    put(&agent, "work_total", "a", &points);
    put(&agent, "work_total", "b", &points[..50]);
    let home = TempDir::new();
    let file = home.join("prometheus.yml");
    let url = format!("http://{}/api/v1/read", agent.http());
    fs::write(
        &file,
        format!("remote_read: [{{url: '{url}', read_recent: true}}]\n"),
    )
    .expect("written");
    let prometheus = PrometheusProcess::start(&program, |dir| {
        vec![
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.path().display()),
        ]
    })
    .until_ready();
    for expression in [
        "work_total[5m]",
        "rate(work_total[1m])",
        "sum by (job) (work_total)",
        "work_total{q=~\"b|c\"}[5m]",
    ] {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let path = format!(
            "/api/v1/query?time={}.{:03}&query={encoded}",
            now / 1000,
            now % 1000
        );
        eventually("the same result", || {
            let (ours, theirs) = (agent.get(&path).json(), prometheus.get(&path).json());
            let result = |answer: &Value| answer["data"]["result"].clone();
            let is_same = result(&ours) == result(&theirs);
            let is_there = result(&ours)
                .as_array()
                .is_some_and(|list| !list.is_empty());
            (is_same && is_there)
                .then_some(())
                .ok_or((expression, ours, theirs))
        });
    }
}
