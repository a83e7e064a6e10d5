//! A parent's APIs see all nodes below it: PromQL, OpenTSDB, pages of nodes, and the commands.

use pegel_testkit::{eventually, get, now_seconds, post};
use serde_json::{Value, json};

use crate::tree_agent::TreeAgent;

/// A root, a middle node, and two leaves below it which counted 10 and 20.
struct QueryTree {
    root: TreeAgent,
    leaves: [TreeAgent; 2],
    _middle: TreeAgent,
}

impl QueryTree {
    fn start() -> QueryTree {
        let (root, root_address) = TreeAgent::head("root");
        let (middle, address) = TreeAgent::middle("mid", &[root_address]);
        let leaves = ["a", "b"].map(|name| TreeAgent::child(name, &[address]));
        for (leaf, count) in leaves.iter().zip([10, 20]) {
            leaf.counter("hits_total").add(count);
        }
        root.all_up(&["a", "b", "mid", "root"]);
        root.shows("match=hits_total", &[("hits_total", 30.0)]);
        QueryTree {
            root,
            leaves,
            _middle: middle,
        }
    }
}

fn hosts(result: &[(Value, f64)]) -> Vec<(String, f64)> {
    let host = |labels: &Value| labels["host"].as_str().unwrap_or("none").to_owned();
    let mut hosts: Vec<_> = result
        .iter()
        .map(|(labels, value)| (host(labels), *value))
        .collect();
    hosts.sort_by(|a, b| a.0.cmp(&b.0));
    hosts
}

#[test]
fn promql_sees_one_series_per_node() {
    let tree = QueryTree::start();
    tree.root.evaluates("sum(hits_total)", 30.0);
    tree.root
        .evaluates("count(count by (host) (node_load1))", 4.0);
    let expected = [("a".to_owned(), 10.0), ("b".to_owned(), 20.0)];
    assert_eq!(hosts(&tree.root.promql("hits_total")), expected);
    assert_eq!(
        hosts(&tree.root.promql("hits_total{host=\"b\"}")),
        expected[1..]
    );
    assert_eq!(
        hosts(&tree.root.promql("hits_total{host=~\"a|x\"}")),
        expected[..1]
    );
    assert_eq!(
        hosts(&tree.root.promql("hits_total{host!=\"a\"}")),
        expected[1..]
    );
    assert_eq!(
        hosts(&tree.root.promql("topk(1, hits_total)")),
        expected[1..]
    );
    tree.root.evaluates("avg(hits_total)", 15.0);
    tree.root
        .evaluates("max(hits_total) - min(hits_total)", 10.0);
    tree.root.evaluates("quantile(0.5, hits_total)", 15.0);
    let path = "/api/v1/label/host/values";
    assert_eq!(
        tree.root.get(path).json()["data"],
        json!(["a", "b", "mid", "root"])
    );
    let answer = tree.root.get("/api/v1/series?match[]=hits_total").json();
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2), "{answer}");
    // Nothing is doubled: the parents hold reductions of their own.
    let doubled = tree
        .root
        .promql("count by (__name__, host, cpu, mode) (node_cpu_seconds_total) > 1");
    assert_eq!(doubled, []);
    tree.root.reduces("hits_total:sum", 30.0);
    tree.root.evaluates("hits_total:sum{host=\"mid\"}", 30.0);
    let range = "/api/v1/query_range?query=sum(rate(node_cpu_seconds_total[5s]))&step=1s";
    let now = now_seconds();
    eventually("a range of rates over all nodes", || {
        let path = format!("{range}&start={}&end={now}", now - 5);
        let answer = tree.root.get(&path).json();
        let values = answer["data"]["result"][0]["values"]
            .as_array()
            .map_or(0, Vec::len);
        (values >= 1).then_some(()).ok_or(answer)
    });
}

#[test]
fn opentsdb_sees_one_series_per_node() {
    let tree = QueryTree::start();
    let query = |filter: &str| {
        let path = format!("/api/query?start=1m-ago&m=sum:hits_total{filter}");
        let answer = tree.root.get(&path);
        assert_eq!(answer.header("pegel-nodes"), Some("answered=4 expected=4"));
        answer.json().as_array().expect("a list").clone()
    };
    let last = |line: &Value| {
        let points = line["dps"].as_object().expect("points");
        points.values().next_back().and_then(Value::as_f64)
    };
    eventually("the sum over nodes", || {
        let lines = query("");
        let is_sum = lines.len() == 1 && last(&lines[0]) == Some(30.0);
        is_sum.then_some(()).ok_or(lines)
    });
    let mut each = query("%7Bhost=*%7D");
    each.sort_by_key(|line| line["tags"]["host"].to_string());
    assert_eq!(each.len(), 2, "{each:?}");
    assert_eq!((last(&each[0]), last(&each[1])), (Some(10.0), Some(20.0)));
    let one = query("%7Bhost=b%7D");
    assert_eq!((one.len(), last(&one[0])), (1, Some(20.0)), "{one:?}");
    let names = tree.root.get("/api/suggest?type=metrics&q=hits").json();
    assert!(
        names
            .as_array()
            .is_some_and(|names| names.contains(&json!("hits_total"))),
        "{names}"
    );
    let tags = tree.root.get("/api/suggest?type=tagv&q=mi").json();
    assert!(tags.to_string().contains("\"mid\""), "{tags}");
    let found = tree.root.get("/api/search/lookup?m=hits_total").json();
    assert_eq!(found["totalResults"], 2, "{found}");
    let last = tree
        .root
        .get("/api/query/last?timeseries=hits_total&back_scan=1")
        .json();
    assert_eq!(last.as_array().map(Vec::len), Some(2), "{last}");
    let now = now_seconds();
    let body = format!(
        r#"{{"time":{{"start":{},"end":{},"aggregator":"sum"}},"metrics":[{{"id":"a","metric":"hits_total"}}],"expressions":[{{"id":"e","expr":"a * 3"}}]}}"#,
        now - 60,
        now
    );
    let answer = post(&tree.root.unix(), "/api/query/exp", &[], body.as_bytes()).expect("answered");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("pegel-nodes"),
        Some("answered=4 expected=4"),
        "{}",
        answer.text()
    );
    let rows = answer.json()["outputs"][0]["dps"].clone();
    let is_sum = |row: &Value| row[1].as_f64() == Some(90.0);
    let has_sum = rows.as_array().is_some_and(|rows| rows.iter().any(is_sum));
    assert!(has_sum, "{rows}");
    let path = "/api/query/gexp?start=1m-ago&exp=scale(sum:hits_total,2)";
    let scaled = tree.root.get(path).json();
    assert!(scaled.to_string().contains("60"), "{scaled}");
}

#[test]
fn pages_of_nodes_are_reached_through_the_tree() {
    let tree = QueryTree::start();
    let page = tree.root.get("/nodes/a/");
    assert_eq!(page.text(), tree.leaves[0].get("/").text());
    let values = tree
        .root
        .get("/nodes/b/api/v1/values?match=hits_total")
        .json();
    assert_eq!(values[0]["value"], 20.0, "{values}");
    let metrics = tree.root.get("/nodes/a/metrics");
    assert!(
        metrics.text().contains("\nhits_total 10\n"),
        "{}",
        metrics.text()
    );
    let status = tree.root.get("/nodes/a/status").json();
    assert_eq!(status["node"], "a", "{status}");
    let unknown = get(&tree.root.unix(), "/nodes/missing/").expect("an answer");
    assert_eq!(unknown.status, 404, "{}", unknown.text());
    assert!(unknown.text().contains("missing"), "{}", unknown.text());
    // Never a write.
    let body = br#"{"metric":"written","timestamp":1,"value":1,"tags":{"x":"y"}}"#;
    let headers = [("Content-Type", "application/json")];
    let written = post(&tree.root.unix(), "/nodes/a/api/put", &headers, body).expect("an answer");
    assert!(
        written.status >= 400,
        "{} {}",
        written.status,
        written.text()
    );
}

#[test]
fn a_write_to_the_head_is_stored_at_the_head() {
    let tree = QueryTree::start();
    let point =
        json!({"metric": "written", "timestamp": now_seconds(), "value": 4, "tags": {"x": "y"}});
    let headers = [("Content-Type", "application/json")];
    let answer = post(
        &tree.root.unix(),
        "/api/put",
        &headers,
        point.to_string().as_bytes(),
    );
    let answer = answer.expect("an answer");
    assert!(answer.status < 300, "{}", answer.text());
    eventually("the point is at the root only", || {
        let found = hosts(&tree.root.promql("written"));
        (found == [("root".to_owned(), 4.0)])
            .then_some(())
            .ok_or(found)
    });
    for leaf in &tree.leaves {
        assert_eq!(leaf.promql("written"), []);
    }
}

#[test]
fn commands_show_the_tree() {
    let tree = QueryTree::start();
    let run = |args: &[&str]| {
        let printed = tree.root.agent().client(args);
        assert_eq!(printed.code(), Some(0), "{args:?}: {printed}");
        printed.stdout
    };
    let nodes = run(&["nodes"]);
    for name in ["a", "b", "mid", "root"] {
        assert!(
            nodes
                .lines()
                .any(|line| line.contains(name) && line.contains("up")),
            "{nodes}"
        );
    }
    let shape = run(&["tree"]);
    let depth = |name: &str| {
        let line = shape
            .lines()
            .find(|line| line.split_whitespace().any(|word| word == name));
        let line = line.unwrap_or_else(|| panic!("{name} in {shape}"));
        line.find(name).expect("the name is in its line")
    };
    assert!(
        depth("root") < depth("mid") && depth("mid") < depth("a"),
        "{shape}"
    );
    assert!(run(&["list", "--match", "hits_total"]).contains("hits_total"));
    let values = run(&["values", "--match", "hits_total"]);
    assert!(values.contains("30"), "{values}");
    let json = run(&["nodes", "-f", "json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(json.to_string().contains("\"mid\""), "{json}");
}

#[test]
fn a_single_agent_lists_itself() {
    let mut alone = TreeAgent::with("alone", "");
    alone.start();
    alone.all_up(&["alone"]);
    let answer = alone.get("/api/v1/values?match=node_load1");
    assert_eq!(answer.json().as_array().map(Vec::len), Some(1));
    let answer = alone.promql("node_load1");
    assert_eq!(answer.len(), 1, "{answer:?}");
}
