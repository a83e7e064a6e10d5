//! PromQL of a real agent for clients of Prometheus: promtool, the Python client from PyPI, and the
//! expressions of the dashboard *Node Exporter Full* (1860).

mod dashboard_1860;

use std::path::Path;
use std::process::{Command, Output};

use pegel_testkit::{AgentAddress, AgentProcess, eventually, need, need_peer, now_seconds, post};
use serde_json::Value;

use crate::PEGEL;

fn agent() -> AgentProcess {
    let agent = PEGEL.agent().args(&["--node", "nid7"]).start();
    eventually("two samples", || {
        let result = query(&agent, "count_over_time(node_load1[1m]) > 1");
        let is_there = result.as_array().is_some_and(|list| !list.is_empty());
        is_there.then_some(()).ok_or(result)
    });
    agent
}

fn url(agent: &AgentProcess) -> String {
    format!("http://{}", agent.http())
}

/// Evaluates an expression now; returns the result.
#[track_caller]
fn query(agent: &AgentProcess, expression: &str) -> Value {
    let form: String = format!("query={}", percent_encoded(expression));
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let address: &AgentAddress = agent.http();
    let answer = post(address, "/api/v1/query", &headers, form.as_bytes()).expect("an answer");
    let mut body = answer.json();
    assert_eq!(
        (answer.status, &body["status"]),
        (200, &"success".into()),
        "{expression}: {body}"
    );
    body["data"]["result"].take()
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn promtool(program: &Path, args: &[&str]) -> String {
    let output: Output = Command::new(program).args(args).output().expect("promtool");
    assert!(output.status.success(), "promtool {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn promtool_queries_the_agent() {
    let Some(program) = need("promtool") else {
        return;
    };
    let agent = agent();
    let url = url(&agent);
    let instance = url.replace("http://127.0.0.1", "nid7");
    let load = format!("node_load1{{instance=\"{instance}\", job=\"node\"}} => ");
    let found = promtool(&program, &["query", "instant", &url, "node_load1"]);
    assert!(found.starts_with(&load), "{found}");
    let found = promtool(&program, &["query", "instant", &url, "1 + 1"]);
    assert!(found.starts_with("scalar: 2 @["), "{found}");
    let (end, start) = (now_seconds() + 1, now_seconds() - 60);
    let (start, end) = (format!("--start={start}"), format!("--end={end}"));
    let found = promtool(
        &program,
        &[
            "query",
            "range",
            &start,
            &end,
            "--step=1s",
            &url,
            "sum(node_load1)",
        ],
    );
    assert!(
        found.starts_with("{} =>\n") && found.contains(" @["),
        "{found}"
    );
    let found = promtool(&program, &["query", "series", "--match=node_load1", &url]);
    assert!(
        found.contains("__name__=\"node_load1\"") && found.contains(&instance),
        "{found}"
    );
    let found = promtool(&program, &["query", "labels", &url, "job"]);
    assert_eq!(found, "node\n");
    let failed = Command::new(&program)
        .args(["query", "instant", &url, "sum("])
        .output();
    let failed = failed.expect("promtool");
    assert!(!failed.status.success());
    let message = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(message.contains("bad_data"), "{message}");
}

/// Uses the client as its manual does.
const PYTHON: &str = r#"
import sys
from datetime import datetime, timedelta
from prometheus_api_client import PrometheusConnect
p = PrometheusConnect(url=sys.argv[1], disable_ssl=True)
assert p.check_prometheus_connection()
assert "node_load1" in p.all_metrics()
assert "node" in p.get_label_values("job")
assert "instance" in p.get_label_names()
value = p.get_current_metric_value("node_load1", label_config={"job": "node"})
assert len(value) == 1 and float(value[0]["value"][1]) >= 0, value
end = datetime.now()
data = p.custom_query_range("sum(node_load1)", end - timedelta(minutes=1), end, "1")
assert len(data) == 1 and data[0]["values"], data
raw = p.get_metric_range_data("node_load1", start_time=end - timedelta(minutes=1), end_time=end)
assert len(raw[0]["values"]) >= 2, raw
total = p.custom_query("sum by (mode) (node_cpu_seconds_total)")
assert any(one["metric"]["mode"] == "idle" for one in total), total
print("done")
"#;

#[test]
fn the_python_client_reads_the_agent() {
    let Some(python) = need_peer("prometheus-python/bin/prometheus-api-client") else {
        return;
    };
    let agent = agent();
    let python = python.with_file_name("python");
    let mut command = Command::new(python);
    let output = command.args(["-c", PYTHON, &url(&agent)]).output();
    let output = output.expect("python");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done\n",
        "{output:?}"
    );
}

#[test]
fn an_idle_counter_has_a_rate_of_zero() {
    let agent = PEGEL.agent().start();
    let pushed = agent.client(&["push", "-t", "counter", "app.jobs.done=5"]);
    assert!(pushed.status.success(), "{}", pushed.stderr);
    // The group is written again only after a minute.
    let rate = eventually("two ticks", || {
        let result = query(&agent, "rate(app_jobs_done[1m])");
        let value = result[0]["value"][1].as_str().map(str::to_owned);
        value.ok_or(result)
    });
    assert_eq!(rate, "0");
    let stored = query(&agent, "{\"app.jobs.done\"}");
    assert_eq!(stored[0]["value"][1], "5");
    assert_eq!(stored[0]["metric"]["job"], "node");
}
