//! Requests that a test builds: answers, limits, restarts, access.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_http_client::{Http2Response, HttpRequest, WaitLimit, call_http2};
use pegel_testkit::{
    AgentAddress, AgentProcess, TempDir, TestResponse, eventually, now_millis, post,
};
use pegel_wire::otlp::messages::Message;
use pegel_wire::otlp::messages::collector::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use pegel_wire::otlp::messages::metrics::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use pegel_wire::otlp::status::RpcStatus;
use serde_json::{Value, json};

use crate::PEGEL;

pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

/// An increase of `work` within a second.
pub(super) fn increase(second: i64, amount: i64) -> ExportMetricsServiceRequest {
    let nanos = |second: i64| (second * 1_000_000_000) as u64;
    let point = NumberDataPoint {
        start_time_unix_nano: nanos(second - 1),
        time_unix_nano: nanos(second),
        value: Some(number_data_point::Value::AsInt(amount)),
        ..NumberDataPoint::default()
    };
    let sum = Sum {
        data_points: vec![point],
        aggregation_temporality: 1,
        is_monotonic: true,
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name: "work".to_owned(),
                    data: Some(metric::Data::Sum(sum)),
                    ..Metric::default()
                }],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

#[track_caller]
fn send(agent: &AgentProcess, content_type: &str, body: &[u8]) -> TestResponse {
    let headers = [("Content-Type", content_type)];
    post(agent.http(), "/v1/metrics", &headers, body).expect("an answer")
}

/// Calls a method of gRPC with these bytes as the body.
#[track_caller]
pub(super) fn call(
    address: &AgentAddress,
    target: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Http2Response {
    let AgentAddress::Tcp(address) = address else {
        panic!("not TCP")
    };
    let stream = TcpStream::connect(address).expect("connected");
    let host = address.to_string();
    let headers = [&[("content-type", "application/grpc")], headers].concat();
    let request = HttpRequest {
        method: "POST",
        target,
        host: &host,
        headers: &headers,
    };
    let limit = WaitLimit::timeout(Duration::from_secs(30));
    call_http2(stream, ("", None), &request, body, &limit).expect("an answer")
}

pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    body
}

/// Returns the counts of the input; only reasons that occurred.
fn ledger(agent: &AgentProcess) -> Value {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list").iter();
    let mut named = inputs.filter(|one| one["input"] == "otlp");
    let mut counts = named.next().expect("the input is counted").clone();
    let dropped = counts["dropped"].as_object_mut().expect("reasons");
    dropped.retain(|_, count| *count != 0);
    counts
}

/// Returns the last value of a series.
pub(super) fn last(agent: &AgentProcess, name: &str) -> Option<f64> {
    let path = format!("/api/v1/range?start=-1h&match={name}");
    let answer = agent.get(&path).json();
    answer[0]["points"].as_array()?.last()?[1].as_f64()
}

#[test]
fn refused_points_are_reported_and_the_others_stored() {
    let agent = PEGEL.agent().start();
    let time = format!("{}000000", now_millis());
    let gauge = |name: &str, value: Value| json!({"name": name, "gauge": {"dataPoints": [{"timeUnixNano": time, "asDouble": value}]}});
    let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        gauge("good", json!(1.5)), gauge("node.load1", json!(99)), gauge("bad", json!("NaN")),
    ]}]}]});
    let answer = send(&agent, JSON, body.to_string().as_bytes());
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some(JSON))
    );
    let partial = &answer.json()["partialSuccess"];
    assert_eq!(partial["rejectedDataPoints"], "2");
    let message = partial["errorMessage"].as_str().expect("a message");
    assert!(
        message.contains("node_load1: the name is reserved"),
        "{message}"
    );
    assert_eq!(last(&agent, "good"), Some(1.5));
    let counted = ledger(&agent);
    assert_eq!(counted["kept"], 1);
    assert_eq!(counted["dropped"], json!({"bad_name": 1, "bad_value": 1}));
    // The same over gRPC.
    let mut request = increase(now_millis() / 1000, 1);
    request.resource_metrics[0].scope_metrics[0].metrics[0].name = "pegel.x".to_owned();
    let answer = call(agent.http(), EXPORT, &[], framed(&request.encode_to_vec()));
    assert_eq!(
        (answer.status, answer.header("grpc-status")),
        (200, Some("0"))
    );
    let response = ExportMetricsServiceResponse::decode(&answer.body[5..]).expect("a response");
    let partial = response.partial_success.expect("it was refused");
    assert_eq!(partial.rejected_data_points, 1);
    agent.assert_conserved();
}

#[test]
fn answers_have_the_form_of_the_request() {
    let agent = PEGEL.agent().start();
    let now = now_millis() / 1000;
    let good = send(&agent, PROTOBUF, &increase(now, 1).encode_to_vec());
    assert_eq!(
        (good.status, good.header("content-type")),
        (200, Some(PROTOBUF))
    );
    assert_eq!(good.body, b"");
    let good = send(&agent, "application/json; charset=utf-8", b"{}");
    assert_eq!((good.status, good.text()), (200, "{}"));
    let bad = send(&agent, PROTOBUF, b"\x0a\xff");
    assert_eq!(bad.status, 400);
    let status = RpcStatus::decode(&*bad.body).expect("a status");
    assert!(
        status.code == 3 && status.message.contains("truncated"),
        "{status:?}"
    );
    let bad = send(&agent, JSON, b"{\"resourceMetrics\":7}");
    assert_eq!(bad.status, 400);
    assert_eq!(bad.json()["code"], 3);
    assert_eq!(
        bad.json()["message"],
        "byte 19: resourceMetrics is not a list"
    );
    assert_eq!(send(&agent, "text/plain", b"x").status, 415);
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(send(&agent, JSON, &large).status, 413);
    assert_eq!(
        ledger(&agent)["dropped"],
        json!({"malformed": 3, "too_large": 1})
    );
    agent.assert_conserved();
}

#[test]
fn errors_of_grpc_have_its_codes() {
    let agent = PEGEL.agent().start();
    let code = |target: &str, headers: &[(&str, &str)], body: Vec<u8>| {
        let answer = call(agent.http(), target, headers, body);
        let code = answer.header("grpc-status").unwrap_or("none").to_owned();
        let message = answer.header("grpc-message").unwrap_or_default().to_owned();
        (code, message)
    };
    let (malformed, message) = code(EXPORT, &[], framed(b"\x0a\xff"));
    assert_eq!(malformed, "3");
    assert!(message.contains("truncated"), "{message}");
    // The last one announces four gigabytes.
    for body in [
        vec![],
        vec![0, 0, 0, 0, 9, 1],
        vec![7, 0, 0, 0, 0],
        vec![0, 0xff, 0xff, 0xff, 0xff, 1],
    ] {
        assert_eq!(code(EXPORT, &[], body).0, "3");
    }
    let trace = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(code(trace, &[], framed(b"")).0, "12");
    let zstd = [("grpc-encoding", "zstd")];
    assert_eq!(code(EXPORT, &zstd, vec![1, 0, 0, 0, 0]).0, "12");
    let (large, message) = code(EXPORT, &[], framed(&vec![0; 1 << 20]));
    assert_eq!(large, "8");
    assert!(message.contains("exceeds 1048576 bytes"), "{message}");
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![0; 64 << 20]).expect("written");
    let mut bomb = framed(&bomb.finish().expect("compressed"));
    bomb[0] = 1;
    assert_eq!(code(EXPORT, &[("grpc-encoding", "gzip")], bomb).0, "8");
    assert_eq!(ledger(&agent)["dropped"]["too_large"], 2);
    let foreign = call(
        agent.http(),
        "/status",
        &[("content-type", "text/plain")],
        vec![],
    );
    assert_eq!(
        foreign.header("grpc-status"),
        Some("12"),
        "only inputs speak gRPC"
    );
    agent.assert_conserved();
}

#[test]
fn http2_is_for_grpc_only_and_has_the_limits_of_connections() {
    let agent = PEGEL.agent().start();
    let AgentAddress::Tcp(address) = agent.http() else {
        panic!("not TCP")
    };
    let stream = TcpStream::connect(address).expect("connected");
    let request = HttpRequest {
        method: "GET",
        target: "/status",
        host: &address.to_string(),
        headers: &[],
    };
    let limit = WaitLimit::timeout(Duration::from_secs(30));
    let answer = call_http2(stream, ("", None), &request, Vec::new(), &limit);
    assert_eq!(answer.expect("an answer").status, 505);
    // Another name for this host, as a page of another site would use it.
    let body = framed(&increase(now_millis() / 1000, 1).encode_to_vec());
    let answer = call(agent.http(), EXPORT, &[("host", "evil.example")], body);
    assert_ne!(answer.header("grpc-status"), Some("0"));
    // A client that sends no request is not kept.
    let mut silent = TcpStream::connect(address).expect("connected");
    silent
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("sent");
    silent
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("set");
    let since = Instant::now();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).expect("closed");
    assert!(since.elapsed() < Duration::from_secs(20));
    eventually("the refusal is counted", || {
        let count = agent.refused("head_time");
        (count > 0).then_some(()).ok_or(count)
    });
    assert_eq!(last(&agent, "work_total"), None);
}

#[test]
fn increases_survive_a_kill_and_are_not_counted_twice() {
    let dir = TempDir::new();
    let start = || PEGEL.agent().dir(dir.join("store")).start();
    let now = now_millis() / 1000;
    let send_all = |agent: &AgentProcess, second: i64, amount: i64| {
        let request = increase(second, amount).encode_to_vec();
        assert_eq!(send(agent, PROTOBUF, &request).status, 200);
    };
    let agent = start();
    send_all(&agent, now - 3, 5);
    send_all(&agent, now - 2, 2);
    // Sent again over gRPC, because the answer was lost.
    let again = framed(&increase(now - 2, 2).encode_to_vec());
    let answer = call(agent.http(), EXPORT, &[], again);
    assert_eq!(answer.header("grpc-status"), Some("0"));
    assert_eq!(last(&agent, "work_total"), Some(7.0));
    assert_eq!(agent.status()["otlp"]["repeated"], 1);
    agent.assert_conserved();
    agent.kill();
    let agent = start();
    assert_eq!(last(&agent, "work_total"), Some(7.0));
    send_all(&agent, now - 2, 2);
    send_all(&agent, now - 1, 3);
    assert_eq!(last(&agent, "work_total"), Some(10.0));
    agent.stop();
    let agent = start();
    send_all(&agent, now, 1);
    assert_eq!(last(&agent, "work_total"), Some(11.0));
}

#[test]
fn a_name_has_one_input_and_labels_of_the_agent_are_kept() {
    let agent = PEGEL.agent().start();
    let time = format!("{}000000", now_millis());
    let put = json!({"metric": "depth", "timestamp": now_millis(), "value": 1, "tags": {"a": "b"}});
    let answer = post(agent.http(), "/api/put", &[], put.to_string().as_bytes());
    assert_eq!(answer.expect("an answer").status, 204);
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "depth", "gauge": {"dataPoints": [
        {"timeUnixNano": time, "asInt": "2", "attributes": [attribute("a", "b")]},
        {"timeUnixNano": time, "asInt": "3", "attributes": [attribute("user", "root")]},
    ]}}]}]}]});
    assert_eq!(send(&agent, JSON, body.to_string().as_bytes()).text(), "{}");
    let values = agent.get("/api/v1/values?match=depth").text().to_owned();
    for series in [
        "a=\\\"b\\\",input=\\\"otlp\\\"",
        "exported_user=\\\"root\\\"",
    ] {
        assert!(values.contains(series), "{series}: {values}");
    }
}
