//! Sums of counters over nodes: never too large, whichever agent was killed and wherever children
//! moved.

use std::net::SocketAddr;
use std::time::Duration;

use pegel_lane::Counter;
use pegel_testkit::{eventually, eventually_within};
use rustix::process::Signal;

use crate::tree_agent::TreeAgent;

const COUNTS: [(&str, u64); 3] = [("a", 1000), ("b", 500), ("c", 7)];
const TOTAL: f64 = 1507.0;

/// Three children that counted 1000, 500 and 7.
struct CountingChildren {
    nodes: Vec<TreeAgent>,
    counters: Vec<Counter>,
}

impl CountingChildren {
    fn start(parents: &[SocketAddr]) -> CountingChildren {
        let nodes = COUNTS.map(|(name, _)| TreeAgent::child(name, parents));
        let nodes = Vec::from(nodes);
        let counters = nodes.iter().zip(COUNTS).map(|(node, (_, count))| {
            let counter = node.counter("hits_total");
            counter.add(count);
            counter
        });
        let counters = counters.collect();
        CountingChildren { nodes, counters }
    }
}

/// Asserts that the stored sums never exceeded the total, nor decreased from one reduction to the
/// next after all children were there.
fn assert_never_above(head: &TreeAgent, total: f64) {
    let stored = head.stored("hits_total:sum");
    let above: Vec<_> = stored.iter().filter(|(_, sum)| *sum > total).collect();
    assert!(above.is_empty(), "more than was counted: {above:?}");
    let times = stored.windows(2).all(|pair| pair[0].0 < pair[1].0);
    assert!(times, "{stored:?}");
}

#[test]
fn counters_are_summed_over_three_children() {
    let (head, address) = TreeAgent::head("head");
    let children = CountingChildren::start(&[address]);
    head.all_up(&["a", "b", "c", "head"]);
    head.shows("match=hits_total", &[("hits_total", TOTAL)]);
    let each = [
        ("hits_total{host=\"a\"}", 1000.0),
        ("hits_total{host=\"b\"}", 500.0),
        ("hits_total{host=\"c\"}", 7.0),
    ];
    head.shows("match=hits_total&nodes=each", &each);
    head.shows("match=hits_total&nodes=b,c", &each[1..]);
    let printed =
        head.agent()
            .client(&["values", "--match", "hits_total", "--per-node", "-f", "csv"]);
    assert_eq!(printed.code(), Some(0), "{printed}");
    for (name, count) in COUNTS {
        let is_line = |line: &str| line.contains(name) && line.contains(&count.to_string());
        assert!(printed.stdout.lines().any(is_line), "{name}: {printed}");
    }
    let printed = head.agent().client(&["get", "hits_total", "-f", "json"]);
    assert!(printed.stdout.contains("1507"), "{printed}");
    // The reduction in the head's own store, tick by tick.
    head.reduces("hits_total:sum", TOTAL);
    head.reduces("hits_total:rate:count", 3.0);
    children.counters[2].add(1);
    head.shows("match=hits_total", &[("hits_total", TOTAL + 1.0)]);
    head.reduces("hits_total:sum", TOTAL + 1.0);
    assert_never_above(&head, TOTAL + 1.0);
    head.agent().assert_conserved();
}

#[test]
fn sums_are_exact_after_kill_9_of_the_parent() {
    let (mut head, address) = TreeAgent::head("head");
    let children = CountingChildren::start(&[address]);
    head.reduces("hits_total:sum", TOTAL);
    for round in 1..=3 {
        head.kill();
        // Counted while there is no parent.
        children.counters[0].add(1);
        head.start();
        let total = TOTAL + f64::from(round);
        head.shows("match=hits_total", &[("hits_total", total)]);
        head.reduces("hits_total:sum", total);
        head.all_up(&["a", "b", "c", "head"]);
        assert_never_above(&head, total);
    }
}

#[test]
fn sums_are_exact_after_kill_9_of_a_child() {
    let (head, address) = TreeAgent::head("head");
    let mut children = CountingChildren::start(&[address]);
    head.reduces("hits_total:sum", TOTAL);
    children.nodes[0].kill();
    // Current values are those of the nodes that answer, and the response says which did not.
    eventually("the lost node is named", || {
        let answer = head.get("/api/v1/values?match=hits_total");
        let nodes = answer.header("pegel-nodes").unwrap_or_default().to_owned();
        let sum = answer.json()[0]["value"].clone();
        let is_named = nodes.contains("late=a") && nodes.contains("answered=3 expected=4");
        (is_named && sum == 507.0).then_some(()).ok_or((nodes, sum))
    });
    children.nodes[0].start();
    head.all_up(&["a", "b", "c", "head"]);
    head.shows("match=hits_total", &[("hits_total", TOTAL)]);
    head.reduces("hits_total:sum", TOTAL);
    assert_never_above(&head, TOTAL);
}

#[test]
fn a_child_that_moves_to_another_parent_is_counted_once() {
    let (root, root_address) = TreeAgent::head("root");
    let (mut first, first_address) = TreeAgent::middle("m1", &[root_address]);
    let (second, second_address) = TreeAgent::middle("m2", &[root_address]);
    let children = CountingChildren::start(&[first_address, second_address]);
    let own = second.counter("hits_total");
    let names = ["a", "b", "c", "m1", "m2", "root"];
    root.all_up(&names);
    root.shows("match=hits_total", &[("hits_total", TOTAL)]);
    root.reduces("hits_total:sum", TOTAL);
    first.shows("match=hits_total", &[("hits_total", TOTAL)]);

    first.kill();
    // A parent counts as a node, too.
    own.add(3);
    children.counters[1].add(1);
    let total = TOTAL + 4.0;
    root.shows("match=hits_total", &[("hits_total", total)]);
    second.shows("match=hits_total", &[("hits_total", total)]);
    root.reduces("hits_total:sum", total);
    root.evaluates("count(hits_total)", 4.0);

    first.start();
    root.all_up(&names);
    root.shows("match=hits_total", &[("hits_total", total)]);
    root.reduces("hits_total:sum", total);
    root.evaluates("count(hits_total)", 4.0);
    assert_never_above(&root, total);
}

#[test]
fn a_child_that_its_old_parent_still_holds_is_counted_once() {
    let (root, root_address) = TreeAgent::head("root");
    let (first, first_address) = TreeAgent::middle("m1", &[root_address]);
    let (_second, second_address) = TreeAgent::middle("m2", &[root_address]);
    let children = CountingChildren::start(&[first_address, second_address]);
    root.all_up(&["a", "b", "c", "m1", "m2", "root"]);
    root.reduces("hits_total:sum", TOTAL);
    // The children leave a parent that hangs; it holds their connections and values.
    first.agent().freeze();
    // A hung parent is noticed by its silence.
    eventually_within(Duration::from_secs(60), "the children move", || {
        let nodes = root.get("/api/v1/nodes").json();
        let moved = nodes["nodes"].as_array().expect("a list").iter();
        let moved = moved.filter(|node| node["parent"] == "m2" && node["state"] == "up");
        let moved = moved.count();
        (moved == 3).then_some(()).ok_or(nodes)
    });
    root.shows("match=hits_total", &[("hits_total", TOTAL)]);
    first.agent().signal(Signal::CONT);
    children.counters[0].add(2);
    root.all_up(&["a", "b", "c", "m1", "m2", "root"]);
    root.shows("match=hits_total", &[("hits_total", TOTAL + 2.0)]);
    root.reduces("hits_total:sum", TOTAL + 2.0);
    root.evaluates("count(hits_total)", 3.0);
    assert_never_above(&root, TOTAL + 2.0);
}

#[test]
fn gaps_are_filled_after_the_parent_was_away() {
    let (mut head, address) = TreeAgent::head("head");
    let children = CountingChildren::start(&[address]);
    head.reduces("hits_total:sum", TOTAL);
    head.kill();
    std::thread::sleep(Duration::from_secs(4));
    head.start();
    children.counters[0].add(1);
    head.reduces("hits_total:sum", TOTAL + 1.0);
    eventually("every tick has its sum", || {
        let stored = head.stored("hits_total:sum");
        let from = stored
            .iter()
            .position(|(_, sum)| *sum == TOTAL)
            .unwrap_or(0);
        let gaps = stored[from..]
            .windows(2)
            .filter(|pair| pair[1].0 - pair[0].0 != 1000);
        let low = stored[from..]
            .iter()
            .filter(|(_, sum)| *sum < TOTAL)
            .count();
        let gaps = gaps.count();
        (gaps == 0 && low == 0).then_some(()).ok_or(stored)
    });
}
