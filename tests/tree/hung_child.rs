//! A child that hangs costs a query at most its deadline, and the answer names it.

use std::time::{Duration, Instant};

use pegel_testkit::{TestResponse, eventually, get, now_seconds};
use rustix::process::Signal;

use crate::tree_agent::TreeAgent;

/// The deadline of fan-outs, and time for a loaded machine.
const ANSWER_MAX: Duration = Duration::from_secs(5 + 3);

/// Sends a request; returns the response and the time that it took.
#[track_caller]
fn timed(node: &TreeAgent, path: &str) -> (TestResponse, Duration) {
    let started = Instant::now();
    let answer = get(&node.unix(), path).unwrap_or_else(|e| panic!("{path}: {e}"));
    (answer, started.elapsed())
}

#[test]
fn a_hung_child_delays_queries_no_longer_than_the_deadline() {
    let (head, address) = TreeAgent::head("head");
    let children = ["a", "b", "c"].map(|name| TreeAgent::child(name, &[address]));
    let counters = children.each_ref().map(|node| node.counter("hits_total"));
    counters.iter().for_each(|counter| counter.add(10));
    head.evaluates("sum(hits_total)", 30.0);
    head.reduces("hits_total:sum", 30.0);
    let answer = head.get("/api/v1/values?match=hits_total");
    assert_eq!(answer.header("pegel-nodes"), Some("answered=4 expected=4"));

    children[2].agent().freeze();
    let now = now_seconds();
    let range = format!(
        "/api/v1/query_range?query=hits_total&start={}&end={now}&step=1s",
        now - 5
    );
    for path in [
        "/api/v1/values?match=hits_total",
        "/api/v1/list?match=hits_total",
        "/api/v1/range?match=hits_total&start=-1m",
        "/api/v1/query?query=hits_total",
        &range,
        "/api/v1/labels",
        "/api/query?start=1m-ago&m=sum:hits_total",
        "/api/query/last?timeseries=hits_total&back_scan=1&resolve=true",
        "/api/suggest?type=metrics&q=hits",
        "/api/search/lookup?m=hits_total",
        "/metrics?nodes=each",
    ] {
        let (answer, took) = timed(&head, path);
        assert!(took < ANSWER_MAX, "{path} took {took:?}");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let nodes = answer.header("pegel-nodes");
        assert_eq!(nodes, Some("answered=3 expected=4 late=c"), "{path}");
        assert!(
            answer.text().contains("hits_total") || path.ends_with("labels"),
            "{path}"
        );
    }
    let answer = head.promql_response("sum(hits_total)").json();
    assert_eq!(answer["data"]["result"][0]["value"][1], "20");
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("c"), "{answer}");
    // Nor do the others wait for it: their ticks are reduced, and what they count is seen.
    counters[0].add(1);
    head.reduces("hits_total:rate:count", 2.0);
    let (_, took) = timed(&head, "/nodes/a/api/v1/values?match=hits_total");
    assert!(took < Duration::from_secs(3), "a sibling took {took:?}");
    eventually("the hung child is listed", || {
        let states = head.node_states();
        let is_late =
            |node: &(String, String)| node.0 == "c" && (node.1 == "late" || node.1 == "lost");
        states.iter().any(is_late).then_some(()).ok_or(states)
    });

    children[2].agent().signal(Signal::CONT);
    head.all_up(&["a", "b", "c", "head"]);
    head.shows("match=hits_total", &[("hits_total", 31.0)]);
    head.reduces("hits_total:sum", 31.0);
}

#[test]
fn a_query_with_its_own_timeout_ends_by_it() {
    let (head, address) = TreeAgent::head("head");
    let children = ["a", "b"].map(|name| TreeAgent::child(name, &[address]));
    let counters = children.each_ref().map(|node| node.counter("hits_total"));
    counters.iter().for_each(|counter| counter.add(10));
    head.evaluates("sum(hits_total)", 20.0);
    children[1].agent().freeze();
    let (answer, took) = timed(&head, "/api/v1/query?query=sum(hits_total)&timeout=1s");
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    let is_partial = answer.status == 200 && answer.text().contains("\"10\"");
    assert!(is_partial || answer.status == 503, "{}", answer.text());
    children[1].agent().signal(Signal::CONT);
}

#[test]
fn a_hung_grandchild_is_named_at_the_root() {
    let (root, root_address) = TreeAgent::head("root");
    let (_middle, address) = TreeAgent::middle("m", &[root_address]);
    let children = ["a", "b"].map(|name| TreeAgent::child(name, &[address]));
    let counters = children.each_ref().map(|node| node.counter("hits_total"));
    counters.iter().for_each(|counter| counter.add(10));
    root.all_up(&["a", "b", "m", "root"]);
    root.evaluates("sum(hits_total)", 20.0);
    children[0].agent().freeze();
    for path in [
        "/api/v1/values?match=hits_total",
        "/api/v1/query?query=sum(hits_total)",
        "/api/query?start=1m-ago&m=sum:hits_total",
    ] {
        let (answer, took) = timed(&root, path);
        assert!(took < ANSWER_MAX, "{path} took {took:?}");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let nodes = answer.header("pegel-nodes");
        let expected = Some("answered=3 expected=4 late=a");
        assert_eq!(nodes, expected, "{path}, {took:?}: {}", answer.text());
    }
    children[0].agent().signal(Signal::CONT);
}
