//! Restores the alerts of a rule from the series that the previous agent stored.
//!
//! The series `ALERTS_FOR_STATE` holds since when each alert is active. Time during which no agent
//! ran does not count as time in which the expression held.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use pegel_metric::{Input, Millis};
use pegel_query::promql::{LabelMatcher, LabelSet, PromqlError, STALE_NAN, Selection};

use crate::alert::{Alert, AlertState};
use crate::rule_file::RuleSpec;
use crate::rule_state::{ALERT_NAME, EvaluationContext, as_millis};

/// Alerts that were last seen longer ago are not continued.
const OUTAGE_MAX: Millis = 60 * 60 * 1_000;

/// The alerts of a rule as they were last stored.
#[derive(Debug, Default)]
pub(crate) struct RestoredAlerts {
    /// By the labels of the alert: since when it is active, and when that was written.
    pending: BTreeMap<LabelSet, (Millis, Millis)>,
    firing: BTreeSet<LabelSet>,
    /// The stored series that have not ended.
    series: Vec<LabelSet>,
}

impl RestoredAlerts {
    pub(crate) fn read(
        rule: &RuleSpec,
        time: Millis,
        context: &EvaluationContext<'_>,
    ) -> Result<RestoredAlerts, String> {
        let mut restored = RestoredAlerts::default();
        let select = |name: &str, visit: &mut dyn FnMut(LabelSet, (Millis, f64))| {
            let matchers = [
                LabelMatcher::new("__name__", "=", name)?,
                LabelMatcher::new(ALERT_NAME, "=", &rule.name)?,
            ];
            let selection = Selection {
                matchers: &matchers,
                // Other inputs may have series with the same labels.
                input: Some(Input::Rules),
                start: time - OUTAGE_MAX,
                end: time,
                bytes_max: context.limits.bytes_max,
                deadline: Instant::now() + context.limits.time_max,
                cancellation: context.limits.cancellation.clone(),
            };
            let source = context.storage.source();
            source.select(&selection, &mut |labels, samples| {
                // A series whose last sample is the mark of its end is over.
                if let Some(last) = samples.last()
                    && last.1.to_bits() != STALE_NAN.to_bits()
                {
                    visit(labels, last);
                }
                Ok::<(), PromqlError>(())
            })
        };
        let read = select("ALERTS_FOR_STATE", &mut |labels, (seen, active)| {
            let alert = without(&labels, &["__name__"]);
            let active_at = (active * 1_000.0) as Millis;
            restored.pending.insert(alert, (active_at, seen));
            restored.series.push(labels);
        });
        read.map_err(|error| error.to_string())?;
        let read = select("ALERTS", &mut |labels, _| {
            if labels.get("alertstate") == "firing" {
                let alert = without(&labels, &["__name__", "alertstate"]);
                restored.firing.insert(alert);
            }
            restored.series.push(labels);
        });
        read.map_err(|error| error.to_string())?;
        Ok(restored)
    }

    /// Sets since when an alert is active, if it was active before. Every alert is continued once.
    pub(crate) fn continue_alert(
        &mut self,
        alert: &mut Alert,
        rule: &RuleSpec,
        time: Millis,
        interval: Millis,
    ) {
        let Some((active_at, seen)) = self.pending.remove(&alert.labels) else {
            return;
        };
        let hold = rule.alert.as_ref().map_or(0, |alert| as_millis(alert.hold));
        let has_held = seen - active_at >= hold;
        if self.firing.remove(&alert.labels) || has_held {
            alert.active_at = active_at.min(time - hold);
            alert.state = AlertState::Firing;
            alert.fired_at = Some(time);
            return;
        }
        // An evaluation after the usual interval was not missed.
        let outage = (time - seen - interval).max(0);
        alert.active_at = (active_at + outage).min(time);
    }

    /// Returns the alerts that were firing and no longer hold. Labels that the rule sets must be as
    /// it sets them.
    pub(crate) fn ended(
        &self,
        rule: &RuleSpec,
        found: &BTreeMap<LabelSet, Alert>,
    ) -> Vec<LabelSet> {
        let is_of_rule = |labels: &LabelSet| {
            let mut fixed = rule.labels.iter();
            fixed.all(|(name, text)| text.text.contains("{{") || labels.get(name) == text.text)
        };
        let firing = self.firing.iter();
        let ended = firing.filter(|labels| is_of_rule(labels) && !found.contains_key(*labels));
        ended.cloned().collect()
    }

    pub(crate) fn into_series(self) -> Vec<LabelSet> {
        self.series
    }
}

fn without(labels: &LabelSet, names: &[&str]) -> LabelSet {
    LabelSet::new(labels.iter().filter(|(name, _)| !names.contains(name)))
}
