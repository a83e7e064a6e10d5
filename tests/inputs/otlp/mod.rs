//! Metrics of OpenTelemetry to a real agent: those of its SDKs for Python and JavaScript, compared
//! with a real Prometheus, and requests that a test builds (`requests.rs`).

mod requests;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, ChildProcess, PrometheusProcess, REPOSITORY, TempDir, eventually, get, isolate,
    need, need_peer,
};
use serde_json::Value;

use crate::PEGEL;

/// The time limit of a sender, which starts slowly on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// The values that both senders leave, by the ends of their series' names: cumulative and delta.
const EXPECTED: [(&str, f64); 17] = [
    ("jobs_done_total{kind=\"batch\"}", 7.0),
    (
        "jobs_done_total{http_method=\"GET\",kind=\"test.run\"}",
        2.0,
    ),
    ("queue_length", 4.0),
    ("room_temperature_celsius", 22.5),
    ("cpu_time_seconds_total{mode=\"user\"}", 12.5),
    ("cpu_usage_ratio", 0.75),
    ("request_duration_seconds_count{route=\"/a\"}", 8.0),
    ("request_duration_seconds_sum{route=\"/a\"}", 111.1),
    (
        "request_duration_seconds_bucket{le=\"0.1\",route=\"/a\"}",
        2.0,
    ),
    (
        "request_duration_seconds_bucket{le=\"1\",route=\"/a\"}",
        4.0,
    ),
    (
        "request_duration_seconds_bucket{le=\"10\",route=\"/a\"}",
        6.0,
    ),
    (
        "request_duration_seconds_bucket{le=\"+Inf\",route=\"/a\"}",
        8.0,
    ),
    ("payload_size_bytes_count", 8.0),
    ("payload_size_bytes_bucket{le=\"0\"}", 2.0),
    ("payload_size_bytes_bucket{le=\"1\"}", 4.0),
    ("payload_size_bytes_bucket{le=\"3.363585661014858\"}", 6.0),
    ("payload_size_bytes_bucket{le=\"1024\"}", 8.0),
];

/// The labels that all series of the senders have.
const COMMON: [(&str, &str); 5] = [
    ("otel_scope_name", "lib"),
    ("otel_scope_version", "1.2"),
    ("service_instance_id", "i1"),
    ("service_name", "app"),
    ("site_zone", "north"),
];

fn file(name: &str) -> String {
    format!("{REPOSITORY}/tests/inputs/otlp/{name}")
}

/// Runs a sender to its end.
#[track_caller]
fn run(command: &mut Command, args: &[&str]) {
    let home = TempDir::new();
    isolate(command, &home);
    command.args(args).env("PYTHONDONTWRITEBYTECODE", "1");
    let finished = ChildProcess::start(command).wait(BOUND);
    assert!(finished.status.success(), "{finished}");
}

#[track_caller]
fn python() -> Option<Command> {
    let marker = need_peer("opentelemetry-python/bin/opentelemetry-sdk")?;
    let mut command = Command::new(marker.with_file_name("python3"));
    command.arg(file("sender.py"));
    Some(command)
}

/// Returns the current series with these labels in PromQL, as text without the common labels, and
/// their values.
#[track_caller]
fn current(agent: &AgentProcess) -> BTreeMap<String, f64> {
    let answer = agent.get("/api/v1/query?query=%7Bservice_name%3D%22app%22%7D");
    let answer = answer.json();
    let result = answer["data"]["result"].as_array().expect("a result");
    let series = result.iter().map(|one| {
        let metric = one["metric"].as_object().expect("labels");
        for (key, value) in COMMON {
            assert_eq!(metric[key], value, "{metric:?}");
        }
        let is_own = |key: &str| {
            COMMON.iter().all(|(common, _)| *common != key)
                && !["__name__", "instance", "job"].contains(&key)
        };
        let labels = metric.iter().filter(|(key, _)| is_own(key));
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let name = metric["__name__"].as_str().expect("a name");
        let text = match labels.is_empty() {
            true => name.to_owned(),
            false => format!("{name}{{{}}}", labels.join(",")),
        };
        let value = one["value"][1].as_str().expect("a value");
        (text, value.parse().expect("a number"))
    });
    series.collect()
}

#[track_caller]
fn assert_all_kinds(agent: &AgentProcess) {
    let found = current(agent);
    for (series, expected) in EXPECTED {
        let value = found.get(series);
        let value = *value.unwrap_or_else(|| panic!("{series} is missing: {found:#?}"));
        assert!((value - expected).abs() < 1e-9, "{series}: {value}");
    }
    let sum = found["payload_size_bytes_sum"];
    assert_eq!(sum, 2008.0);
    agent.assert_conserved();
}

#[track_caller]
fn python_sends(protocol: &str, temporality: &str) {
    let Some(mut python) = python() else { return };
    let agent = PEGEL.agent().start();
    let endpoint = format!("http://{}", agent.http());
    run(&mut python, &[protocol, &endpoint, temporality]);
    assert_all_kinds(&agent);
    // Two, and one when the SDK shuts down.
    assert_eq!(agent.status()["otlp"]["requests"], 3);
    // Types and descriptions are in the exposition.
    let metrics = agent.get("/metrics");
    assert!(metrics.text().contains("# TYPE jobs_done_total counter"));
    assert!(metrics.text().contains("# HELP jobs_done_total Jobs."));
}

#[test]
fn python_sends_totals_over_http() {
    python_sends("http", "cumulative");
}

#[test]
fn python_sends_increases_over_http() {
    python_sends("http", "delta");
}

#[test]
fn python_sends_totals_over_grpc() {
    python_sends("grpc", "cumulative");
}

#[test]
fn python_sends_increases_over_grpc() {
    python_sends("grpc", "delta");
}

#[track_caller]
fn javascript_sends(temporality: &str) {
    let marker =
        "opentelemetry-node/node_modules/@opentelemetry/exporter-metrics-otlp-http/package.json";
    let (Some(marker), Some(node)) = (need_peer(marker), need("node")) else {
        return;
    };
    let modules = marker.ancestors().nth(3).expect("node_modules");
    let agent = PEGEL.agent().start();
    let endpoint = format!("http://{}", agent.http());
    let mut command = Command::new(node);
    command.env("NODE_PATH", modules).arg(file("sender.js"));
    run(&mut command, &[&endpoint, temporality]);
    assert_all_kinds(&agent);
}

#[test]
fn javascript_sends_totals_as_json() {
    javascript_sends("cumulative");
}

#[test]
fn javascript_sends_increases_as_json() {
    javascript_sends("delta");
}

/// Prometheus names the same metrics in the same way.
#[test]
fn names_are_those_of_a_prometheus() {
    let Some(mut python) = python() else { return };
    let Some(program) = need_peer("prometheus/usr/bin/prometheus") else {
        return;
    };
    let prometheus = start_prometheus(&program);
    let endpoint = format!("http://{}/api/v1/otlp", prometheus.address);
    run(&mut python, &["http", &endpoint, "cumulative"]);
    let agent = PEGEL.agent().start();
    let Some(mut python) = self::python() else {
        return;
    };
    run(
        &mut python,
        &["http", &format!("http://{}", agent.http()), "cumulative"],
    );
    let names = eventually("Prometheus stored the metrics", || {
        let answer = get(&prometheus.address, "/api/v1/label/__name__/values");
        let answer: Value = answer.map_err(|error| error.to_string())?.json();
        let names = answer["data"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> = names
            .iter()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .filter(|name| name != "target_info")
            .collect();
        let is_complete = names.iter().any(|name| name.starts_with("room_"));
        is_complete.then_some(names).ok_or(answer.to_string())
    });
    let ours = current(&agent);
    for name in names {
        // It stores an exponential histogram as one series.
        let name = match &*name {
            "payload_size_bytes" => "payload_size_bytes_count",
            name => name,
        };
        let is_ours = |text: &String| text.split('{').next() == Some(name);
        assert!(ours.keys().any(is_ours), "{name} is missing: {ours:#?}");
    }
}

fn start_prometheus(program: &Path) -> PrometheusProcess {
    let prometheus = PrometheusProcess::start(program, |home| {
        let config = home.join("prometheus.yml");
        std::fs::write(&config, "{}\n").expect("written");
        vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
            "--web.enable-otlp-receiver".to_owned(),
        ]
    });
    prometheus.until_ready()
}
