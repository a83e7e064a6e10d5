//! Groups over series in memory: states of alerts, series, limits, restarts.

use std::path::Path;

use pegel_metric::Millis;
use pegel_query::promql::{
    LabelSet, PromqlError, PromqlLimits, Selection, SeriesSampleVisitor, SeriesSource,
};

use crate::alert::DueAlert;
use crate::expression::evaluate;
use crate::group::RuleGroup;
use crate::rule_file::RuleFile;
use crate::rule_state::EvaluationContext;
use crate::storage::{MissingNode, RuleNodeSource, RuleSample, RuleStorage};
use crate::unit_test::memory_storage::MemoryStorage;

/// A group over its storage, evaluated every ten seconds.
struct Fixture {
    storage: MemoryStorage,
    group: RuleGroup,
    limits: PromqlLimits,
    /// Nodes of a tree that do not answer.
    missing: Vec<MissingNode>,
}

/// The storage as the series of all nodes of a tree, of which some do not answer.
struct IncompleteNodes<'a>(&'a MemoryStorage, &'a [MissingNode]);

impl SeriesSource for IncompleteNodes<'_> {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.0.select(selection, &mut |labels, samples| {
            let host = labels.get("host");
            match self.1.iter().any(|node| node.name == host) {
                true => Ok(()),
                false => visit(labels, samples),
            }
        })
    }
}

impl RuleNodeSource for IncompleteNodes<'_> {
    fn missing(&self) -> Vec<MissingNode> {
        self.1.to_vec()
    }
}

fn new_group(rules: &str) -> RuleGroup {
    let text = format!("groups:\n- name: g\n  interval: 10s\n{rules}");
    let mut file = RuleFile::parse(Path::new("r.yml"), &text).expect("valid");
    let mut group = RuleGroup::new(file.groups.remove(0), 60_000);
    for rule in &mut group.rules {
        rule.has_unique_name = true;
    }
    group
}

impl Fixture {
    fn new(rules: &str) -> Fixture {
        Fixture {
            storage: MemoryStorage::default(),
            group: new_group(rules),
            limits: PromqlLimits::default(),
            missing: Vec::new(),
        }
    }

    /// Stores `x{host=…}` and evaluates while nodes are missing, which are connected or not.
    fn step_nodes(
        &mut self,
        seconds: Millis,
        values: &[(&str, f64)],
        missing: &[(&str, bool)],
    ) -> Vec<String> {
        for (host, value) in values {
            let sample = RuleSample {
                labels: LabelSet::new([("__name__", "x"), ("host", host)]),
                time: seconds * 1_000,
                value: *value,
            };
            self.storage.append(&[sample]).expect("in order");
        }
        let missing = missing.iter().map(|(name, is_connected)| MissingNode {
            name: (*name).to_owned(),
            is_connected: *is_connected,
        });
        self.missing = missing.collect();
        self.evaluate(seconds);
        let rules = self.group.rules.iter();
        let alerts = rules.flat_map(|rule| rule.alerts.values());
        alerts
            .map(|alert| format!("{} {}", alert.labels.get("host"), alert.state.as_str()))
            .collect()
    }

    /// Stores `x{l="a"}`.
    fn set(&self, seconds: Millis, value: f64) {
        let sample = RuleSample {
            labels: LabelSet::new([("__name__", "x"), ("l", "a")]),
            time: seconds * 1_000,
            value,
        };
        self.storage.append(&[sample]).expect("in order");
    }

    fn evaluate(&mut self, seconds: Millis) -> Vec<DueAlert> {
        let nodes = IncompleteNodes(&self.storage, &self.missing);
        let context = EvaluationContext {
            storage: &self.storage,
            nodes: Some(&nodes),
            limits: self.limits.clone(),
            external_labels: &LabelSet::empty(),
            external_url: "",
        };
        let outcome = self.group.evaluate(seconds * 1_000, (60_000, 0), &context);
        outcome.due
    }

    /// Sets the value and evaluates; returns the states of all alerts.
    fn step(&mut self, seconds: Millis, value: f64) -> Vec<&'static str> {
        self.set(seconds, value);
        self.evaluate(seconds);
        let rules = self.group.rules.iter();
        let alerts = rules.flat_map(|rule| rule.alerts.values());
        alerts.map(|alert| alert.state.as_str()).collect()
    }

    /// Replaces the group by a new one, as a restart does.
    fn restart(&mut self, rules: &str) {
        self.group = new_group(rules);
    }

    fn query(&self, expression: &str, seconds: Millis) -> Vec<String> {
        let samples = evaluate(&self.storage, expression, seconds * 1_000, &self.limits);
        let samples = samples.expect("valid").into_iter();
        samples
            .map(|sample| format!("{} {}", sample.labels, sample.value))
            .collect()
    }

    fn error(&self, rule: usize) -> &str {
        self.group.rules[rule].last_error.as_deref().unwrap_or("")
    }
}

const HOLD: &str = "  rules:\n  - {alert: A, expr: x > 0, for: 20s}\n";

#[test]
fn an_alert_is_pending_then_firing_then_resolved() {
    let mut fixture = Fixture::new(HOLD);
    assert_eq!(fixture.step(0, 1.0), ["pending"]);
    assert_eq!(fixture.step(10, 1.0), ["pending"]);
    assert_eq!(fixture.step(20, 1.0), ["firing"]);
    assert_eq!(
        fixture.query("ALERTS", 20),
        ["{__name__=\"ALERTS\", alertname=\"A\", alertstate=\"firing\", l=\"a\"} 1"]
    );
    assert_eq!(fixture.step(30, 0.0), ["inactive"]);
    assert_eq!(fixture.query("{__name__=~\"ALERTS.*\"}", 30), [""; 0]);
    assert_eq!(fixture.step(40, 1.0), ["pending"], "its time starts again");
    assert_eq!(fixture.step(50, 0.0), [""; 0], "never fired");
    // A resolved alert is forgotten after a quarter of an hour.
    fixture.step(60, 1.0);
    assert_eq!(fixture.step(80, 1.0), ["firing"]);
    assert_eq!(fixture.step(90, 0.0), ["inactive"]);
    assert_eq!(fixture.step(90 + 900, 0.0), ["inactive"]);
    assert_eq!(fixture.step(90 + 910, 0.0), [""; 0]);
}

#[test]
fn a_missing_node_resolves_no_alert() {
    let mut fixture = Fixture::new("  rules:\n  - {alert: A, expr: x > 0, for: 10s}\n");
    fixture.step_nodes(0, &[("a", 1.0), ("b", 1.0)], &[]);
    let states = fixture.step_nodes(10, &[("a", 1.0), ("b", 1.0)], &[]);
    assert_eq!(states, ["a firing", "b firing"]);
    let states = fixture.step_nodes(20, &[("a", 0.0)], &[("b", true)]);
    assert_eq!(states, ["a inactive", "b firing"]);
    assert_eq!(
        fixture.group.rules[0].last_warning.as_deref(),
        Some("incomplete result: no answer from b")
    );
    let alerts = fixture.query("ALERTS{alertstate=\"firing\"}", 20);
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let states = fixture.step_nodes(30, &[("a", 1.0)], &[("b", false)]);
    assert_eq!(states, ["a pending", "b firing"], "not connected");
    let states = fixture.step_nodes(40, &[("a", 1.0), ("b", 0.0)], &[]);
    assert_eq!(states, ["a firing", "b inactive"]);
    assert_eq!(fixture.group.rules[0].last_warning, None);
}

#[test]
fn an_alert_over_all_nodes_is_not_resolved_while_one_is_missing() {
    let mut fixture = Fixture::new("  rules:\n  - {alert: A, expr: sum(x) > 5}\n");
    let states = fixture.step_nodes(0, &[("a", 4.0), ("b", 4.0)], &[]);
    assert_eq!(states, [" firing"]);
    assert_eq!(
        fixture.step_nodes(10, &[("a", 4.0)], &[("b", false)]),
        [" firing"]
    );
    assert_eq!(
        fixture.step_nodes(20, &[("a", 4.0), ("b", 1.0)], &[]),
        [" inactive"]
    );
}

#[test]
fn a_recorded_sum_has_a_gap_while_a_connected_node_does_not_answer() {
    let rules = "  rules:\n  - {record: s, expr: sum(x)}\n  - {record: d, expr: x * 2}\n";
    let mut fixture = Fixture::new(rules);
    fixture.step_nodes(0, &[("a", 1.0), ("b", 2.0)], &[]);
    fixture.step_nodes(10, &[("a", 5.0)], &[("b", true)]);
    assert_eq!(
        fixture.query("s", 10),
        ["{__name__=\"s\"} 3"],
        "the sum of before"
    );
    assert_eq!(
        fixture.query("d", 10),
        [
            "{__name__=\"d\", host=\"a\"} 10",
            "{__name__=\"d\", host=\"b\"} 4"
        ]
    );
    // As in Prometheus, a target that is down is not part of a sum.
    fixture.step_nodes(20, &[("a", 6.0)], &[("b", false)]);
    assert_eq!(fixture.query("s", 20), ["{__name__=\"s\"} 6"]);
    fixture.step_nodes(30, &[("a", 7.0), ("b", 8.0)], &[]);
    assert_eq!(fixture.query("s", 30), ["{__name__=\"s\"} 15"]);
}

#[test]
fn an_alert_keeps_firing_for_a_while() {
    let mut fixture = Fixture::new("  rules:\n  - {alert: A, expr: x > 0, keep_firing_for: 20s}\n");
    assert_eq!(fixture.step(0, 1.0), ["firing"]);
    assert_eq!(fixture.step(10, 0.0), ["firing"]);
    assert_eq!(fixture.step(20, 0.0), ["firing"]);
    assert_eq!(fixture.step(30, 0.0), ["inactive"]);
}

#[test]
fn firing_and_resolved_alerts_are_due_for_delivery() {
    let mut fixture = Fixture::new("  rules:\n  - {alert: A, expr: x > 0}\n");
    let mut due = |seconds, value| {
        fixture.set(seconds, value);
        let due = fixture.evaluate(seconds);
        let states = due
            .iter()
            .map(|due| (due.alert.state.as_str(), due.is_news));
        states.collect::<Vec<_>>()
    };
    assert_eq!(due(0, 1.0), [("firing", true)]);
    assert_eq!(due(10, 1.0), []);
    assert_eq!(due(70, 1.0), [("firing", false)], "sent again");
    assert_eq!(due(80, 0.0), [("inactive", true)]);
    assert_eq!(due(150, 0.0), [("inactive", false)], "sent again");
}

#[test]
fn recorded_series_have_labels_and_end() {
    let rules = "  query_offset: 5s\n  labels: {team: t}\n  rules:\n  - {record: y, expr: x * 2, labels: {l: b}}\n  - {record: z, expr: y + 1}\n";
    let mut fixture = Fixture::new(rules);
    fixture.set(0, 3.0);
    fixture.evaluate(10);
    let expected = ["{__name__=\"y\", l=\"b\", team=\"t\"} 6"];
    assert_eq!(fixture.query("y", 5), expected, "at the time of the query");
    assert_eq!(fixture.query("y", 4), [""; 0]);
    assert_eq!(
        fixture.query("z", 5),
        ["{__name__=\"z\", l=\"b\", team=\"t\"} 7"]
    );
    // The series of the expression is too old at 310 s.
    fixture.evaluate(310);
    assert_eq!(fixture.query("y", 305), [""; 0]);
}

#[test]
fn a_failing_rule_changes_nothing_and_has_its_error() {
    let rules = "  limit: 1\n  rules:\n  - {record: y, expr: x}\n  - {alert: A, expr: x}\n  - {alert: B, expr: x, labels: {l: same}}\n";
    let mut fixture = Fixture::new(rules);
    fixture.step(0, 1.0);
    assert_eq!(fixture.error(0), "");
    let second = RuleSample {
        labels: LabelSet::new([("__name__", "x"), ("l", "b")]),
        time: 10_000,
        value: 1.0,
    };
    fixture.storage.append(&[second]).expect("in order");
    fixture.step(10, 1.0);
    assert_eq!(fixture.error(0), "exceeded limit of 1 with 2 series");
    assert_eq!(fixture.error(1), "exceeded limit of 1 with 2 alerts");
    let same = "vector contains metrics with the same labelset after applying alert labels";
    assert_eq!(fixture.error(2), same);
    assert_eq!(
        fixture.query("y", 10).len(),
        1,
        "the previous series did not end"
    );
    assert_eq!(fixture.group.rules[2].alerts.len(), 1, "the alert stays");
}

#[test]
fn a_hostile_rule_is_ended_by_the_limits_of_queries() {
    let mut fixture =
        Fixture::new("  rules:\n  - {record: y, expr: 'x'}\n  - {record: z, expr: '1'}\n");
    fixture.limits.samples_max = 0;
    fixture.step(0, 1.0);
    assert!(
        fixture.error(0).contains("too many samples"),
        "{}",
        fixture.error(0)
    );
    assert_eq!(fixture.error(1), "", "other rules are evaluated");
}

#[test]
fn a_restart_continues_pending_alerts_without_the_outage() {
    let mut fixture = Fixture::new("  rules:\n  - {alert: A, expr: x > 0, for: 60s}\n");
    for seconds in [0, 10, 20] {
        assert_eq!(fixture.step(seconds, 1.0), ["pending"]);
    }
    fixture.restart("  rules:\n  - {alert: A, expr: x > 0, for: 60s}\n");
    // The expression does not hold at once: its series comes back later.
    fixture.set(110, 0.0);
    fixture.evaluate(110);
    assert_eq!(fixture.step(120, 1.0), ["pending"]);
    // It held from 0 to 20 s; 100 s passed since, of which 10 are the usual interval.
    let active = fixture.group.rules[0]
        .alerts
        .values()
        .next()
        .expect("an alert")
        .active_at;
    assert_eq!(active, 90_000);
    assert_eq!(fixture.step(140, 1.0), ["pending"]);
    assert_eq!(fixture.step(150, 1.0), ["firing"]);
}

#[test]
fn a_restart_continues_firing_alerts_and_reports_those_that_ended() {
    let mut fixture = Fixture::new(HOLD);
    for seconds in [0, 10, 20] {
        fixture.step(seconds, 1.0);
    }
    fixture.restart(HOLD);
    assert_eq!(fixture.step(50, 1.0), ["firing"], "at once");
    fixture.restart(HOLD);
    assert_eq!(fixture.step(60, 0.0), [""; 0]);
    fixture.set(360, 0.0);
    let due = fixture.evaluate(360);
    let ended: Vec<(&str, &str)> = due
        .iter()
        .map(|due| (due.alert.state.as_str(), due.alert.labels.get("l")))
        .collect();
    assert_eq!(ended, [("inactive", "a")]);
    assert_eq!(fixture.query("ALERTS", 360), [""; 0]);
    // Too long ago: nothing is continued.
    fixture.step(370, 1.0);
    fixture.restart(HOLD);
    assert_eq!(fixture.step(370 + 3_700, 1.0), ["pending"]);
}

#[test]
fn a_reload_keeps_the_state_of_rules_that_did_not_change() {
    let mut fixture = Fixture::new(HOLD);
    fixture.step(0, 1.0);
    let mut new = new_group(&format!("{HOLD}  - {{alert: B, expr: x > 0, for: 20s}}\n"));
    new.take_state(&mut fixture.group);
    assert!(fixture.group.rules.is_empty(), "no rule is gone");
    fixture.group = new;
    assert_eq!(fixture.step(20, 1.0), ["firing", "pending"]);
    let mut changed = new_group("  rules:\n  - {alert: A, expr: x > 1, for: 20s}\n");
    changed.take_state(&mut fixture.group);
    assert_eq!(fixture.group.rules.len(), 2, "both rules are gone");
    let ends: usize = { fixture.group.rules.iter() }
        .map(|rule| rule.end_marks(0).len())
        .sum();
    assert_eq!(ends, 4, "ALERTS and ALERTS_FOR_STATE of both");
}
