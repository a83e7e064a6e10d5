//! Rules on a parent see the series of all nodes, and a node that is away resolves no alert.

use std::fs;

use pegel_testkit::{TempDir, eventually};
use serde_json::Value;

use crate::tree_agent::{TreeAgent, loopback_address};

const RULES: &str = r#"
groups:
  - name: nodes
    interval: 1s
    rules:
      - {record: "node:hits:double", expr: hits_total * 2}
      - {record: "hits:all", expr: sum(hits_total)}
      - {alert: ManyHits, expr: hits_total > 5}
      - {alert: ManyHitsTogether, expr: sum(hits_total) > 12}
"#;

/// Returns the names and hosts of firing alerts, sorted.
fn firing(head: &TreeAgent) -> Vec<(String, String)> {
    let alerts = head.get("/api/v1/alerts").json();
    let alerts = alerts["data"]["alerts"].as_array().expect("a list").iter();
    let alerts = alerts.filter(|alert| alert["state"] == "firing");
    let label = |alert: &Value, name: &str| {
        let label = alert["labels"][name].as_str();
        label.unwrap_or_default().to_owned()
    };
    let mut found: Vec<_> = alerts
        .map(|alert| (label(alert, "alertname"), label(alert, "host")))
        .collect();
    found.sort();
    found
}

/// Returns the warnings of all rules.
fn warnings(head: &TreeAgent) -> Vec<String> {
    let groups = head.get("/api/v1/rules").json();
    let groups = groups["data"]["groups"].as_array().expect("a list").clone();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("a list"));
    let warnings = rules.filter_map(|rule| Some(rule["warnings"].as_array()?[0].to_string()));
    warnings.collect()
}

#[test]
fn rules_of_a_parent_see_all_nodes_and_a_lost_node_resolves_no_alert() {
    let files = TempDir::new();
    fs::write(files.join("nodes.yml"), RULES).expect("written");
    let address = loopback_address();
    let rules = files.join("nodes.yml").display().to_string();
    let yaml = format!("tree: {{accept: \"{address}\"}}\nrules: [\"{rules}\"]\n");
    let mut head = TreeAgent::with("head", &yaml);
    head.start();
    let mut nodes = [("a", 10), ("b", 3)].map(|(name, count)| {
        let node = TreeAgent::child(name, &[address]);
        let counter = node.counter("hits_total");
        counter.add(count);
        (node, counter)
    });
    let expected = [("ManyHits", "a"), ("ManyHitsTogether", "")]
        .map(|(name, host)| (name.to_owned(), host.to_owned()));
    eventually("the alerts fire", || {
        let found = firing(&head);
        (found == expected).then_some(()).ok_or(found)
    });
    head.evaluates("node:hits:double{host=\"a\"}", 20.0);
    head.evaluates("node:hits:double{host=\"b\"}", 6.0);
    head.evaluates("hits:all{host=\"head\"}", 13.0);
    eventually("no node is missing", || {
        let found = warnings(&head);
        found.is_empty().then_some(()).ok_or(found)
    });

    // Without the node, neither expression holds.
    nodes[0].0.kill();
    eventually("the lost node is named", || {
        let found = warnings(&head);
        let is_named = found
            .iter()
            .any(|warning| warning.contains("no answer from a"));
        is_named.then_some(()).ok_or(found)
    });
    eventually("incomplete evaluations are counted", || {
        let metrics = head.get("/metrics");
        let name = "pegel_rule_evaluations_incomplete_total{";
        let line = metrics
            .text()
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned);
        let count = line
            .as_deref()
            .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        count.filter(|count| *count >= 8.0).map(drop).ok_or(line)
    });
    assert_eq!(firing(&head), expected);
    // A node that is not connected is not part of a sum.
    head.evaluates("hits:all{host=\"head\"}", 3.0);

    // Alerts are not resolved by a restart of the parent either.
    head.kill();
    head.start();
    eventually("the lost node is named again", || {
        let found = warnings(&head);
        let is_named = found
            .iter()
            .any(|warning| warning.contains("no answer from a"));
        is_named.then_some(()).ok_or(found)
    });
    nodes[0].0.start();
    eventually("the alerts fire again", || {
        let found = (firing(&head), warnings(&head));
        (found.0 == expected && found.1.is_empty())
            .then_some(())
            .ok_or(found)
    });
    head.evaluates("hits:all{host=\"head\"}", 13.0);
}
