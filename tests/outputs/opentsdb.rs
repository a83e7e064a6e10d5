//! Requests of Grafana's OpenTSDB data source to a real agent: samples of the node, pushed points,
//! and data after a restart.

use pegel_testkit::{
    AgentAddress, AgentProcess, TempDir, TestResponse, eventually, now_seconds, post,
};
use serde_json::{Value, json};

use crate::PEGEL;

fn ask(agent: &AgentProcess, path: &str, body: &Value) -> TestResponse {
    let address: &AgentAddress = agent.http();
    let headers = [("Content-Type", "application/json")];
    post(address, path, &headers, body.to_string().as_bytes()).expect("an answer")
}

fn lines(agent: &AgentProcess, body: &Value) -> Vec<Value> {
    let answer = ask(agent, "/api/query", body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().as_array().expect("a list").clone()
}

/// Returns the request of Grafana's browser part for one metric of the last minutes.
fn panel(metric: &str, tagk: &str) -> Value {
    json!({
        "start": "5m-ago",
        "queries": [{
            "metric": metric, "aggregator": "sum", "downsample": "1s-avg",
            "filters": [{"type": "wildcard", "tagk": tagk, "filter": "*", "groupBy": false}],
        }],
        "msResolution": false, "globalAnnotations": true, "showQuery": true,
    })
}

#[test]
fn samples_of_the_node_reach_a_panel() {
    let agent = PEGEL.agent().args(&["--node", "nid7"]).start();
    let found = eventually("a line with two points", || {
        let lines = lines(&agent, &panel("node_load1", "host"));
        let is_line = |line: &&Value| line["dps"].as_object().is_some_and(|dps| dps.len() >= 2);
        lines.iter().find(is_line).cloned().ok_or(lines)
    });
    assert_eq!(found["tags"], json!({"host": "nid7"}));
    assert_eq!(found["query"]["index"], 0);
    // All counters become one rate: the seconds per second of all CPUs.
    let body = json!({"start": "10s-ago", "queries": [{
        "metric": "node_cpu_seconds_total", "aggregator": "sum", "downsample": "1s-last", "rate": true,
        "rateOptions": {"counter": true, "dropResets": true},
    }]});
    let rate = eventually("a rate above zero", || {
        let lines = lines(&agent, &body);
        let points = lines.first().and_then(|line| line["dps"].as_object());
        let rates = points.into_iter().flat_map(|points| points.values());
        let rate = rates.filter_map(Value::as_f64).find(|rate| *rate > 0.0);
        rate.ok_or(lines)
    });
    let cpus = std::thread::available_parallelism().expect("known").get() as f64;
    assert!(rate < 4.0 * cpus.max(64.0), "{rate} seconds per second");
    let names = agent
        .get("/api/suggest?type=metrics&q=node_load&max=1000")
        .json();
    assert_eq!(names, json!(["node_load1", "node_load15", "node_load5"]));
}

#[test]
fn pushed_points_and_annotations_survive_a_restart() {
    let dir = TempDir::new();
    let start = || {
        let agent = PEGEL
            .agent()
            .dir(dir.join("store"))
            .args(&["--node", "nid7"]);
        agent.config("dragon_compat: true\n").start()
    };
    let agent = start();
    let now = now_seconds();
    let point = |puid: &str, value: f64| json!({"metric": "iteration_time", "timestamp": now - 10, "value": value, "tags": {"puid": puid}});
    assert_eq!(
        ask(
            &agent,
            "/api/put",
            &json!([point("0", 300.0), point("1", 400.0)])
        )
        .status,
        204
    );
    let note = json!({"startTime": now - 10, "description": "job 7"});
    assert_eq!(ask(&agent, "/api/annotation", &note).status, 200);
    let check = |agent: &AgentProcess| {
        let lines = lines(agent, &panel("iteration_time", "puid"));
        let tags: Vec<&Value> = lines.iter().map(|line| &line["tags"]).collect();
        assert_eq!(
            tags,
            [
                &json!({"puid": "0", "host": "nid7"}),
                &json!({"puid": "1", "host": "nid7"})
            ]
        );
        assert_eq!(lines[0]["dps"][(now - 10).to_string()], 300);
        assert_eq!(lines[0]["globalAnnotations"][0]["description"], "job 7");
    };
    check(&agent);
    agent.kill();
    check(&start());
}

#[test]
fn without_dragon_compat_the_responses_follow_the_manual() {
    let agent = PEGEL.agent().args(&["--node", "nid7"]).start();
    let now = now_seconds();
    let point = |gpu: &str| json!({"metric": "power", "timestamp": now - 10, "value": 1, "tags": {"gpu": gpu}});
    assert_eq!(
        ask(&agent, "/api/put", &json!([point("0"), point("1")])).status,
        204
    );
    let lines = lines(&agent, &panel("power", "gpu"));
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["aggregateTags"], &lines[0]["dps"]),
        (&json!(["gpu"]), &json!({(now - 10).to_string(): 2}))
    );
    let answer = ask(&agent, "/api/query", &panel("not.there", "gpu"));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!(400))
    );
}
