//! Scrape configurations: promtool accepts them, and a real Prometheus uses them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, ChildProcess, FinishedProcess, OtherUser, PLANTED_TOKEN, PrometheusProcess,
    REPOSITORY, TempDir, eventually, fixture, get, need, now_seconds, post,
};
use serde_json::{Value, json};

use super::{encode, pegel};
use crate::PEGEL;

fn promtool(args: &[&str]) -> FinishedProcess {
    let mut command = Command::new("promtool");
    command.args(args);
    ChildProcess::start(&mut command).wait(Duration::from_secs(30))
}

#[test]
fn promtool_accepts_every_form() {
    if need("promtool").is_none() {
        return;
    }
    let dir = TempDir::new();
    let path = |name: &str| dir.join(name).to_str().expect("UTF-8").to_owned();
    let (token, ca) = (path("token"), path("ca.pem"));
    fs::write(&token, "x").expect("written");
    fs::write(&ca, "x").expect("written");
    let file = path("prometheus.yml");
    for args in [
        &[][..],
        &["--token-file", &token],
        &[
            "--nodes",
            "nid1,nid2:9000,[2001:db8::1]",
            "--token-file",
            &token,
            "--ca-file",
            &ca,
        ],
        &[
            "--nodes",
            "localhost,nid1",
            "--token-file",
            &token,
            "--interval",
            "500ms",
            "--port",
            "4242",
        ],
        &["--nodes", "nid1", "--insecure"],
    ] {
        let finished = pegel(&[&["prometheus-config", "-o", &file], args].concat(), &[]);
        assert_eq!(finished.code(), Some(0), "{finished}");
        let checked = promtool(&["check", "config", &file]);
        let text = fs::read_to_string(&file).expect("there");
        assert_eq!(checked.code(), Some(0), "{args:?}: {checked}\n{text}");
        assert!(checked.stdout.contains("SUCCESS"), "{checked}");
    }
}

#[test]
fn each_node_is_scraped_as_its_access_rules_require() {
    let said = |args: &[&str]| {
        let finished = pegel(&[&["prometheus-config"], args].concat(), &[]);
        assert_eq!(finished.code(), Some(0), "{finished}");
        finished.stdout
    };
    let near = said(&[]);
    assert!(near.contains(r#"targets: ["localhost:1337"]"#), "{near}");
    assert!(
        !near.contains("https") && near.contains("allow_users: [prometheus]"),
        "{near}"
    );
    let far = said(&["--nodes", "nid1,nid2:9"]);
    assert!(far.contains(r#"targets: ["nid1:1337", "nid2:9"]"#), "{far}");
    assert!(far.contains("    scheme: https\n"), "{far}");
    assert!(
        far.contains("credentials_file: \"/etc/prometheus/pegel.token\""),
        "{far}"
    );
    let open = said(&["--nodes", "nid1", "--insecure"]);
    assert!(
        !open.contains("https") && !open.contains("credentials"),
        "{open}"
    );
    for args in [
        &["--nodes", "nid1,,nid2"][..],
        &["--nodes", "a b"],
        &["--port", "x"],
        &["--interval", "soon"],
        &["--insecure", "--ca-file", "x"],
    ] {
        let finished = pegel(&[&["prometheus-config"], args].concat(), &[]);
        assert_eq!(finished.code(), Some(2), "{finished}");
    }
}

#[test]
fn another_users_prometheus_has_access_by_token_or_by_name() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = |config: &str| PEGEL.agent().config(config).start();
    let scraped = |config: &str, headers: &[&str]| {
        let agent = agent(config);
        let url = format!("http://{}/metrics", agent.http());
        let (status, output) = other_user.curl(&[headers, &[&url]].concat());
        (status, output.contains("pegel_cpu_seconds_total"))
    };
    assert_eq!(scraped("level: 2\n", &[]), (401, false));
    assert_eq!(scraped("allow_users: [nobody]\n", &[]), (200, true));
    let header = format!("Authorization: Bearer {PLANTED_TOKEN}");
    assert_eq!(scraped("level: 2\n", &["-H", &header]), (200, true));
}

/// Starts an agent on a fixture tree, with values of programs.
fn node() -> AgentProcess {
    let rates =
        ["rapl", "infiniband", "filesystem"].map(|name| format!("  {name}: {{rate: 500ms}}\n"));
    let agent = PEGEL
        .agent()
        .config(&format!("collectors:\n{}", rates.concat()))
        .env("PEGEL_ROOT", fixture("basic"))
        .start();
    let point = |metric: &str, key: &str| json!({"metric": metric, "timestamp": now_seconds(), "value": 7, "tags": {key: "a", "jobid": "7"}});
    let points: Vec<Value> = ["hits", "size", "time"]
        .iter()
        .flat_map(|part| {
            let names = [("mpi", "call"), ("strace", "scall")];
            names.map(|(name, key)| point(&format!("{name}_{part}_total"), key))
        })
        .collect();
    let headers = [("Content-Type", "application/json")];
    let body = Value::from(points).to_string();
    let answer = post(agent.http(), "/api/put", &headers, body.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
    agent
}

/// Returns the example queries in docs/grafana.md, each from a block of its own.
fn samples() -> Vec<String> {
    let page = fs::read_to_string(format!("{REPOSITORY}/docs/grafana.md")).expect("the page");
    let blocks = page.split("```promql\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().expect("an end").trim().to_owned());
    blocks.collect()
}

#[test]
fn a_real_prometheus_scrapes_and_answers_the_example_queries() {
    let Some(prometheus) = need("prometheus") else {
        return;
    };
    let agent = node();
    let address = agent.http().to_string();
    let args = [
        "prometheus-config",
        "--interval",
        "500ms",
        "--nodes",
        &address,
    ];
    let config = pegel(&args, &[]).stdout;
    let prometheus = PrometheusProcess::start(&prometheus, |home| {
        fs::write(home.join("prometheus.yml"), config).expect("written");
        vec![
            format!("--config.file={}", home.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
        ]
    });
    let samples = samples();
    assert!(samples.len() >= 10, "{samples:?}");
    for sample in samples {
        // Queries for problems have no results here.
        let is_search = sample.contains(['<', '>']);
        eventually(&sample, || {
            let path = format!("/api/v1/query?query={}", encode(&sample));
            let answer = get(&prometheus.address, &path).expect("an answer");
            // Prometheus answers before it is ready.
            if answer.status == 503 {
                return Err(json!(answer.text()));
            }
            let answer = answer.json();
            assert_eq!(answer["status"], "success", "{sample}: {answer}");
            let is_empty = answer["data"]["result"] == json!([]);
            if is_empty && !is_search {
                Err(answer)
            } else {
                Ok(())
            }
        });
    }
}
