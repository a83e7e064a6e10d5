//! Each panel of each dashboard as PromQL: against an agent with all hardware, and against a
//! Prometheus that scrapes it.

use std::time::Duration;

use pegel_testkit::{AgentAddress, PrometheusProcess, eventually_within, get, need, now_seconds};
use serde_json::Value;

use super::encode;
use super::panel_queries::panels;
use super::panels::{FILES, PanelNode, dashboard};

const BOUND: Duration = Duration::from_secs(40);

/// Returns every expression with its dashboard, as Grafana sends it with all nodes selected.
fn expressions() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for name in FILES {
        let dashboard = dashboard("prometheus", name);
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression");
                let expression = expression
                    .replace("$host", ".*")
                    .replace("$metric", "iteration_time")
                    .replace("$__rate_interval", "30s");
                assert!(
                    !expression.contains('$'),
                    "a variable is left: {expression}"
                );
                all.push((format!("{name}: {}", panel["title"]), expression));
            }
        }
    }
    all
}

fn range_path(expression: &str) -> String {
    let now = now_seconds();
    format!(
        "/api/v1/query_range?query={}&start={}&end={now}&step=1",
        encode(expression),
        now - 30,
    )
}

/// Returns how many lines an expression has, or why it is not answered.
fn line_count(address: &AgentAddress, expression: &str) -> Result<usize, String> {
    let answer = get(address, &range_path(expression)).map_err(|e| e.to_string())?;
    match answer.status {
        200 => {
            let answer: Value = answer.json();
            assert_eq!(answer["data"]["resultType"], "matrix", "{answer}");
            Ok(answer["data"]["result"].as_array().expect("lines").len())
        }
        _ => Err(answer.text().to_owned()),
    }
}

fn check_panels(address: &AgentAddress) {
    for (place, expression) in expressions() {
        let what = format!("data for {place}: {expression}");
        eventually_within(BOUND, &what, || match line_count(address, &expression)? {
            0 => Err("no line".to_owned()),
            _ => Ok(()),
        });
    }
}

#[test]
fn every_panel_finds_data_in_the_agent() {
    if need("cc").is_none() {
        return;
    }
    let node = PanelNode::start();
    check_panels(node.agent.http());
    // The variables: nodes, and the metrics of programs.
    let names = node.agent.get("/api/v1/label/__name__/values").json();
    let names = names["data"].as_array().expect("names");
    assert!(names.contains(&"iteration_time".into()), "{names:?}");
}

#[test]
fn every_panel_finds_data_in_a_prometheus_that_scrapes_the_agent() {
    let (Some(program), Some(_)) = (need("prometheus"), need("cc")) else {
        return;
    };
    let node = PanelNode::start();
    let target = node.agent.http().to_string();
    let prometheus = PrometheusProcess::start(&program, |home| {
        let config = home.join("prometheus.yml");
        let text = format!(
            "scrape_configs:\n  - job_name: pegel\n    scrape_interval: 1s\n    \
             static_configs: [{{targets: [\"{target}\"]}}]\n"
        );
        std::fs::write(&config, text).expect("written");
        vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
        ]
    });
    // Rates need a second scrape.
    check_panels(&prometheus.address);
}
