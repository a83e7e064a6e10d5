//! Runs one test.

use std::collections::BTreeMap;
use std::fmt::Write;

use pegel_metric::Millis;
use pegel_query::promql::{LabelSet, PromqlLimits, VectorSample, format_sample};

use super::memory_storage::MemoryStorage;
use super::test_file::{AlertTest, ExpectedAlert, ExpressionTest, RuleTest, TestFile};
use crate::alert::AlertState;
use crate::duration::format_duration;
use crate::expression::evaluate;
use crate::group::RuleGroup;
use crate::rule_file::RuleGroupSpec;
use crate::rule_state::{EvaluationContext, RuleState, as_millis};
use crate::storage::{RuleSample, RuleStorage};

/// Runs a test and returns its failures.
pub(super) fn run(file: &TestFile, rules: &[RuleGroupSpec], test: &RuleTest) -> Vec<String> {
    let mut runner = TestRunner {
        file,
        test,
        storage: MemoryStorage::default(),
        groups: Vec::new(),
        next_sample: 0,
        failures: Vec::new(),
    };
    for spec in rules {
        let mut group = RuleGroup::new(spec.clone(), as_millis(test.interval));
        group.rules.iter_mut().for_each(RuleState::skip_restoration);
        runner.groups.push(group);
    }
    runner.run();
    runner.failures
}

struct TestRunner<'a> {
    file: &'a TestFile,
    test: &'a RuleTest,
    storage: MemoryStorage,
    groups: Vec<RuleGroup>,
    /// The number of input samples of each series that were written.
    next_sample: usize,
    failures: Vec<String>,
}

impl TestRunner<'_> {
    fn run(&mut self) {
        let alerts = self.test.alerts.iter().map(|test| test.eval_time);
        let expressions = self.test.expressions.iter().map(|test| test.eval_time);
        let end = as_millis(alerts.chain(expressions).max().unwrap_or_default());
        let interval = as_millis(self.file.evaluation_interval).max(1);
        let mut time = 0;
        while time <= end {
            self.write_input(time);
            if !self.evaluate(time) {
                return;
            }
            // An alert is compared with the evaluation at or before its time.
            let until = time + interval;
            for test in &self.test.alerts {
                if (time..until).contains(&as_millis(test.eval_time)) {
                    self.check_alert(test);
                }
            }
            time = until;
        }
        for test in &self.test.expressions {
            self.check_expression(test);
        }
    }

    /// Writes the input samples up to a time.
    fn write_input(&mut self, time: Millis) {
        let interval = as_millis(self.test.interval).max(1);
        let until = usize::try_from(time / interval + 1).unwrap_or(usize::MAX);
        for (labels, values) in &self.test.input {
            let end = until.min(values.len());
            let start = self.next_sample.min(end);
            let samples: Vec<RuleSample> = (start..end)
                .filter_map(|index| {
                    Some(RuleSample {
                        labels: labels.clone(),
                        time: index as Millis * interval,
                        value: values[index]?,
                    })
                })
                .collect();
            if let Err(error) = self.storage.append(&samples) {
                self.failures.push(format!("    series {labels}: {error}"));
            }
        }
        self.next_sample = until;
    }

    /// Evaluates all groups. Returns false if a rule failed.
    fn evaluate(&mut self, time: Millis) -> bool {
        let context = EvaluationContext {
            storage: &self.storage,
            nodes: None,
            limits: PromqlLimits::default(),
            external_labels: &self.test.external_labels,
            external_url: &self.test.external_url,
        };
        let mut is_ok = true;
        for group in &mut self.groups {
            group.evaluate(time, (60_000, 0), &context);
            for rule in &group.rules {
                if let Some(error) = &rule.last_error {
                    let at = go_duration(time);
                    let name = &rule.spec.name;
                    self.failures
                        .push(format!("    rule: {name}, time: {at}, err: {error}"));
                    is_ok = false;
                }
            }
        }
        is_ok
    }

    fn check_alert(&mut self, test: &AlertTest) {
        let rules = self.groups.iter().flat_map(|group| &group.rules);
        let alerts = rules
            .filter(|rule| rule.spec.alert.is_some() && rule.spec.name == test.name)
            .flat_map(|rule| rule.alerts.values())
            .filter(|alert| alert.state == AlertState::Firing);
        let mut found: Vec<ExpectedAlert> = alerts
            .map(|alert| ExpectedAlert {
                labels: alert.labels.clone(),
                annotations: without_empty(&alert.annotations),
            })
            .collect();
        let mut expected: Vec<ExpectedAlert> = test
            .expected
            .iter()
            .map(|alert| ExpectedAlert {
                labels: alert.labels.clone(),
                annotations: without_empty(&alert.annotations),
            })
            .collect();
        found.sort();
        expected.sort();
        if found != expected {
            let name = self.test_name();
            self.failures.push(format!(
                "{name}    alertname: {}, time: {}, \n        exp:{}, \n        got:{}",
                test.name,
                format_duration(test.eval_time),
                show_alerts(&expected),
                show_alerts(&found)
            ));
        }
    }

    fn check_expression(&mut self, test: &ExpressionTest) {
        let time = as_millis(test.eval_time);
        let limits = PromqlLimits::default();
        let result = evaluate(&self.storage, &test.expression, time, &limits);
        let place = format!(
            "{}    expr: {:?}, time: {}",
            self.test_name(),
            test.expression,
            format_duration(test.eval_time)
        );
        let mut found = match result {
            Ok(samples) => samples,
            Err(error) => {
                self.failures.push(format!("{place}, err: {error}"));
                return;
            }
        };
        let expected = test.expected.iter().map(|(labels, value)| VectorSample {
            labels: labels.clone(),
            value: *value,
        });
        let mut expected: Vec<VectorSample> = expected.collect();
        let by_labels = |a: &VectorSample, b: &VectorSample| a.labels.cmp(&b.labels);
        found.sort_by(by_labels);
        expected.sort_by(by_labels);
        let is_same = |(a, b): (&VectorSample, &VectorSample)| {
            a.labels == b.labels && self.is_equal(a.value, b.value)
        };
        if found.len() != expected.len() || !found.iter().zip(&expected).all(is_same) {
            self.failures.push(format!(
                "{place},\n        exp: {}\n        got: {}",
                show_samples(&expected),
                show_samples(&found)
            ));
        }
    }

    fn is_equal(&self, a: f64, b: f64) -> bool {
        if a == b || (a.is_nan() && b.is_nan()) {
            return true;
        }
        self.file.is_fuzzy && (a.next_up() == b || a.next_down() == b)
    }

    fn test_name(&self) -> String {
        match self.test.name.as_str() {
            "" => String::new(),
            name => format!("    name: {name},\n"),
        }
    }
}

fn without_empty(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let pairs = annotations.iter().filter(|(_, text)| !text.is_empty());
    pairs
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect()
}

fn show_alerts(alerts: &[ExpectedAlert]) -> String {
    if alerts.is_empty() {
        return "[]".to_owned();
    }
    let mut text = "[".to_owned();
    for (index, alert) in alerts.iter().enumerate() {
        let annotations = LabelSet::new(&alert.annotations);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n            {index}:\n              Labels:{}\n              Annotations:{annotations}",
            alert.labels
        );
    }
    text + "\n            ]"
}

fn show_samples(samples: &[VectorSample]) -> String {
    if samples.is_empty() {
        return "nil".to_owned();
    }
    let show = |sample: &VectorSample| {
        let mut value = String::new();
        format_sample(&mut value, sample.value);
        format!("{} {value}", sample.labels)
    };
    samples.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Returns a time since the start of the test.
fn go_duration(time: Millis) -> String {
    let millis = u64::try_from(time).unwrap_or_default();
    format_duration(std::time::Duration::from_millis(millis))
}
