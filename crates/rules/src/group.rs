//! A group of rules with its state, evaluated as a whole.

use std::time::Instant;

use pegel_metric::Millis;

use crate::alert::{DueAlert, SendIntervals};
use crate::rule_file::RuleGroupSpec;
use crate::rule_state::{EvaluationContext, GroupTiming, RuleState, as_millis};

/// A group with the state of its rules.
#[derive(Debug)]
pub(crate) struct RuleGroup {
    pub spec: RuleGroupSpec,
    pub interval: Millis,
    pub rules: Vec<RuleState>,
    pub last_evaluation: Option<Millis>,
    pub evaluation_seconds: f64,
}

/// The outcome of one evaluation of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupOutcome {
    pub evaluations: u64,
    pub failures: u64,
    /// Evaluations for which nodes did not answer.
    pub incomplete: u64,
    pub due: Vec<DueAlert>,
}

impl RuleGroup {
    /// Creates a group. `default_interval` applies if the group sets none.
    pub(crate) fn new(spec: RuleGroupSpec, default_interval: Millis) -> RuleGroup {
        let interval = spec.interval.map_or(default_interval, as_millis);
        let rules = spec.rules.iter().cloned().map(RuleState::new);
        RuleGroup {
            interval: interval.max(1),
            rules: rules.collect(),
            last_evaluation: None,
            evaluation_seconds: 0.0,
            spec,
        }
    }

    /// Evaluates all rules, in order: each sees the series of those before it.
    pub(crate) fn evaluate(
        &mut self,
        time: Millis,
        (resend, repeat): (Millis, Millis),
        context: &EvaluationContext<'_>,
    ) -> GroupOutcome {
        let started = Instant::now();
        let timing = GroupTiming {
            interval: self.interval,
            query_offset: as_millis(self.spec.query_offset),
            limit: self.spec.limit,
        };
        let intervals = SendIntervals {
            resend,
            repeat,
            evaluation: self.interval,
        };
        let mut outcome = GroupOutcome::default();
        for rule in &mut self.rules {
            outcome.evaluations += 1;
            let previous_error = rule.last_error.take();
            let previous_warning = rule.last_warning.take();
            let is_evaluated = rule.evaluate(time, timing, context);
            if let Some(warning) = &rule.last_warning {
                outcome.incomplete += 1;
                if previous_warning.as_ref() != Some(warning) {
                    let (group, rule) = (&self.spec.name, &rule.spec.name);
                    tracing::warn!(group, rule, warning, "a rule lacks nodes");
                }
            }
            if is_evaluated {
                outcome.due.extend(rule.take_due_alerts(time, intervals));
            } else {
                outcome.failures += 1;
                // Only the first of equal errors is logged: a broken rule fails each time.
                if previous_error != rule.last_error {
                    let error = rule.last_error.as_deref().unwrap_or_default();
                    let (group, rule) = (&self.spec.name, &rule.spec.name);
                    tracing::warn!(group, rule, error, "cannot evaluate a rule");
                }
            }
        }
        self.last_evaluation = Some(time);
        self.evaluation_seconds = started.elapsed().as_secs_f64();
        outcome
    }

    /// Takes the state of the same group of an earlier configuration. What is left in `old`
    /// belongs to rules that no longer exist.
    pub(crate) fn take_state(&mut self, old: &mut RuleGroup) {
        self.last_evaluation = old.last_evaluation;
        self.evaluation_seconds = old.evaluation_seconds;
        for rule in &mut self.rules {
            let same = old
                .rules
                .iter()
                .position(|old| old.spec.is_same(&rule.spec));
            if let Some(at) = same {
                rule.take_state(&mut old.rules[at]);
                old.rules.remove(at);
            }
        }
    }
}
