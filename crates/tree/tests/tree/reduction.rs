//! Sums over nodes: exact, also after restarts, moves and outages.

use std::thread::sleep;
use std::time::Duration;

use pegel_metric::{Clock, MetricKind, SystemClock};
use pegel_testkit::eventually_within;

use crate::support::{INTERVAL_MS, PATIENCE, TestAgent, accepting, reporting};

fn counting(node: &str, parents: &[std::net::SocketAddr], hits: f64) -> TestAgent {
    let mut agent = TestAgent::new(node);
    agent.put("hits", MetricKind::Counter, hits);
    agent.run(reporting(parents));
    agent
}

#[test]
fn three_children_are_summed_also_after_the_parent_restarted() {
    let mut head = TestAgent::start("head", accepting());
    let address = head.address();
    let _children = [("a", 1000.0), ("b", 500.0), ("c", 7.0)]
        .map(|(node, hits)| counting(node, &[address], hits));
    head.wait_for_last("hits:sum", 1507.0);
    head.wait_for_up(&["a", "b", "c"]);

    head.stop();
    sleep(Duration::from_millis(1500));
    let mut again = accepting();
    again.accept = Some(address.to_string().parse().expect("an address"));
    head.run(again);
    head.wait_for_next("hits:sum", 1507.0);
    // The values of the time in which the parent was down, and those of the time in which only some
    // children were back, are computed again.
    eventually_within(PATIENCE, "no gap and no smaller sum", || {
        let samples = head.samples("hits:sum");
        let mut settled = samples.iter().skip_while(|(_, value)| *value != 1507.0);
        let wrong = settled.find(|(_, value)| *value != 1507.0);
        let gap = samples
            .windows(2)
            .find(|pair| pair[1].0 - pair[0].0 != INTERVAL_MS);
        match (wrong, gap) {
            (None, None) => Ok(()),
            found => Err((format!("{found:?}"), head.nodes().tree_json().to_string())),
        }
    });
}

#[test]
fn a_child_that_moved_counts_at_its_new_parent_only() {
    let mut one = TestAgent::start("one", accepting());
    let two = TestAgent::start("two", accepting());
    let _a = counting("a", &[one.address(), two.address()], 1000.0);
    let _b = counting("b", &[two.address()], 507.0);
    one.wait_for_last("hits:sum", 1000.0);
    two.wait_for_last("hits:sum", 507.0);
    one.stop();
    two.wait_for_next("hits:sum", 1507.0);
    two.wait_for_up(&["a", "b"]);
}

#[test]
fn two_levels_are_summed_and_listed() {
    let root = TestAgent::start("root", accepting());
    let mut middle = TestAgent::new("middle");
    middle.put("hits", MetricKind::Counter, 1.0);
    let mut settings = reporting(&[root.address()]);
    settings.accept = accepting().accept;
    middle.run(settings);
    let _leaves =
        [("a", 1000.0), ("b", 500.0)].map(|(node, hits)| counting(node, &[middle.address()], hits));
    let c = counting("c", &[root.address()], 6.0);
    c.put("load", MetricKind::Gauge, 4.0);
    root.wait_for_last("hits:sum", 1507.0);
    root.wait_for_last("load:max", 4.0);
    root.wait_for_up(&["middle", "a", "b", "c"]);
    let tree = root.nodes().tree_json();
    assert_eq!(
        (&tree["nodes"], &tree["levels"]),
        (&5.into(), &3.into()),
        "{tree}"
    );
    let children = tree["tree"]["children"].as_array().expect("children");
    let names: Vec<_> = children
        .iter()
        .map(|child| child["node"].as_str())
        .collect();
    assert_eq!(names, [Some("c"), Some("middle")]);
    assert_eq!(children[1]["children"][1]["node"], "b");
}

#[test]
fn what_was_missed_during_an_outage_is_filled() {
    let root = TestAgent::start("root", accepting());
    let mut middle = TestAgent::new("middle");
    let mut settings = reporting(&[root.address()]);
    settings.accept = accepting().accept;
    middle.run(settings);
    let mut a = counting("a", &[middle.address()], 1000.0);
    let _b = counting("b", &[root.address()], 507.0);
    root.wait_for_last("hits:sum", 1507.0);
    let lost_at = SystemClock.utc();
    a.stop();
    root.wait_for_next("hits:sum", 507.0);
    let back_at = SystemClock.utc();
    a.run(reporting(&[middle.address()]));
    root.wait_for_next("hits:sum", 1507.0);
    eventually_within(PATIENCE, "the gap is filled at both levels", || {
        for (agent, sum) in [(&root, 1507.0), (&middle, 1000.0)] {
            let samples = agent.samples("hits:sum");
            let during = samples
                .iter()
                .filter(|(time, _)| (lost_at..=back_at).contains(time));
            let expected = (back_at - lost_at) / INTERVAL_MS;
            let right = during.filter(|(_, value)| *value == sum).count() as i64;
            if right < expected - 1 {
                let json = agent.nodes().tree_json().to_string();
                return Err((agent.node.clone(), right, expected, json));
            }
        }
        Ok(())
    });
}

#[test]
fn series_of_a_parents_own_programs_leave_room_to_its_children() {
    let mut head = TestAgent::new("head");
    // 1600 / 2 / 8: a hundred series are reduced, half of them at most of one sender.
    head.series_max = 1600;
    for number in 0..300 {
        head.put(&format!("many{number}"), MetricKind::Gauge, 1.0);
    }
    head.run(accepting());
    head.wait_for_problem("series", "are not reduced");
    let _child = counting("a", &[head.address()], 7.0);
    head.wait_for_last("hits:sum", 7.0);
    let tree = head.nodes().tree_json();
    let reduced = tree["reduced_series"].as_u64().expect("a number");
    // Those of the past are one more sender.
    assert!((50..=76).contains(&reduced), "{tree}");
}
