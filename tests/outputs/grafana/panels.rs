//! Each panel of each dashboard, in both forms of request, against a fixture tree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_collect::REGISTRY;
use pegel_testkit::{
    AgentProcess, REPOSITORY, TempDir, eventually_within, fixture, need, now_seconds, post,
};
use serde_json::{Value, json};

use super::panel_queries::{self, DashboardVariables};
use crate::PEGEL;

pub(super) const FILES: [&str; 6] = [
    "level-1", "level-2", "level-3", "level-4", "programs", "agent",
];

/// Reads a dashboard for a kind of data source.
pub(super) fn dashboard(source: &str, name: &str) -> Value {
    let folder = Path::new(REPOSITORY).join("packaging/grafana/dashboards");
    panel_queries::read(&folder.join(source).join(format!("{name}.json")))
}

/// Builds the mock of NVIDIA's library, with busy GPUs and links.
fn nvml(dir: &TempDir) -> PathBuf {
    std::fs::write(dir.join("control"), "busy\nlinks\n").expect("written");
    let library = dir.join("libnvidia-ml.so.1");
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
        ])
        .arg(format!("-DCONTROL=\"{}\"", dir.join("control").display()))
        .arg(fixture("nvml/fake.c"))
        .arg("-o")
        .arg(&library)
        .output()
        .expect("cc");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

/// A node with all hardware, at level 4, with every collector at the agent's rate.
pub(super) struct PanelNode {
    pub(super) agent: AgentProcess,
    machine: TempDir,
    _library: TempDir,
}

impl PanelNode {
    pub(super) fn start() -> PanelNode {
        let library = TempDir::new();
        let machine = TempDir::copy_of(fixture("basic"));
        let rates = REGISTRY.iter().filter(|entry| entry.name != "agent");
        let rates = rates.map(|entry| format!("  {}: {{rate: 500ms}}\n", entry.name));
        let config = format!("level: 4\ncollectors:\n{}", rates.collect::<String>());
        let agent = PEGEL
            .agent()
            .args(&["--node", "nid7"])
            .config(&config)
            .env("PEGEL_ROOT", machine.path())
            .env("PEGEL_NVML", nvml(&library))
            .start();
        push(&agent);
        let node = PanelNode {
            agent,
            machine,
            _library: library,
        };
        node.work();
        node
    }

    /// Increases the CPU times in the fixture's files.
    fn work(&self) {
        let path = self.machine.join("proc/stat");
        let text = std::fs::read_to_string(&path).expect("a file");
        let lines = text.lines().map(|line| {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            if line.starts_with("cpu") {
                // Two spaces follow "cpu", one follows "cpu0".
                let user = if words[1].is_empty() { 2 } else { 1 };
                let ticks: u64 = words[user].parse().expect("a number");
                words[user] = (ticks + 100).to_string();
            }
            words.join(" ") + "\n"
        });
        let text: String = lines.collect();
        std::fs::write(&path, text).expect("written");
    }
}

/// Pushes values of programs, and one that is dropped.
fn push(agent: &AgentProcess) {
    let mut points = Vec::new();
    for (ago, value) in [(20, 10.0), (10, 30.0)] {
        let mut add = |metric: &str, tags: Value| {
            points.push(
                json!({"metric": metric, "timestamp": now_seconds() - ago, "value": value, "tags": tags}),
            );
        };
        for part in ["hits", "size", "time"] {
            add(
                &format!("mpi_{part}_total"),
                json!({"call": "MPI_Send", "jobid": "7"}),
            );
            add(
                &format!("mpi_{part}_total"),
                json!({"call": "MPI_Barrier", "jobid": "7"}),
            );
            add(
                &format!("strace_{part}_total"),
                json!({"scall": "read", "jobid": "7"}),
            );
        }
        add("tau_metric_proxy_run_total", json!({"operation": "exec"}));
        add("iteration_time", json!({"puid": "0"}));
        add("iteration_time", json!({"puid": "1"}));
    }
    let headers = [("Content-Type", "application/json")];
    let put = |points: &Value| {
        let body = points.to_string();
        post(agent.http(), "/api/put?details", &headers, body.as_bytes()).expect("an answer")
    };
    let answer = put(&Value::from(points));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let ahead = put(
        &json!([{"metric": "m", "timestamp": now_seconds() + 86_400, "value": 1, "tags": {"a": "b"}}]),
    );
    assert_eq!(ahead.status, 400, "{}", ahead.text());
}

fn ask(agent: &AgentProcess, body: &Value) -> Result<Value, String> {
    let headers = [("Content-Type", "application/json")];
    let answer = post(
        agent.http(),
        "/api/query",
        &headers,
        body.to_string().as_bytes(),
    );
    let answer = answer.expect("an answer");
    match answer.status {
        200 => Ok(answer.json()),
        _ => Err(format!("{} for {body}", answer.text())),
    }
}

/// Checks that every target has data in both forms, that each line has the tags of its name, and
/// that no gauges are summed.
fn check_panel(
    agent: &AgentProcess,
    panel: &Value,
    chosen: &DashboardVariables<'_>,
) -> Result<(), String> {
    let answer = ask(agent, &chosen.browser_form(panel, now_seconds()))?;
    let lines = panel_queries::browser_lines(&answer);
    for (index, target) in panel["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .enumerate()
    {
        let own: Vec<_> = lines.iter().filter(|(of, _, _)| *of == index).collect();
        let points: usize = own.iter().map(|(_, dps, _)| dps.len()).sum();
        if points == 0 {
            return Err(format!("no points for {target}"));
        }
        for (_, _, line) in own {
            let alias = target["alias"].as_str().unwrap_or("$tag_host");
            for key in alias
                .split(' ')
                .filter_map(|word| word.strip_prefix("$tag_"))
            {
                assert!(line["tags"][key].is_string(), "{alias}: {line}");
            }
            if target["shouldComputeRate"] == false {
                assert_eq!(line["aggregateTags"], json!([]), "added up: {target}");
            }
        }
        let answer = ask(agent, &chosen.backend_form(target, now_seconds()))?;
        if panel_queries::check_backend(&answer) == 0 {
            return Err(format!("no points in the backend form for {target}"));
        }
    }
    Ok(())
}

#[test]
fn every_panel_of_every_dashboard_finds_data() {
    if need("cc").is_none() {
        return;
    }
    let node = PanelNode::start();
    let agent = &node.agent;
    for name in FILES {
        let dashboard = dashboard("opentsdb", name);
        for panel in panel_queries::panels(&dashboard) {
            // All nodes; one selected node; and lines by another tag.
            for (host, tag) in [(".*", "host"), ("nid7", "host"), ("(nid7|nid8)", "puid")] {
                let chosen = DashboardVariables {
                    host,
                    metric: "iteration_time",
                    tag,
                };
                let what = format!("data for {name}: {} ({host})", panel["title"]);
                eventually_within(Duration::from_secs(20), &what, || {
                    check_panel(agent, panel, &chosen)
                });
            }
            let no_match = DashboardVariables {
                host: "nid8",
                metric: "iteration_time",
                tag: "host",
            };
            let answer =
                ask(agent, &no_match.browser_form(panel, now_seconds())).expect("an answer");
            assert_eq!(answer, json!([]), "{name}: {}", panel["title"]);
        }
    }
    agent.assert_conserved();
}

#[test]
fn every_variable_has_values() {
    if need("cc").is_none() {
        return;
    }
    let node = PanelNode::start();
    let agent = &node.agent;
    for name in FILES {
        let dashboard = dashboard("opentsdb", name);
        let variables = dashboard["templating"]["list"].as_array().expect("a list");
        for variable in variables
            .iter()
            .filter(|variable| variable["type"] == "query")
        {
            let query = variable["query"].as_str().expect("a text");
            // As the data source sends them; the textbox is initially empty.
            let (path, expected) = match query {
                "tag_values(pegel_cpu_seconds_total, host)" => (
                    "/api/search/lookup?m=pegel_cpu_seconds_total%7Bhost=*%7D&limit=10000",
                    "nid7",
                ),
                "metrics($prefix)" => ("/api/suggest?type=metrics&q=&max=10000", "iteration_time"),
                "suggest_tagk()" => ("/api/suggest?type=tagk&q=&max=10000", "puid"),
                other => panic!("{name}: {other}"),
            };
            let answer = agent.get(path).json();
            let found = match answer["results"].as_array() {
                Some(results) => results.iter().map(|found| &found["tags"]["host"]).collect(),
                None => answer
                    .as_array()
                    .expect("a list")
                    .iter()
                    .collect::<Vec<_>>(),
            };
            assert!(found.contains(&&json!(expected)), "{query}: {answer}");
            let regex = variable["regex"].as_str().expect("a text");
            if !regex.is_empty() {
                let names = found.iter().map(|name| name.as_str().expect("a text"));
                let left: Vec<&str> = names.filter(|name| is_left(regex, name)).collect();
                assert_eq!(left, ["iteration_time"], "of {} names", found.len());
            }
        }
    }
}

/// Evaluates the only kind of expression in use: a negative lookahead of prefixes and names.
fn is_left(regex: &str, name: &str) -> bool {
    let shape = regex
        .strip_prefix("/^(?!")
        .and_then(|rest| rest.strip_suffix(")/"));
    let mut words = shape.expect("a negative look-ahead").split('|');
    !words.any(|word| match word.strip_suffix('$') {
        Some(whole) => whole == name,
        None => name.starts_with(word),
    })
}

#[test]
fn dashboards_are_valid_for_grafana() {
    for source in ["prometheus", "opentsdb"] {
        check_dashboards(source);
    }
}

fn check_dashboards(source: &str) {
    let mut uids = BTreeSet::new();
    for name in FILES {
        let dashboard = dashboard(source, name);
        let uid = dashboard["uid"].as_str().expect("a uid").to_owned();
        assert!(uid.len() <= 40 && uids.insert(uid), "{name}");
        assert!(
            dashboard["id"].is_null() && dashboard["schemaVersion"] == 39,
            "{name}"
        );
        assert!(
            dashboard.get("__inputs").is_none(),
            "provisioning does not fill them in"
        );
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        let rows = dashboard["panels"].as_array().expect("panels");
        for row in rows.iter().filter(|panel| panel["type"] == "row") {
            assert!(ids.insert(row["id"].as_u64().expect("a number")), "{name}");
            let is_closed = row["collapsed"].as_bool().expect("known");
            assert_eq!(
                is_closed,
                row["panels"] != json!([]),
                "{name}: {}",
                row["title"]
            );
        }
        for panel in panel_queries::panels(&dashboard) {
            assert!(
                ids.insert(panel["id"].as_u64().expect("a number")),
                "{name}"
            );
            check_form(source, name, panel);
            let cell = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            assert!(cell("x") + cell("w") <= 24, "{name}: {}", panel["title"]);
            for x in cell("x")..cell("x") + cell("w") {
                for y in cell("y")..cell("y") + cell("h") {
                    assert!(
                        taken.insert((x, y)),
                        "{name}: {} covers another",
                        panel["title"]
                    );
                }
            }
        }
        // No panel has a fixed data source, which would be missing after an import elsewhere.
        let text = dashboard.to_string();
        let sources = text.matches("\"uid\":").count() - 1;
        assert_eq!(
            text.matches("\"uid\":\"${datasource}\"").count(),
            sources,
            "{name}"
        );
        assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
    }
}

fn check_form(source: &str, name: &str, panel: &Value) {
    let place = format!("{source}, {name}: {}", panel["title"]);
    let kind = panel["type"].as_str().expect("a type");
    assert!(["timeseries", "stat"].contains(&kind), "{place}");
    assert!(
        !panel["fieldConfig"]["defaults"]["unit"].is_null(),
        "{place}"
    );
    let mut letters = BTreeSet::new();
    for target in panel["targets"].as_array().expect("targets") {
        assert!(letters.insert(target["refId"].to_string()), "{place}");
        assert_eq!(target["datasource"]["type"], source, "{place}");
        // Nodes are never aggregated into one line.
        if source == "prometheus" {
            let expression = target["expr"].as_str().expect("a text");
            let is_each = target["legendFormat"] == "__auto";
            assert!(is_each || expression.contains(" by (instance"), "{place}");
            assert!(expression.contains(r#"instance=~"$host""#), "{place}");
            continue;
        }
        assert!(
            ["sum", "none"].contains(&target["aggregator"].as_str().expect("a text")),
            "{place}"
        );
        assert_eq!(target["filters"][0]["tagk"], "host", "{place}");
        assert_eq!(target["filters"][0]["groupBy"], true, "{place}");
        assert_eq!(target["isCounter"], target["shouldComputeRate"], "{place}");
        let by: Vec<&Value> = target["filters"]
            .as_array()
            .expect("filters")
            .iter()
            .collect();
        assert!(by.iter().all(|filter| filter["groupBy"] == true), "{place}");
    }
    assert!(!letters.is_empty(), "{place}");
}
