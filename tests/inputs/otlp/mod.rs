//! Metrics of OpenTelemetry to a real agent: those of its SDKs for Python and JavaScript, compared
//! with a real VictoriaMetrics, requests that a test builds (`requests.rs`), and clients that break
//! the protocol (`abuse.rs`).

mod abuse;
mod requests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, ChildProcess, REPOSITORY, TempDir, VictoriaMetrics, eventually_within, isolate,
    need, need_peer,
};
use serde_json::{Value, json};

use crate::PEGEL;

/// The time limit of a sender, which starts slowly on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// The values that both senders leave, by the ends of their series' names: cumulative and delta.
const EXPECTED: [(&str, f64); 18] = [
    ("jobs_done_total{kind=\"batch\"}", 7.0),
    (
        "jobs_done_total{http_method=\"GET\",kind=\"test.run\"}",
        2.0,
    ),
    ("queue_length", 4.0),
    ("pool_size", 3.0),
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

/// The labels that all series of the senders have. VictoriaMetrics omits the prefix `otel_` of the
/// scope's.
const COMMON: [(&str, &str); 5] = [
    ("scope_name", "lib"),
    ("scope_version", "1.2"),
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
    let modules = command
        .get_envs()
        .map(|(key, value)| (key.to_owned(), value.map(ToOwned::to_owned)));
    let modules: Vec<(OsString, Option<OsString>)> = modules.collect();
    isolate(command, &home);
    command.envs(
        modules
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?))),
    );
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
    result.iter().map(text_and_value).collect()
}

/// Returns a series of a result without the common labels, and its value.
#[track_caller]
fn text_and_value(one: &Value) -> (String, f64) {
    let metric = one["metric"].as_object().expect("labels");
    for (key, value) in COMMON {
        let found = metric.get(&format!("otel_{key}")).or(metric.get(key));
        assert_eq!(found, Some(&json!(value)), "{metric:?}");
    }
    let is_own = |key: &str| {
        COMMON.iter().all(|(common, _)| key.trim_start_matches("otel_") != *common)
                && !["__name__", "instance", "job"].contains(&key)
                // Pegel leaves them out by default.
                && !key.starts_with("telemetry_")
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

/// Returns the series of a VictoriaMetrics, as [`current`] does for an agent.
fn series_of(engine: &VictoriaMetrics) -> Result<BTreeMap<String, f64>, String> {
    let answer = engine.query("{service_name=\"app\"}")?;
    let result = answer["data"]["result"].as_array().ok_or("no result")?;
    Ok(result.iter().map(text_and_value).collect())
}

/// VictoriaMetrics gives the same names, labels and values to the same metrics.
#[test]
fn series_are_those_of_a_victoria_metrics() {
    let Some(mut python) = python() else { return };
    let Some(engine) = VictoriaMetrics::start() else {
        return;
    };
    run(
        &mut python,
        &["http", &engine.otlp_endpoint(), "cumulative"],
    );
    let agent = PEGEL.agent().start();
    let Some(mut python) = self::python() else {
        return;
    };
    let endpoint = format!("http://{}", agent.http());
    run(&mut python, &["http", &endpoint, "cumulative"]);
    let theirs = eventually_within(BOUND, "the metrics are stored", || {
        let series = series_of(&engine)?;
        let is_complete = series.contains_key("room_temperature_celsius");
        is_complete
            .then_some(series.clone())
            .ok_or(format!("{series:#?}"))
    });
    let ours = current(&agent);
    let mut compared = 0;
    for (series, value) in theirs {
        // Its exponential histograms have ranges instead of bounds.
        if !series.contains("vmrange") {
            let found = ours.get(&series);
            let found = found.unwrap_or_else(|| panic!("{series} is missing: {ours:#?}"));
            // It keeps fewer digits.
            assert!(
                (found - value).abs() < 1e-9,
                "{series}: {found} and {value}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 14, "{compared} series");
}
