//! `pegel nodes`, `pegel tree`, `--node` and `--per-node` with a canned parent; `pegel tree init`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, need};
use serde_json::{Value, json};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(30);

/// A parent with constant responses, which records the requests.
struct CannedParent {
    home: TempDir,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

fn nodes() -> Value {
    let node = |name: &str, state: &str, busy: Value| {
        json!({"node": name, "parent": "head1", "state": state, "lag_ms": 12, "clock_offset_ms": 0,
               "version": "0.1.0", "is_parent": false, "busy": busy, "memory": 40.2, "pressure": 0.0,
               "gpu": null, "network": 1234.0, "temperature": null, "load": 0.5, "outliers": [],
               "problem": ""})
    };
    let mut head = node("head1", "up", json!(3.1));
    head["parent"] = json!("");
    head["is_parent"] = json!(true);
    let mut busy = node("n10", "up", json!(97.0));
    busy["outliers"] = json!([{"figure": "busy", "value": 97.0, "median": 3.1}]);
    let mut lost = node("n2", "lost", Value::Null);
    lost["problem"] = json!("not connected for 12 s");
    let nodes = [head, node("n1", "up", json!(2.0)), busy, lost];
    json!({"node": "head1", "nodes": nodes})
}

fn tree() -> Value {
    json!({
        "node": "head1", "accepts": "127.0.0.1:1338", "children_max": 64, "interval_ms": 1000,
        "nodes": 4, "up": 3, "levels": 2, "reduced_series": 300, "dirty_ticks": 0,
        "tree": {"node": "head1", "state": "up", "children": [
            {"node": "n10", "state": "up", "children": []},
            {"node": "n1", "state": "up", "children": []},
            {"node": "n2", "state": "lost", "children": []}]},
        "problems": [{"peer": "10.0.0.7", "node": "n1", "reason": "duplicate",
                      "message": "another agent has this name", "count": 1, "last": 1.0}],
        "parents": [],
    })
}

fn values(target: &str) -> Value {
    let value = |name: &str, value: f64| json!({"name": name, "ts": 1000.0, "value": value});
    if target.starts_with("/nodes/n1/") {
        json!([value("node_load1", 1.0)])
    } else if target.contains("nodes=each") {
        json!([
            value("node_load1{host=\"n10\"}", 10.0),
            value("node_load1{host=\"n1\"}", 1.0)
        ])
    } else {
        json!([value("node_load1", 5.5)])
    }
}

fn list(target: &str) -> Value {
    let values = values(target);
    let names = values.as_array().expect("a list").iter();
    let entries = names.map(
        |value| json!({"name": value["name"], "doc": "Load average.", "type": "gauge", "unit": ""}),
    );
    Value::Array(entries.collect())
}

fn serve(stream: &mut UnixStream, requests: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    requests.lock().push(target.to_owned());
    let path = target.split('?').next().unwrap_or_default();
    let header = match path.starts_with("/nodes/") {
        true => "",
        false => "Pegel-Nodes: answered=3 expected=4 late=n2\r\n",
    };
    let ok = format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n{header}\r\n");
    let path = path.strip_prefix("/nodes/n1").unwrap_or(path);
    match path {
        "/api/v1/nodes" => write!(stream, "{ok}{}", nodes()),
        "/api/v1/tree" => write!(stream, "{ok}{}", tree()),
        "/api/v1/values" => write!(stream, "{ok}{}", values(target)),
        "/api/v1/list" => write!(stream, "{ok}{}", list(target)),
        "/api/v1/range" => write!(stream, "{ok}[]"),
        "/api/v1/query" => write!(
            stream,
            "{ok}{}",
            json!({"status": "success", "warnings": ["incomplete result"],
                   "data": {"resultType": "scalar", "result": [1, "2"]}})
        ),
        "/api/v1/alerts" => write!(stream, "{ok}{}", json!({"data": {"alerts": []}})),
        "/api/v1/stream" => write!(stream, "{ok}data: {}\n\n", values(target)),
        _ => write!(
            stream,
            "HTTP/1.0 404 Not Found\r\n\r\n{{\"error\":\"no such place\"}}"
        ),
    }
}

impl CannedParent {
    fn start() -> CannedParent {
        let home = TempDir::new();
        let listener = UnixListener::bind(home.join("push.sock")).expect("a socket");
        let (stop, requests) = (home.join("stop"), Arc::default());
        let recorded: Arc<Mutex<Vec<String>>> = Arc::clone(&requests);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.exists() {
                    return;
                }
                let mut stream = stream.expect("a connection");
                // Errors of clients that close early are ignored.
                let _ = serve(&mut stream, &recorded);
            }
        });
        CannedParent {
            home,
            requests,
            thread: Some(thread),
        }
    }

    fn pegel(&self, args: &[&str]) -> FinishedProcess {
        let mut command = PEGEL.command(&self.home);
        command
            .env("PEGEL_SOCKET", self.home.join("push.sock"))
            .args(args);
        ChildProcess::start(&mut command).wait(BOUND)
    }

    /// Returns the requests since the last call, without the probes that send none.
    fn requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock());
        requests.retain(|target| !target.is_empty());
        requests
    }
}

impl Drop for CannedParent {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("stop"), "");
        let _ = UnixStream::connect(self.home.join("push.sock"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[track_caller]
fn assert_code(finished: &FinishedProcess, code: i32) {
    assert_eq!(finished.code(), Some(code), "{finished}");
}

#[test]
fn nodes_with_problems_come_first() {
    let parent = CannedParent::start();
    let table = parent.pegel(&["nodes"]);
    assert_code(&table, 0);
    let expected = "\
NODE   STATE    LAG  CLOCK  PARENT  BUSY   MEM  GPU  STANDS OUT
n2     lost   12 ms   0 ms  head1      -  40 %    -  not connected for 12 s
n10    up     12 ms   0 ms  head1   97 %  40 %    -  busy 97 % (median 3 %)
head1  up     12 ms   0 ms  -        3 %  40 %    -
n1     up     12 ms   0 ms  head1    2 %  40 %    -

4 nodes: 3 up, 1 lost
";
    assert_eq!(table.stdout, expected);
    assert_eq!(table.stderr, "");
    let lost = parent.pegel(&["nodes", "--state", "lost", "--state", "late"]);
    assert_code(&lost, 0);
    assert!(lost.stdout.ends_with("\n1 of 4 nodes: 1 lost\n"), "{lost}");
    assert_eq!(lost.stdout.lines().count(), 4, "{lost}");
    let none = parent.pegel(&["nodes", "--state", "refused"]);
    assert_eq!(
        (none.code(), &*none.stdout),
        (Some(0), "no node is in this state\n")
    );
    let named = parent.pegel(&["nodes", "n1*", "-f", "txt"]);
    let names: Vec<&str> = named
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["#", "n10", "n1"], "{named}");
}

#[test]
fn a_check_fails_if_a_node_is_not_up() {
    let parent = CannedParent::start();
    let check = parent.pegel(&["nodes", "--check"]);
    assert_code(&check, 1);
    assert_eq!(check.stderr, "pegel: 1 of 4 nodes is not up: n2 (lost)\n");
    assert!(check.stdout.starts_with("NODE"), "{check}");
    assert_code(&parent.pegel(&["nodes", "--check", "n1,n10"]), 0);
    let unknown = parent.pegel(&["nodes", "n1", "head2"]);
    assert_code(&unknown, 4);
    assert_eq!(
        unknown.stderr,
        "pegel: no node named head2; did you mean head1?\n"
    );
}

#[test]
fn nodes_are_listed_in_every_format() {
    let parent = CannedParent::start();
    let json = parent.pegel(&["nodes", "-f", "json"]);
    let parsed: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(parsed[0]["node"], "n2");
    assert_eq!(parsed[0]["busy"], Value::Null);
    assert_eq!(parsed[1]["outliers"][0]["figure"], "busy");
    for line in parent.pegel(&["nodes", "-f", "ndjson"]).stdout.lines() {
        serde_json::from_str::<Value>(line).expect("JSON on every line");
    }
    let csv = parent.pegel(&["nodes", "-f", "csv"]).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("node,state,lag_ms,clock_offset_ms,parent,busy,memory,"),
        "{csv}"
    );
    assert!(
        lines[1].starts_with("n2,lost,12.0,0.0,head1,,40.2,"),
        "{csv}"
    );
    assert!(lines[1].ends_with(",not connected for 12 s"), "{csv}");
    let fields = |line: &&str| line.split(',').count();
    assert!(
        lines.iter().all(|line| fields(line) == fields(&lines[0])),
        "{csv}"
    );
    let yaml = parent.pegel(&["nodes", "-f", "yaml"]).stdout;
    assert!(
        yaml.starts_with("- node: \"n2\"\n  state: \"lost\"\n  lag_ms: 12.0\n"),
        "{yaml}"
    );
    let file = parent.home.join("nodes.csv");
    assert_code(&parent.pegel(&["nodes", "-o", "nodes.csv"]), 0);
    assert_eq!(fs::read_to_string(file).expect("written"), csv);
}

#[test]
fn the_tree_is_drawn_with_its_problems() {
    let parent = CannedParent::start();
    let drawn = parent.pegel(&["tree"]);
    assert_code(&drawn, 0);
    let start = "\
head1 (4 nodes: 3 up, 1 lost)
├─ n1
├─ n2  lost
└─ n10

accepts children on 127.0.0.1:1338 (3 of 64), 300 reduced series

Problems
  lost: n2
";
    assert!(drawn.stdout.starts_with(start), "{drawn}");
    assert!(
        drawn.stdout.contains("n1 from 10.0.0.7: duplicate"),
        "{drawn}"
    );
    assert!(
        drawn
            .stdout
            .contains("another agent has this name\n    fix: give"),
        "{drawn}"
    );
    let json = parent.pegel(&["tree", "-f", "json"]).stdout;
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), tree());
}

#[test]
fn a_node_is_read_through_its_parent() {
    let parent = CannedParent::start();
    for (args, path) in [
        (
            &["values", "--node", "n1", "-f", "csv"][..],
            "/nodes/n1/api/v1/values",
        ),
        (
            &["get", "node_load1", "--node", "n1", "-f", "csv"],
            "/nodes/n1/api/v1/values?names=node_load1",
        ),
        (&["list", "--node", "n1"], "/nodes/n1/api/v1/list"),
        (&["alerts", "--node", "n1"], "/nodes/n1/api/v1/alerts"),
    ] {
        let finished = parent.pegel(args);
        assert_code(&finished, 0);
        assert_eq!(finished.stderr, "", "{finished}");
        assert_eq!(parent.requests(), ["/api/v1/nodes", path], "{args:?}");
    }
    let query = parent.pegel(&["query", "--node", "n1", "1+1"]);
    assert_eq!((query.code(), &*query.stdout), (Some(0), "2\n"), "{query}");
    assert!(parent.requests()[1].starts_with("/nodes/n1/api/v1/query?query=1%2B1&time="));
    let track = parent.pegel(&["track", "--node", "n1", "node_load1", "-f", "csv"]);
    assert_code(&track, 3);
    assert_eq!(track.stdout, "name,ts,value\nnode_load1,1000,1\n");
    let unknown = parent.pegel(&["values", "--node", "n20"]);
    assert_code(&unknown, 4);
    assert_eq!(
        unknown.stderr,
        "pegel: no node named n20; did you mean n10 or n2?\n"
    );
}

#[test]
fn every_node_has_its_own_series_on_request() {
    let parent = CannedParent::start();
    let sum = parent.pegel(&["values", "-f", "csv"]);
    assert_eq!(sum.stdout, "name,ts,value\nnode_load1,1000,5.5\n");
    parent.requests();
    let each = parent.pegel(&["values", "--per-node"]);
    assert_code(&each, 0);
    assert!(
        parent
            .requests()
            .contains(&"/api/v1/values?nodes=each".to_owned())
    );
    let words = |line: &str| {
        line.split_whitespace()
            .take(3)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let lines: Vec<String> = each.stdout.lines().map(words).collect();
    assert_eq!(
        lines,
        ["NODE NAME VALUE", "n1 node_load1 1", "n10 node_load1 10"]
    );
    let csv = parent.pegel(&["get", "node_load1", "--per-node", "-f", "csv"]);
    assert!(
        csv.stdout
            .contains("\"node_load1{host=\"\"n10\"\"}\",1000,10\n"),
        "{csv}"
    );
    let list = parent.pegel(&["list", "--per-node", "-f", "txt"]);
    assert!(list.stdout.contains("node_load1{host=\"n1\"} "), "{list}");
    let both = parent.pegel(&["values", "--per-node", "--node", "n1"]);
    assert_code(&both, 2);
}

#[test]
fn missing_nodes_are_named_once() {
    let parent = CannedParent::start();
    for args in [&["values"][..], &["list"], &["get", "node_load1"]] {
        let finished = parent.pegel(args);
        assert_code(&finished, 0);
        assert_eq!(
            finished.stderr, "pegel: 3 of 4 nodes answered; missing: n2\n",
            "{args:?}"
        );
    }
}

#[test]
fn a_query_prints_the_warning_of_its_answer_only() {
    let parent = CannedParent::start();
    let query = parent.pegel(&["query", "1+1"]);
    assert_eq!((query.code(), &*query.stdout), (Some(0), "2\n"), "{query}");
    assert_eq!(query.stderr, "pegel: incomplete result\n");
}

fn pegel(home: &TempDir, args: &[&str]) -> FinishedProcess {
    let mut command = PEGEL.command(home);
    command.current_dir(home.path()).args(args);
    ChildProcess::start(&mut command).wait(BOUND)
}

fn mode(home: &TempDir, path: &str) -> u32 {
    let metadata = fs::metadata(home.join(path)).expect(path);
    metadata.permissions().mode() & 0o777
}

#[test]
fn certificates_are_made_once() {
    let home = TempDir::new();
    let init = ["tree", "init", "--host", "head1", "--host", "10.0.0.1"];
    let made = pegel(&home, &init);
    assert_code(&made, 0);
    assert!(
        made.stdout.contains("for 825 days, for head1, 10.0.0.1\n"),
        "{made}"
    );
    for step in [
        "fingerprint (SHA-256) ",
        "\n1. On the head:",
        "\n2. On each node:",
        "\n3. ",
    ] {
        assert!(made.stdout.contains(step), "{made}");
    }
    assert_eq!(mode(&home, "pegel-tree"), 0o700);
    for secret in ["ca.key", "parent.key", "token"] {
        assert_eq!(
            mode(&home, &format!("pegel-tree/{secret}")),
            0o600,
            "{secret}"
        );
    }
    let read = |name: &str| fs::read_to_string(home.join("pegel-tree").join(name)).expect(name);
    let token = read("token");
    assert!(
        token.len() == 65 && token.trim().bytes().all(|b| b.is_ascii_hexdigit()),
        "{token}"
    );
    assert!(!made.stdout.contains(token.trim()), "{made}");
    assert!(read("head.yaml").contains("  accept: 0.0.0.0:1338\n"));
    assert!(read("node.yaml").contains("    - \"head1:1338\"\n"));
    let before = read("ca.key");
    let again = pegel(&home, &init);
    assert_code(&again, 1);
    for name in ["ca.pem", "ca.key", "parent.pem", "token", "head.yaml"] {
        assert!(again.stderr.contains(name), "{again}");
    }
    let added = pegel(&home, &["tree", "init", "--node", "n1", "--node", "n2"]);
    assert_code(&added, 0);
    assert_eq!(mode(&home, "pegel-tree/nodes"), 0o700);
    assert_eq!(mode(&home, "pegel-tree/nodes/n2.key"), 0o600);
    let twice = pegel(&home, &["tree", "init", "--node", "n3", "--node", "n2"]);
    assert_code(&twice, 1);
    assert!(
        twice.stderr.contains("nodes/n2.pem, nodes/n2.key"),
        "{twice}"
    );
    assert!(
        !home.join("pegel-tree/nodes/n3.pem").exists(),
        "all or nothing"
    );
    assert_eq!(read("ca.key"), before);
    let Some(openssl) = need("openssl") else {
        return;
    };
    for (purpose, file) in [("sslserver", "parent.pem"), ("sslclient", "nodes/n1.pem")] {
        let mut command = Command::new(&openssl);
        command
            .current_dir(home.join("pegel-tree"))
            .args(["verify", "-CAfile", "ca.pem", "-purpose", purpose, file]);
        let verified = ChildProcess::start(&mut command).wait(BOUND);
        assert_code(&verified, 0);
    }
}

#[test]
fn bad_arguments_of_init_leave_nothing() {
    let home = TempDir::new();
    for (args, message) in [
        (
            &["--host", "a b"][..],
            "\"a b\" is not a host name or an IP address",
        ),
        (&["--node", "a/b"], "must not contain /"),
        (&["--node", ".."], "must not contain /"),
        (&["--node", "ü"], "is not a node name"),
        (&["--days", "0"], "0"),
    ] {
        let finished = pegel(&home, &[&["tree", "init"], args].concat());
        assert_code(&finished, 2);
        assert!(finished.stderr.contains(message), "{finished}");
        assert!(!home.join("pegel-tree").exists(), "{args:?}");
    }
    fs::create_dir(home.join("open")).expect("made");
    fs::set_permissions(home.join("open"), fs::Permissions::from_mode(0o755)).expect("set");
    let open = pegel(&home, &["tree", "init", "--dir", "open"]);
    assert_code(&open, 1);
    assert!(open.stderr.contains("run: chmod 700 "), "{open}");
}

#[test]
fn options_of_the_agent_set_keys_of_the_tree() {
    let home = TempDir::new();
    let show = |args: &[&str]| pegel(&home, &[&["config", "show", "--new"], args].concat());
    let args = [
        "--accept",
        "127.0.0.1:1400",
        "--parent",
        "head1:1338",
        "--parent",
        "head2:99",
    ];
    let shown = show(&args);
    assert_code(&shown, 0);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = shown.stdout.lines().map(words).collect();
    for line in [
        r#"accept: "127.0.0.1:1400" # --accept"#,
        r##"parents: ["head1:1338", "head2:99"] # --parent"##,
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {shown}");
    }
    let wrong = show(&["--parent", "head1:0"]);
    assert_code(&wrong, 2);
    assert!(wrong.stderr.contains("--parent"), "{wrong}");
    assert_code(&pegel(&home, &["tree", "init", "--node", "n1"]), 0);
    for file in ["pegel-tree/head.yaml", "pegel-tree/node.yaml"] {
        assert_code(&pegel(&home, &["config", "check", "--text-only", file]), 0);
    }
}
