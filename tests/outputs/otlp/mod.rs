//! The output of OTLP: to a receiver on OpenTelemetry's own messages, decoded by Google's protobuf,
//! and to a real VictoriaMetrics.

use std::fs;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, ChildProcess, REPOSITORY, TempDir, VictoriaMetrics, eventually_within, isolate,
    need_peer, post,
};
use serde_json::{Value, json};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);

/// A receiver in Python, with OpenTelemetry's messages.
struct PythonReceiver {
    process: ChildProcess,
    folder: TempDir,
    port: String,
}

impl PythonReceiver {
    #[track_caller]
    fn start(protocol: &str, answer: &str) -> Option<PythonReceiver> {
        let marker = need_peer("opentelemetry-python/bin/opentelemetry-sdk")?;
        let folder = TempDir::new();
        let mut command = Command::new(marker.with_file_name("python3"));
        isolate(&mut command, &folder);
        command
            .arg(format!("{REPOSITORY}/tests/outputs/otlp/receiver.py"))
            .args([protocol, &folder.path().display().to_string(), answer])
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = ChildProcess::start(&mut command);
        let port = eventually_within(BOUND, "the receiver listens", || {
            assert!(!process.has_ended(), "{}", process.output());
            fs::read_to_string(folder.join("port")).map_err(|error| error.to_string())
        });
        Some(PythonReceiver {
            process,
            folder,
            port,
        })
    }

    /// Returns the requests so far.
    fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("requests")).unwrap_or_default();
        // The last line may be incomplete.
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Waits for a metric that `accept` accepts.
    #[track_caller]
    fn wait_for<T>(&self, name: &str, accept: impl Fn(&Value, &Value) -> Option<T>) -> T {
        eventually_within(BOUND, name, || {
            let requests = self.requests();
            for request in &requests {
                for resource in list(&request["request"]["resourceMetrics"]) {
                    let metrics = &resource["scopeMetrics"][0]["metrics"];
                    let mut named = list(metrics).filter(|metric| metric["name"] == name);
                    if let Some(found) = named.find_map(|metric| accept(metric, request)) {
                        return Ok(found);
                    }
                }
            }
            Err(format!("{} requests", requests.len()))
        })
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn agent(receiver: &PythonReceiver, protocol: &str, more: &str) -> AgentProcess {
    let port = &receiver.port;
    let config = format!(
        "otlp:\n  - url: http://127.0.0.1:{port}\n    protocol: {protocol}\n    interval: 1s\n{more}"
    );
    PEGEL
        .agent()
        .args(&["--node", "nid7"])
        .config(&config)
        .start()
}

/// Returns the counts of the only receiver.
fn counts(agent: &AgentProcess) -> Value {
    agent.status()["otlp_output"][0].clone()
}

fn send_histogram(agent: &AgentProcess) {
    let body = "# TYPE h histogram\nh_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"+Inf\"} 5\nh_sum{a=\"b\"} 7.5\nh_count{a=\"b\"} 5\n";
    let answer = post(agent.http(), "/metrics/job/j", &[], body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
}

#[track_caller]
fn all_kinds_arrive(protocol: &str) {
    let Some(receiver) = PythonReceiver::start(protocol, "") else {
        return;
    };
    let more = "    names: [node_load1, \"node_cpu_*\", \"h*\"]\n    except: [node_cpu_guest*]\n    headers: {authorization: \"Bearer abc\"}\n    resource: {site: north}\n";
    let agent = agent(&receiver, protocol, more);
    send_histogram(&agent);
    let resource = receiver.wait_for("node_load1", |metric, request| {
        let point = &metric["gauge"]["dataPoints"][0];
        assert!(point["asDouble"].is_number() || point.get("asDouble").is_some());
        let headers = request["headers"].as_object().expect("headers");
        let header = headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case("authorization"));
        assert_eq!(header.expect("the configured header").1, "Bearer abc");
        Some(request["request"]["resourceMetrics"][0]["resource"].clone())
    });
    for (key, value) in [
        ("service.name", "pegel"),
        ("service.instance.id", "nid7"),
        ("host.name", "nid7"),
        ("site", "north"),
    ] {
        let expected = json!({"key": key, "value": {"stringValue": value}});
        assert!(
            list(&resource["attributes"]).any(|one| *one == expected),
            "{resource}"
        );
    }
    // The second point of a total: its start is the time of the first.
    receiver.wait_for("node_cpu_seconds_total", |metric, _| {
        let sum = &metric["sum"];
        assert_eq!(sum["isMonotonic"], true);
        let temporality = &sum["aggregationTemporality"];
        assert_eq!(temporality, "AGGREGATION_TEMPORALITY_CUMULATIVE");
        assert_eq!(metric["unit"], "s");
        let point = &sum["dataPoints"][0];
        let nanos = |key: &str| {
            point[key]
                .as_str()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let (start, time) = (nanos("startTimeUnixNano")?, nanos("timeUnixNano")?);
        assert!(start <= time);
        (start < time).then_some(())
    });
    receiver.wait_for("h", |metric, _| {
        let point = &metric["histogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["sum"]), (&json!("5"), &json!(7.5)));
        assert_eq!(point["bucketCounts"], json!(["2", "3"]));
        assert_eq!(point["explicitBounds"], json!([1.0]));
        Some(())
    });
    for request in receiver.requests() {
        let text = request.to_string();
        assert!(!text.contains("node_cpu_guest") && !text.contains("node_memory"));
    }
    let counts = counts(&agent);
    assert!(counts["sent"].as_u64() > Some(3), "{counts}");
    assert_eq!(
        (&counts["errors"], &counts["last_error"]),
        (&json!(0), &Value::Null)
    );
    assert!(
        agent
            .get("/metrics")
            .text()
            .contains("pegel_otlp_sent_total{receiver=\"http://127.0.0.1:")
    );
    let config = agent.get("/api/v1/config").text().to_owned();
    assert!(!config.contains("Bearer abc"), "headers are secrets");
}

#[test]
fn all_kinds_arrive_over_http() {
    all_kinds_arrive("http");
}

#[test]
fn all_kinds_arrive_over_grpc() {
    all_kinds_arrive("grpc");
}

#[track_caller]
fn answers_are_respected(protocol: &str) {
    let Some(receiver) = PythonReceiver::start(protocol, "busy") else {
        return;
    };
    let running = agent(&receiver, protocol, "    names: [node_load1]\n");
    receiver.wait_for("node_load1", |_, _| Some(()));
    eventually_within(BOUND, "the failure is over", || {
        let counts = counts(&running);
        let is_over = counts["errors"] == 1 && counts["last_error"].is_null();
        is_over.then_some(()).ok_or(counts)
    });
    let Some(receiver) = PythonReceiver::start(protocol, "partial") else {
        return;
    };
    let running = agent(
        &receiver,
        protocol,
        "    names: [\"node_cpu_seconds_total\"]\n",
    );
    eventually_within(BOUND, "refused points are counted", || {
        let counts = counts(&running);
        let is_counted = counts["rejected"].as_u64() >= Some(2);
        is_counted.then_some(()).ok_or(counts)
    });
    let counts = counts(&running);
    let error = "2 data points were refused: not these";
    assert_eq!(counts["last_error"], error, "{counts}");
    assert!(counts["sent"].as_u64() > Some(0), "{counts}");
}

#[test]
fn answers_over_http_are_respected() {
    answers_are_respected("http");
}

#[test]
fn answers_over_grpc_are_respected() {
    answers_are_respected("grpc");
}

#[test]
fn a_receiver_that_is_down_delays_nothing_and_what_is_lost_is_counted() {
    let Some(receiver) = PythonReceiver::start("http", "never") else {
        return;
    };
    let running = agent(&receiver, "http", "    names: [node_load1]\n");
    eventually_within(BOUND, "points are dropped", || {
        let counts = counts(&running);
        let is_counted = counts["dropped"].as_u64() >= Some(1) && counts["errors"] != 0;
        is_counted.then_some(()).ok_or(counts)
    });
    let failed = counts(&running);
    let error = failed["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("503"), "{failed}");
    assert_eq!(failed["sent"], 0);
    receiver.process.kill();
    eventually_within(BOUND, "the error names the cause", || {
        let counts = counts(&running);
        let error = counts["last_error"].as_str().unwrap_or_default().to_owned();
        error.contains("refused").then_some(()).ok_or(error)
    });
    assert_eq!(running.status()["sampling"]["missed"], 0);
    assert!(running.stop().status.success());
}

#[test]
fn a_victoria_metrics_receives_the_values() {
    let Some(engine) = VictoriaMetrics::start() else {
        return;
    };
    let config = format!(
        "otlp:\n  - url: {}/v1/metrics\n    interval: 1s\n    names: [\"node_*\", \"h*\"]\n",
        engine.otlp_endpoint()
    );
    let agent = PEGEL.agent().config(&config).start();
    send_histogram(&agent);
    let query = |query: &str| -> Result<f64, String> {
        let answer = engine.query(query)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        let value = value.and_then(|text| text.parse().ok());
        value.ok_or_else(|| format!("{answer}\n{}", counts(&agent)))
    };
    // Names stay as they are: nothing is appended to them.
    for (expression, expected) in [
        ("h_bucket{le=\"1\"}", 2.0),
        ("h_sum", 7.5),
        ("h_count", 5.0),
        ("count(node_memory_MemTotal_bytes)", 1.0),
        ("count(node_load1)", 1.0),
        ("count(count(node_cpu_seconds_total))", 1.0),
        ("count(count(node_network_receive_bytes_total))", 1.0),
    ] {
        let found = eventually_within(BOUND, expression, || query(expression));
        assert_eq!(found, expected, "{expression}");
    }
    let total = eventually_within(BOUND, "the memory", || query("node_memory_MemTotal_bytes"));
    let ours = agent
        .get("/api/v1/query?query=node_memory_MemTotal_bytes")
        .json();
    let ours = ours["data"]["result"][0]["value"][1]
        .as_str()
        .and_then(|text| text.parse().ok());
    assert_eq!(ours, Some(total));
    assert_eq!(counts(&agent)["rejected"], 0, "{}", counts(&agent));
}
