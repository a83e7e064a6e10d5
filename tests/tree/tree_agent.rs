//! An agent of a tree that can be killed and started again, and requests to it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pegel_lane::{Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};
use pegel_testkit::{
    AgentAddress, AgentProcess, NetworkNamespace, TempDir, TestResponse, eventually, get, post,
};
use serde_json::Value;

use crate::PEGEL;
use crate::refused_children::TreeCertificates;

/// A node with a fixed name, address, store and lanes over all of its lives.
#[derive(Debug)]
pub(crate) struct TreeAgent {
    pub name: String,
    home: TempDir,
    lanes: &'static ProcessLanes,
    yaml: String,
    token: Option<String>,
    place: Option<(Arc<NetworkNamespace>, Arc<TreeCertificates>)>,
    agent: Option<AgentProcess>,
}

/// Returns an address on loopback that no other test uses, with the usual port: a parent keeps it
/// over restarts.
pub(crate) fn loopback_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let unique = (std::process::id() % (1 << 14)) << 8 | (number % 256);
    let [_, high, middle, low] = unique.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, high + 1, middle, low), 1338))
}

impl TreeAgent {
    /// Describes a node; `section` is the content of the section `tree` of its configuration.
    pub(crate) fn new(name: &str, section: &str) -> TreeAgent {
        TreeAgent::with(name, &format!("tree: {{{section}}}\n"))
    }

    /// Describes a node with any configuration.
    pub(crate) fn with(name: &str, yaml: &str) -> TreeAgent {
        let home = TempDir::new();
        fs::create_dir(home.join("lanes")).expect("made");
        TreeAgent {
            name: name.to_owned(),
            lanes: ProcessLanes::in_directory(home.join("lanes")),
            home,
            yaml: format!("node: {name}\nrate: 500ms\n{yaml}"),
            token: None,
            place: None,
            agent: None,
        }
    }

    /// Replaces the token that all agents of tests have.
    pub(crate) fn set_token(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    /// Places the node in a network namespace, which it keeps alive together with the files.
    pub(crate) fn place_in(&mut self, space: Arc<NetworkNamespace>, files: Arc<TreeCertificates>) {
        self.place = Some((space, files));
    }

    /// Describes and starts a parent on loopback.
    pub(crate) fn head(name: &str) -> (TreeAgent, SocketAddr) {
        let address = loopback_address();
        let mut node = TreeAgent::new(name, &format!("accept: \"{address}\""));
        node.start();
        (node, address)
    }

    /// Describes and starts a child of these parents, in order of preference.
    pub(crate) fn child(name: &str, parents: &[SocketAddr]) -> TreeAgent {
        let mut node = TreeAgent::new(name, &format!("parents: {}", list(parents)));
        node.start();
        node
    }

    /// Describes and starts a node that is a parent and a child.
    pub(crate) fn middle(name: &str, parents: &[SocketAddr]) -> (TreeAgent, SocketAddr) {
        let address = loopback_address();
        let section = format!("accept: \"{address}\", parents: {}", list(parents));
        let mut node = TreeAgent::new(name, &section);
        node.start();
        (node, address)
    }

    pub(crate) fn start(&mut self) {
        let agent = PEGEL
            .agent()
            .dir(self.home.join("store"))
            .socket(self.home.join("push.sock"))
            .env("PEGEL_LANES", self.home.join("lanes"))
            .config(&self.yaml);
        let agent = match &self.token {
            Some(token) => agent.env("PEGEL_TOKEN", token),
            None => agent,
        };
        self.agent = Some(match &self.place {
            Some((space, _)) => space.run_inside(|| agent.start()),
            None => agent.start(),
        });
    }

    /// Kills the agent with SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.agent.take().expect("it runs").kill());
    }

    pub(crate) fn agent(&self) -> &AgentProcess {
        self.agent.as_ref().expect("it runs")
    }

    /// Returns a counter of a program on this node. It lives in the test and outlives the agent.
    pub(crate) fn counter(&self, name: &str) -> Counter {
        let spec = LaneSeriesSpec::new(LaneKind::Counter, name);
        Counter::create_in(self.lanes, &spec).expect("made")
    }

    /// Returns the address that is reachable from every network namespace.
    pub(crate) fn unix(&self) -> AgentAddress {
        self.agent().unix()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> TestResponse {
        let answer = get(&self.unix(), path).unwrap_or_else(|e| panic!("GET {path}: {e}"));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer
    }

    /// Returns the current values of the matching series, sorted by their texts.
    #[track_caller]
    pub(crate) fn values(&self, parameters: &str) -> Vec<(String, f64)> {
        let all = self.get(&format!("/api/v1/values?{parameters}")).json();
        let all = all.as_array().expect("a list").iter();
        let mut values: Vec<(String, f64)> = all
            .map(|one| {
                let name = one["name"].as_str().expect("a text").to_owned();
                (name, one["value"].as_f64().unwrap_or(f64::NAN))
            })
            .collect();
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values
    }

    /// Waits until the values of the matching series are these.
    #[track_caller]
    pub(crate) fn shows(&self, parameters: &str, expected: &[(&str, f64)]) {
        eventually(&format!("{parameters} at {}", self.name), || {
            let found = self.values(parameters);
            let is_same = found.len() == expected.len()
                && found
                    .iter()
                    .zip(expected)
                    .all(|(a, b)| a.0 == b.0 && a.1 == b.1);
            is_same.then_some(()).ok_or(found)
        });
    }

    /// Evaluates a PromQL expression now; returns the response.
    #[track_caller]
    pub(crate) fn promql_response(&self, expression: &str) -> TestResponse {
        let form = format!("query={}", percent_encoded(expression));
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let answer = post(&self.unix(), "/api/v1/query", &headers, form.as_bytes());
        let answer = answer.unwrap_or_else(|e| panic!("{expression}: {e}"));
        assert_eq!(answer.status, 200, "{expression}: {}", answer.text());
        answer
    }

    /// Returns label sets and values of the result of a PromQL expression.
    #[track_caller]
    pub(crate) fn promql(&self, expression: &str) -> Vec<(Value, f64)> {
        let answer = self.promql_response(expression).json();
        let result = answer["data"]["result"].as_array();
        let result = result.unwrap_or_else(|| panic!("{expression}: {answer}"));
        let values = result.iter().map(|series| {
            let value = series["value"][1]
                .as_str()
                .and_then(|text| text.parse().ok());
            let value = value.unwrap_or_else(|| panic!("{expression}: {series}"));
            (series["metric"].clone(), value)
        });
        values.collect()
    }

    /// Waits until a PromQL expression has one series with this value.
    #[track_caller]
    pub(crate) fn evaluates(&self, expression: &str, expected: f64) {
        eventually(&format!("{expression} at {}", self.name), || {
            let found = self.promql(expression);
            match found.as_slice() {
                [(_, value)] if *value == expected => Ok(()),
                _ => Err(found),
            }
        });
    }

    /// Waits until the newest sum of a counter in this parent's own store is this one.
    #[track_caller]
    pub(crate) fn reduces(&self, name: &str, expected: f64) {
        self.evaluates(&format!("{name}{{host=\"{}\"}}", self.name), expected);
    }

    /// Returns the nodes that this parent lists, with their states.
    #[track_caller]
    pub(crate) fn node_states(&self) -> Vec<(String, String)> {
        let listed = self.get("/api/v1/nodes").json();
        let nodes = listed["nodes"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        nodes
            .map(|node| (text(&node["node"]), text(&node["state"])))
            .collect()
    }

    /// Waits until exactly these nodes, sorted by name, are listed, all of them up.
    #[track_caller]
    pub(crate) fn all_up(&self, names: &[&str]) {
        eventually(&format!("{names:?} up at {}", self.name), || {
            let found = self.node_states();
            let is_same = found.len() == names.len()
                && found
                    .iter()
                    .zip(names)
                    .all(|(node, name)| node.0 == *name && node.1 == "up");
            is_same.then_some(()).ok_or(found)
        });
    }

    /// Waits until `/api/v1/tree` reports a problem with this reason; returns it.
    #[track_caller]
    pub(crate) fn problem(&self, reason: &str) -> Value {
        eventually(&format!("problem {reason} at {}", self.name), || {
            let tree = self.get("/api/v1/tree").json();
            let problems = tree["problems"].as_array().expect("a list");
            let found = problems.iter().find(|problem| problem["reason"] == reason);
            found.cloned().ok_or(tree["problems"].clone())
        })
    }

    /// Returns times and values of one series of the store of this agent alone.
    #[track_caller]
    pub(crate) fn stored(&self, selector: &str) -> Vec<(i64, f64)> {
        let path = format!(
            "/api/v1/range?match={selector}&start=-1h&nodes={}",
            self.name
        );
        let answer = self.get(&path).json();
        let series = answer.as_array().expect("a list of series");
        assert!(series.len() <= 1, "{selector} at {}: {answer}", self.name);
        let points = series
            .first()
            .and_then(|series| series["points"].as_array());
        let point = |point: &Value| {
            let time = point[0].as_i64().expect("milliseconds");
            (time, point[1].as_f64().unwrap_or(f64::NAN))
        };
        points.map_or(Vec::new(), |points| points.iter().map(point).collect())
    }
}

/// Returns a list of addresses in YAML.
pub(crate) fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    format!("[{}]", quoted.join(", "))
}

pub(crate) fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
