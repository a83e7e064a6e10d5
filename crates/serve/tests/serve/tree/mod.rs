//! The routes of a parent, over nodes that respond, hang and fail.

mod fake_tree;

use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};
use pegel_testkit::{AgentAddress, TestResponse, get_with, post};
use pegel_tree_protocol::{SelectEnd, SelectWriter, SelectedSeries, TreeRequest};
use serde_json::{Value, json};

use crate::support::{TestServer, now};
use fake_tree::{FakeChild, FakeResponses, FakeTree};

/// A head with two nodes: `n1`, and `p1` with `n2` below it. All have a counter and a gauge.
struct TestTree {
    head: TestServer,
    end: Millis,
    _below: Vec<TestServer>,
}

/// The values of the counter and of the gauge.
const VALUES: [(&str, f64, f64); 4] = [
    ("head", 7.0, 4.0),
    ("n1", 1_000.0, 1.0),
    ("n2", 500.0, 2.0),
    ("p1", 3.0, 1.0),
];

fn push_samples(server: &TestServer, node: &str, end: Millis) {
    let (_, count, load) = VALUES.into_iter().find(|one| one.0 == node).expect("known");
    for back in 0..4 {
        let time = end - 3_000 + back * 1_000;
        let counted = count - (3 - back) as f64;
        server.push(
            MetricKind::Counter,
            &[(r#"hits_total{call="a"}"#, time, counted)],
        );
        server.push(MetricKind::Gauge, &[("node_load1", time, load)]);
    }
}

fn child(name: &'static str, below: &[&'static str], responses: FakeResponses) -> FakeChild {
    FakeChild {
        name,
        below: below.to_vec(),
        responses,
    }
}

fn server_of(server: &TestServer) -> FakeResponses {
    FakeResponses::Server(server.running().local_server())
}

fn tree_with(more: Vec<FakeChild>) -> TestTree {
    let end = now() / 1_000 * 1_000;
    let n1 = TestServer::of_node("n1", None);
    let n2 = TestServer::of_node("n2", None);
    let below = FakeTree {
        own: "p1",
        children: vec![child("n2", &[], server_of(&n2))],
    };
    let p1 = TestServer::of_node("p1", Some(Arc::new(below)));
    let mut children = vec![
        child("n1", &[], server_of(&n1)),
        child("p1", &["n2"], server_of(&p1)),
    ];
    children.extend(more);
    let tree = FakeTree {
        own: "head",
        children,
    };
    let head = TestServer::of_node("head", Some(Arc::new(tree)));
    for (server, node) in [(&head, "head"), (&n1, "n1"), (&n2, "n2"), (&p1, "p1")] {
        push_samples(server, node, end);
    }
    TestTree {
        head,
        end,
        _below: vec![p1, n1, n2],
    }
}

/// A tree in which one node hangs and one fails.
fn faulty_tree() -> TestTree {
    tree_with(vec![
        child("n8", &[], FakeResponses::Hung),
        child("n9", &[], FakeResponses::Failing),
    ])
}

const ALL: &str = "answered=4 expected=4";
const FAULTY: &str = "answered=4 expected=6 late=n8,n9";

impl TestTree {
    #[track_caller]
    fn get(&self, path: &str) -> TestResponse {
        self.head.get(path)
    }

    /// Returns the JSON of a response that all nodes contributed to.
    #[track_caller]
    fn json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert_eq!(response.header("pegel-nodes"), Some(ALL), "{path}");
        response.json()
    }

    #[track_caller]
    fn promql(&self, query: &str) -> Value {
        let seconds = self.end / 1_000;
        let path = format!("/api/v1/query?time={seconds}&query={query}");
        self.json(&path)["data"]["result"].take()
    }
}

/// Returns `[host, value]` of each element of a vector.
fn by_host(result: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = result.as_array().expect("a list").iter();
    pairs
        .map(|one| (text(&one["metric"]["host"]), text(&one["value"][1])))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = list.iter();
    pairs
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[test]
fn current_values_are_reduced_or_of_each_node() {
    let tree = tree_with(Vec::new());
    let names = |json: &Value| -> Vec<(String, f64)> {
        let rows = json.as_array().expect("a list").iter();
        rows.map(|row| {
            (
                row["name"].as_str().unwrap_or_default().to_owned(),
                row["value"].as_f64().unwrap_or(-1.0),
            )
        })
        .collect()
    };
    let sums = names(&tree.json("/api/v1/values?match=hits_total&match=node_load1"));
    let expected = [
        (r#"hits_total{call="a"}"#.to_owned(), 1_510.0),
        ("node_load1".to_owned(), 2.0),
    ];
    assert_eq!(sums, expected);
    let each = names(&tree.json("/api/v1/values?names=hits_total%7Bcall=%22a%22%7D&nodes=each"));
    let expected =
        VALUES.map(|(node, count, _)| (format!(r#"hits_total{{call="a",host="{node}"}}"#), count));
    assert_eq!(each, expected);
    let response = tree.get("/api/v1/values?match=node_load1&nodes=n2,head");
    assert_eq!(
        response.header("pegel-nodes"),
        Some("answered=2 expected=2")
    );
    let expected = [
        (r#"node_load1{host="head"}"#.to_owned(), 4.0),
        (r#"node_load1{host="n2"}"#.to_owned(), 2.0),
    ];
    assert_eq!(names(&response.json()), expected);
    let unknown = tree.get("/api/v1/values?nodes=n7");
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    assert_eq!(unknown.header("pegel-nodes"), Some("answered=0 expected=4"));
    let listed = tree.json("/api/v1/list?match=hits*");
    let expected = json!([{"name": r#"hits_total{call="a"}"#, "doc": "About hits_total.", "type": "counter", "unit": ""}]);
    assert_eq!(listed, expected);
}

#[test]
fn promql_sees_every_node() {
    let tree = tree_with(Vec::new());
    let loads = tree.promql("node_load1");
    let expected = [("head", "4"), ("n1", "1"), ("n2", "2"), ("p1", "1")];
    assert_eq!(by_host(&loads), pairs(&expected));
    assert_eq!(
        by_host(&tree.promql("sum(node_load1)")),
        pairs(&[("", "8")])
    );
    assert_eq!(
        by_host(&tree.promql("sum(rate(hits_total[3s]))")),
        pairs(&[("", "4")])
    );
    let max = tree.promql("topk(1,sum%20by%20(host)%20(hits_total))");
    assert_eq!(by_host(&max), pairs(&[("n1", "1000")]));
    let by_host_and_call = tree.promql("sum%20by%20(host,call)%20(hits_total)");
    let expected = [("head", "7"), ("n1", "1000"), ("n2", "500"), ("p1", "3")];
    assert_eq!(by_host(&by_host_and_call), pairs(&expected));
    assert_eq!(
        by_host(&tree.promql("avg(node_load1)")),
        pairs(&[("", "2")])
    );
    let series = tree.json("/api/v1/series?match[]=node_load1");
    assert_eq!(series["data"].as_array().map(Vec::len), Some(4));
    let hosts = tree.json("/api/v1/label/host/values");
    assert_eq!(hosts["data"], json!(["head", "n1", "n2", "p1"]));
    let metadata = tree.json("/api/v1/metadata?metric=node_load1");
    assert_eq!(metadata["data"]["node_load1"][0]["type"], "gauge");
}

#[test]
fn matchers_of_the_host_choose_nodes() {
    let tree = faulty_tree();
    let seconds = tree.end / 1_000;
    let ask = |matcher: &str| {
        let path = format!("/api/v1/query?time={seconds}&query=node_load1%7B{matcher}%7D");
        let response = tree.get(&path);
        let nodes = response
            .header("pegel-nodes")
            .unwrap_or_default()
            .to_owned();
        (by_host(&response.json()["data"]["result"]), nodes)
    };
    let (found, nodes) = ask("host=~%22n%5B12%5D%22");
    assert_eq!(found, pairs(&[("n1", "1"), ("n2", "2")]));
    assert_eq!(
        nodes, "answered=3 expected=3",
        "nodes that hang are not asked"
    );
    let path = "/api/v1/query?query=count(node_load1%7Bhost=~%22n%5B12%5D%22%7D)";
    let counted = tree.get(path);
    assert_eq!(counted.header("pegel-nodes"), Some("answered=3 expected=3"));
    assert_eq!(counted.json()["data"]["result"][0]["value"][1], "2");
    let (found, _) = ask("host!~%22n.*%22");
    assert_eq!(found, pairs(&[("head", "4"), ("p1", "1")]));
}

#[test]
fn missing_nodes_are_named() {
    let tree = faulty_tree();
    let response = tree.get("/api/v1/query?query=count(node_load1)");
    assert_eq!(response.header("pegel-nodes"), Some(FAULTY));
    let body = response.json();
    assert_eq!(body["data"]["result"][0]["value"][1], "4");
    let warning = "incomplete result: 2 of 6 nodes did not answer: n8,n9";
    assert_eq!(body["warnings"], json!([warning]));
    for path in [
        "/api/v1/values",
        "/api/v1/range",
        "/metrics?nodes=each",
        "/api/suggest?type=metrics",
        "/api/search/lookup?m=node_load1",
        "/api/query?start=1m-ago&m=sum:node_load1",
        "/api/query/last?timeseries=node_load1",
        "/api/v1/marks",
        "/api/v1/nodes?metric=node_load1",
        "/api/v1/labels",
    ] {
        let response = tree.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert_eq!(response.header("pegel-nodes"), Some(FAULTY), "{path}");
    }
    let wrong = tree.get("/api/v1/query?query=sum(");
    assert_eq!(wrong.status, 400);
    assert!(wrong.header("pegel-nodes").is_some());
}

#[test]
fn opentsdb_has_one_series_per_host() {
    let tree = tree_with(Vec::new());
    let found = tree.json("/api/query?start=1m-ago&m=sum:node_load1%7Bhost=*%7D");
    let hosts: Vec<&str> = { found.as_array().expect("a list").iter() }
        .filter_map(|one| one["tags"]["host"].as_str())
        .collect();
    assert_eq!(hosts, ["head", "n1", "n2", "p1"]);
    let sum = tree.json("/api/query?start=1m-ago&m=sum:node_load1");
    assert_eq!(sum[0]["aggregateTags"], json!(["host"]));
    let points = sum[0]["dps"].as_object().expect("points");
    assert!(
        points.len() == 4 && points.values().all(|value| *value == 8),
        "{points:?}"
    );
    let one = tree.get("/api/query?start=1m-ago&m=sum:node_load1%7Bhost=n2%7D");
    assert_eq!(one.header("pegel-nodes"), Some(ALL));
    assert_eq!(one.json()[0]["tags"]["host"], "n2");
    let last = tree.json("/api/query/last?timeseries=hits_total&resolve=true");
    assert_eq!(last.as_array().map(Vec::len), Some(4));
    let names = tree.json("/api/suggest?type=tagv&q=n");
    assert_eq!(names, json!(["n1", "n2"]));
    let found = tree.json("/api/search/lookup?m=node_load1%7Bhost=n2%7D");
    assert_eq!(found["totalResults"], 1);
    let unknown = tree.get("/api/query?start=1m-ago&m=sum:no_such_metric");
    assert_eq!(unknown.status, 400);
    assert_eq!(unknown.header("pegel-nodes"), Some(ALL));
}

#[test]
fn ranges_and_scrapes_have_hosts() {
    let tree = tree_with(Vec::new());
    let range = tree.get("/api/v1/range?match=node_load1%7Bhost=~%22n.%22%7D&start=-1m");
    assert_eq!(range.header("pegel-nodes"), Some("answered=3 expected=3"));
    let range = range.json();
    let range = range.as_array().expect("a list");
    assert_eq!(range.len(), 2);
    assert_eq!(range[0]["labels"], json!({"host": "n1"}));
    assert_eq!(range[0]["points"].as_array().map(Vec::len), Some(4));
    let stepped = tree.json("/api/v1/range?match=hits_total&start=-1m&step=1h&agg=max&nodes=each");
    assert_eq!(stepped[1]["points"][0][1], 1_000.0);
    let own = tree.get("/metrics");
    assert_eq!(own.header("pegel-nodes"), Some("answered=1 expected=1"));
    assert!(own.text().contains("\nnode_load1 4\n"), "{}", own.text());
    let each = tree.get("/metrics?nodes=each");
    assert!(
        each.text().contains("\nnode_load1{host=\"n2\"} 2\n"),
        "{}",
        each.text()
    );
}

#[test]
fn nodes_and_the_shape_of_the_tree_are_listed() {
    let tree = tree_with(Vec::new());
    let nodes = tree.json("/api/v1/nodes?metric=node_load1");
    assert_eq!(nodes["node"], "head");
    let row = &nodes["nodes"][1];
    let expected = json!({
        "node": "n1", "parent": "head", "state": "up", "lag_ms": 12, "clock_offset_ms": null,
        "version": "1.2.3", "is_parent": false, "busy": 3.1, "memory": 0.0, "pressure": 0.0,
        "gpu": null, "network": 0.0, "temperature": 0.0, "load": 0.0, "problem": "",
        "outliers": [{"figure": "busy", "value": 97.0, "median": 12.0}], "value": 1.0,
    });
    assert_eq!(*row, expected);
    assert_eq!(tree.get("/api/v1/tree").json()["nodes"], 4);
    let single = TestServer::new();
    let nodes = single.get("/api/v1/nodes").json();
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1));
    assert_eq!(nodes["nodes"][0]["node"], "nid0001");
    assert_eq!(single.get("/api/v1/nodes").header("pegel-nodes"), None);
    assert_eq!(single.get("/nodes/n1/status").status, 404);
    assert_eq!(single.get("/nodes/nid0001/api/v1/list").status, 200);
}

#[test]
fn a_child_speaks_only_for_its_own_nodes() {
    let series = |host: &str| SelectedSeries {
        host: host.into(),
        text: "node_load1".into(),
        times: pegel_tree_protocol::encode_times(&[now() - 500]).into(),
        values: pegel_tree_protocol::encode_values(&[100.0]).into(),
        ..SelectedSeries::default()
    };
    let mut writer = SelectWriter::new(1 << 20);
    for host in ["head", "n1", "other", "n5"] {
        writer.series(&series(host)).expect("room");
    }
    let end = SelectEnd {
        answered: 2,
        expected: 3,
        late: vec!["p5".into(), "n1".into()],
        nodes: Vec::new(),
    };
    let bytes = writer.finish(end);
    let truncated = bytes.slice(..bytes.len() - 1);
    let tree = tree_with(vec![
        child("p5", &["n5"], FakeResponses::Fixed(bytes)),
        child("n6", &[], FakeResponses::Fixed(truncated)),
    ]);
    let response = tree.get("/api/v1/values?match=node_load1&nodes=each");
    let nodes = response.header("pegel-nodes");
    assert_eq!(nodes, Some("answered=5 expected=7 late=n6,p5"));
    let rows = response.json();
    let of_hostile: Vec<&Value> = { rows.as_array().expect("a list").iter() }
        .filter(|row| row["value"] == 100.0)
        .collect();
    assert_eq!(of_hostile.len(), 1, "{rows}");
    assert_eq!(of_hostile[0]["name"], r#"node_load1{host="n5"}"#);
    let status = tree.get("/status").json();
    assert_eq!(status["http"]["foreign_hosts"], 3);
}

#[test]
fn too_much_data_is_refused() {
    let zeros = vec![0; 33 << 20].into();
    let tree = tree_with(vec![child("n5", &[], FakeResponses::Fixed(zeros))]);
    for (path, message) in [
        ("/api/v1/range?match=node_load1", "the response exceeds"),
        (
            "/api/v1/query?query=node_load1",
            "the samples of all nodes exceed",
        ),
        (
            "/api/query?start=1m-ago&m=sum:node_load1&no_annotations=true",
            "exceeds",
        ),
    ] {
        let response = tree.get(path);
        assert_eq!(response.status, 413, "{path}: {}", response.text());
        assert!(
            response.text().contains(message),
            "{path}: {}",
            response.text()
        );
        assert!(response.header("pegel-nodes").is_some(), "{path}");
    }
}

#[test]
fn requests_are_passed_on_to_nodes() {
    let tree = faulty_tree();
    let values = tree.get("/nodes/n1/api/v1/values?match=node_load1");
    assert_eq!(values.status, 200, "{}", values.text());
    assert_eq!(values.json()[0]["name"], "node_load1");
    assert_eq!(
        values.header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );
    let tcp = AgentAddress::Tcp(tree.head.tcp());
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let query = post(
        &tcp,
        "/nodes/n1/api/v1/query",
        &form,
        b"query=sum(node_load1)",
    );
    let query = query.expect("an answer");
    assert_eq!(query.json()["data"]["result"][0]["value"][1], "1");
    // The page is that of this agent, for every node.
    let html = [("accept", "text/html")];
    let page = get_with(&tcp, "/nodes/n8/", &html).expect("an answer");
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let redirect = tree.get("/nodes/n1?x=1");
    assert_eq!(
        (redirect.status, redirect.header("location")),
        (308, Some("n1/?x=1"))
    );
    let own = tree.get("/nodes/head/api/v1/values?match=node_load1&nodes=head");
    assert_eq!(own.json()[0]["value"], 4.0);
    assert_eq!(tree.get("/nodes/n7/status").status, 404);
    assert_eq!(tree.get("/nodes/n8/status").status, 504);
    assert_eq!(tree.get("/nodes/n9/status").status, 502);
}

/// Every name in a path was another pass through the router: 300 of them overflowed the stack.
#[test]
fn a_path_names_one_node_only() {
    let tree = tree_with(Vec::new());
    let plain = TestServer::of_node("n1", None);
    for levels in [2, 900] {
        let path = format!("{}/healthz", "/nodes/n1".repeat(levels));
        assert_eq!(plain.get(&path).status, 400, "itself, {levels} levels");
        assert_eq!(tree.get(&path).status, 400, "a child, {levels} levels");
    }
    let own = format!("{}/healthz", "/nodes/head".repeat(700));
    assert_eq!(tree.get(&own).status, 400, "the parent itself");
    for path in [
        "/nodes/n1/nodes/n1",
        "/nodes/head/nodes/n1/status",
        "/nodes/p1/nodes/n2/status",
    ] {
        let refused = tree.get(path);
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        assert!(refused.text().contains("one node only"), "{path}");
    }
    // Pages of other sites are refused before the path is looked at.
    let tcp = AgentAddress::Tcp(plain.tcp());
    let foreign = [("sec-fetch-site", "cross-site")];
    let path = format!("{}/api/v1/query", "/nodes/n1".repeat(800));
    let refused = post(&tcp, &path, &foreign, b"query=1").expect("an answer");
    assert_eq!(refused.status, 403, "{}", refused.text());
    let refused = get_with(&tcp, &path, &foreign).expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.text());
    // All of them still answer.
    assert_eq!(plain.get("/healthz").status, 200);
    assert_eq!(tree.get("/nodes/n1/api/v1/list").status, 200);
}

#[test]
fn nothing_is_changed_through_the_tree() {
    let tree = tree_with(Vec::new());
    let tcp = AgentAddress::Tcp(tree.head.tcp());
    for path in [
        "/nodes/n1/api/put",
        "/nodes/n1/api/annotation",
        "/nodes/head/api/put",
    ] {
        let refused = post(&tcp, path, &[], b"[]").expect("an answer");
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
    }
    for path in [
        "/nodes/n1/api/set_shutdown",
        "/nodes/n1/api/v1/participants",
    ] {
        assert_eq!(tree.get(path).status, 403, "{path}");
    }
    for path in [
        "/tree/select",
        "/nodes/n1/tree/select",
        "/nodes/n1//tree/select",
    ] {
        let refused = post(&tcp, path, &[("pegel-tree", "1")], b"").expect("an answer");
        assert!(
            matches!(refused.status, 403 | 404),
            "{path}: {}",
            refused.status
        );
    }
}

#[test]
fn rights_are_passed_on() {
    let server = TestServer::of_node("n1", None);
    let local = server.running().local_server();
    let ask = |method: &str, target: &str, is_owner: bool| {
        let request = TreeRequest {
            method: method.into(),
            target: target.into(),
            headers: vec![("authorization".into(), "Bearer x".into())],
            body: Default::default(),
            deadline: std::time::Duration::from_secs(10),
            is_owner,
        };
        server.runtime.block_on(async {
            let mut response = local.respond(request).await;
            let mut body = Vec::new();
            while let Some(part) = response.body.next_part().await {
                body.extend_from_slice(&part.expect("a part"));
            }
            (response.status, String::from_utf8_lossy(&body).into_owned())
        })
    };
    let (status, owner) = ask("GET", "/api/v1/processes", true);
    assert!(status == 200 && owner.contains("run --fast"), "{owner}");
    let (status, user) = ask("GET", "/api/v1/processes", false);
    assert!(status == 200 && !user.contains("run --fast"), "{user}");
    assert_eq!(ask("GET", "/api/set_shutdown", true).0, 403);
    assert_eq!(ask("PUT", "/api/v1/filters/x", true).0, 403);
    // A request of a parent goes no further by its path.
    let nested = format!("{}/status", "/nodes/n1".repeat(5000));
    for target in ["/nodes/n1/status", &*nested] {
        assert_eq!(ask("GET", target, true).0, 403, "{}", target.len());
        assert_eq!(ask("POST", target, true).0, 403, "{}", target.len());
    }
    assert_eq!(ask("DELETE", "/api/query", true).0, 403);
    assert_eq!(
        ask("POST", "/tree/select", true).0,
        403,
        "only with the mark of the tree"
    );
    assert_eq!(ask("GET", "no path", true).0, 400);
}

#[test]
fn streams_are_passed_on_and_poll_nodes() {
    let tree = tree_with(Vec::new());
    for path in [
        "/nodes/n1/api/v1/stream?match=node_load1&rate=10",
        "/api/v1/stream?match=node_load1&nodes=n1",
    ] {
        let mut stream = tree.head.connect();
        stream.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
        let first = stream.until("\n\n");
        assert!(first.contains("text/event-stream"), "{first}");
        let event = if first.contains("data: ") {
            first
        } else {
            stream.until("\n\n")
        };
        assert!(event.contains("node_load1"), "{event}");
        tree._below[1].push(MetricKind::Gauge, &[("node_load1", now(), 77.0)]);
        // On a busy machine an event of the value before may be on its way.
        let mut events = (0..20).map(|_| stream.until("\n\n"));
        assert!(events.any(|event| event.contains("77")), "{path}");
        tree._below[1].push(MetricKind::Gauge, &[("node_load1", now() + 1, 1.0)]);
    }
}

#[test]
fn annotations_of_all_nodes_are_found() {
    let tree = tree_with(Vec::new());
    let n2 = AgentAddress::Tcp(tree._below[2].tcp());
    let note = br#"{"startTime":1700000000,"description":"moved"}"#;
    let stored = post(&n2, "/api/annotation", &[], note).expect("an answer");
    assert_eq!(stored.status, 200, "{}", stored.text());
    let found = tree.get("/api/annotation?start_time=1700000000");
    assert_eq!(found.status, 200, "{}", found.text());
    assert_eq!(found.json()["description"], "moved");
    assert_eq!(found.json()["custom"]["host"], "n2");
    let marks = tree.json("/api/v1/marks?start=1699999999&end=1700000001");
    assert_eq!(marks["marks"][0]["labels"], json!({"host": "n2"}));
}
