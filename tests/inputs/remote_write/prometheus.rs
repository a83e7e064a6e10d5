//! A real Prometheus that sends what it scrapes by remote write, with both versions.

use std::fs;

use pegel_testkit::{PrometheusProcess, eventually, need_peer, now_millis};
use serde_json::Value;

use super::query;
use crate::PEGEL;

/// Scrapes itself and sends everything to `url`.
fn config(url: &str, message: &str) -> String {
    format!(
        "global: {{scrape_interval: 1s, external_labels: {{site: north}}}}
scrape_configs:
  - job_name: self
    static_configs: [{{targets: ['TARGET']}}]
remote_write:
  - url: {url}
    protobuf_message: {message}
    queue_config: {{batch_send_deadline: 100ms}}
    metadata_config: {{send_interval: 1s}}
"
    )
}

/// Writes with one version, and compares all samples of some metrics.
fn a_prometheus_writes(message: &str) {
    let Some(program) = need_peer("prometheus/usr/bin/prometheus") else {
        return;
    };
    let agent = PEGEL.agent().args(&["--node", "nid7"]).start();
    // The address of the program is known when it listens; it then reads its configuration again.
    let url = format!("http://{}/api/v1/write", agent.http());
    let home = pegel_testkit::TempDir::new();
    let file = home.join("prometheus.yml");
    fs::write(&file, config(&url, message).replace("'TARGET'", "")).expect("written");
    let prometheus = PrometheusProcess::start(&program, |dir| {
        vec![
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", dir.path().display()),
            "--enable-feature=metadata-wal-records".to_owned(),
            "--web.enable-lifecycle".to_owned(),
        ]
    });
    let target = prometheus.address.to_string();
    fs::write(&file, config(&url, message).replace("TARGET", &target)).expect("written");
    let answer = pegel_testkit::post(&prometheus.address, "/-/reload", &[], b"").expect("answered");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let names = [
        "up",
        "prometheus_build_info",
        "prometheus_http_requests_total",
        "go_gc_duration_seconds",
    ];
    eventually("samples of three scrapes", || {
        let found = query(&agent, "count_over_time(up[1m]) >= 3", now_millis());
        (!found.is_empty()).then_some(()).ok_or(found)
    });
    let time = now_millis() - 500;
    for name in names {
        let expression = format!("{name}[1m]");
        eventually("the same samples", || {
            let expected = sorted(of_prometheus(&prometheus, &expression, time));
            let mut found = sorted(query(&agent, &expression, time));
            for (labels, _) in &mut found {
                let labels = labels.as_object_mut().expect("labels");
                assert_eq!(labels.remove("site"), Some("north".into()));
            }
            let is_same = !expected.is_empty() && found == expected;
            is_same.then_some(()).ok_or((expected, found))
        });
    }
    eventually("metadata", || {
        let shown = agent.get("/api/v1/metadata?metric=prometheus_http_requests_total");
        let shown = shown.json();
        let shown = &shown["data"]["prometheus_http_requests_total"][0];
        (shown["type"] == "counter")
            .then_some(())
            .ok_or_else(|| shown.clone())
    });
    let totals =
        prometheus.get("/api/v1/query?query=sum(prometheus_remote_storage_samples_failed_total)");
    let failed = totals.json()["data"]["result"][0]["value"][1].take();
    assert!(failed == Value::Null || failed == "0", "{failed}");
    agent.assert_conserved();
}

fn of_prometheus(
    prometheus: &PrometheusProcess,
    expression: &str,
    time: i64,
) -> Vec<(Value, Value)> {
    let time = format!("{}.{:03}", time / 1000, time % 1000);
    let expression = expression.replace('[', "%5B").replace(']', "%5D");
    let answer = prometheus.get(&format!("/api/v1/query?time={time}&query={expression}"));
    let result = answer.json()["data"]["result"].take();
    let result = result.as_array().expect("a matrix").clone();
    let entry = |mut one: Value| (one["metric"].take(), one["values"].take());
    result.into_iter().map(entry).collect()
}

fn sorted(mut found: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    found.sort_by_key(|(labels, _)| labels.to_string());
    found
}

#[test]
fn a_prometheus_writes_with_version_1() {
    a_prometheus_writes("prometheus.WriteRequest");
}

#[test]
fn a_prometheus_writes_with_version_2() {
    a_prometheus_writes("io.prometheus.write.v2.Request");
}
