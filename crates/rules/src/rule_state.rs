//! The state of one rule, and its evaluation at one time.
//!
//! A rule that fails keeps its alerts and its series as they were: nothing is written, and the
//! error is its health until the next evaluation succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_query::promql::{LabelSet, PromqlLimits, STALE_NAN, SeriesSource, VectorSample};

use crate::alert::{Alert, AlertState, DueAlert, RESOLVED_RETENTION, SendIntervals};
use crate::expression::evaluate;
use crate::restore::RestoredAlerts;
use crate::rule_file::{AlertSpec, RuleSpec, RuleText};
use crate::storage::{MissingNode, RuleNodeSource, RuleSample, RuleStorage};
use crate::template::TemplateData;

/// The maximum number of alerts of one rule, whatever the limit of its group.
const ALERTS_MAX: usize = 10_000;
/// The maximum size of all annotations and labels of one rule's alerts.
const ALERT_BYTES_MAX: usize = 16 << 20;

pub(crate) const ALERT_NAME: &str = "alertname";
const NAME: &str = "__name__";
const HOST: &str = "host";
/// The most missing nodes in a warning.
const NAMES_LISTED: usize = 20;

/// What an evaluation needs from outside the group.
pub(crate) struct EvaluationContext<'a> {
    pub storage: &'a dyn RuleStorage,
    /// On a parent: the series of all nodes.
    pub nodes: Option<&'a dyn RuleNodeSource>,
    pub limits: PromqlLimits,
    pub external_labels: &'a LabelSet,
    pub external_url: &'a str,
}

impl<'a> EvaluationContext<'a> {
    /// Returns the series that expressions select from.
    fn source(&self) -> &'a dyn SeriesSource {
        match self.nodes {
            Some(nodes) => nodes,
            None => self.storage.source(),
        }
    }
}

/// The nodes that an evaluation lacks. What depended on them is not known.
#[derive(Debug, Default)]
struct MissingNodes(Vec<MissingNode>);

impl MissingNodes {
    fn of(context: &EvaluationContext<'_>) -> MissingNodes {
        MissingNodes(context.nodes.map_or_else(Vec::new, RuleNodeSource::missing))
    }

    /// Returns whether an element with these labels may be absent from the result only because of
    /// a missing node: it is of that node, or of several nodes.
    fn hides(&self, labels: &LabelSet) -> bool {
        let host = labels.get(HOST);
        !self.0.is_empty() && (host.is_empty() || self.0.iter().any(|node| node.name == host))
    }

    /// Returns whether an element of several nodes is wrong. Nodes that are not connected are not
    /// part of it, as the targets that Prometheus cannot scrape.
    fn falsifies(&self, labels: &LabelSet) -> bool {
        labels.get(HOST).is_empty() && self.0.iter().any(|node| node.is_connected)
    }

    fn warning(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.0.iter().map(|node| node.name.as_str()).collect();
        let mut listed = names[..names.len().min(NAMES_LISTED)].join(", ");
        if names.len() > NAMES_LISTED {
            listed += &format!(" and {} more", names.len() - NAMES_LISTED);
        }
        Some(format!("incomplete result: no answer from {listed}"))
    }
}

/// The part of a group that its rules need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupTiming {
    pub interval: Millis,
    pub query_offset: Millis,
    pub limit: usize,
}

/// How far the alerts of the previous agent were restored.
#[derive(Debug)]
enum Restoration {
    /// Not read yet.
    Due,
    /// Alerts of the previous agent are continued when their expression holds again, until this
    /// time: after a start some series need a while to come back.
    Waiting(RestoredAlerts, Millis),
    Done,
}

/// How long the alerts of the previous agent can be continued.
const RESTORATION_TIME: Millis = 5 * 60 * 1_000;

/// A rule with its state.
#[derive(Debug)]
pub(crate) struct RuleState {
    pub spec: Arc<RuleSpec>,
    /// Sorted, so that results do not depend on hashes.
    pub alerts: BTreeMap<LabelSet, Alert>,
    /// The series of the previous successful evaluation.
    series: BTreeSet<LabelSet>,
    restoration: Restoration,
    /// No other rule of the agent has this name: what is stored under it belongs to this rule.
    pub has_unique_name: bool,
    pub last_error: Option<String>,
    /// The nodes that the last evaluation lacked.
    pub last_warning: Option<String>,
    pub last_evaluation: Option<Millis>,
    pub evaluation_seconds: f64,
}

impl RuleState {
    pub(crate) fn new(spec: Arc<RuleSpec>) -> RuleState {
        RuleState {
            spec,
            alerts: BTreeMap::new(),
            series: BTreeSet::new(),
            restoration: Restoration::Due,
            has_unique_name: false,
            last_error: None,
            last_warning: None,
            last_evaluation: None,
            evaluation_seconds: 0.0,
        }
    }

    /// Disables the restoration of alerts from stored series.
    pub(crate) fn skip_restoration(&mut self) {
        self.restoration = Restoration::Done;
    }

    /// Takes the state of the same rule of an earlier configuration.
    pub(crate) fn take_state(&mut self, old: &mut RuleState) {
        self.alerts = std::mem::take(&mut old.alerts);
        self.series = std::mem::take(&mut old.series);
        self.restoration = std::mem::replace(&mut old.restoration, Restoration::Done);
        self.last_error = old.last_error.take();
        self.last_warning = old.last_warning.take();
        self.last_evaluation = old.last_evaluation;
        self.evaluation_seconds = old.evaluation_seconds;
    }

    /// Evaluates the rule and writes its series. Returns whether it succeeded.
    pub(crate) fn evaluate(
        &mut self,
        time: Millis,
        timing: GroupTiming,
        context: &EvaluationContext<'_>,
    ) -> bool {
        let started = Instant::now();
        let spec = self.spec.clone();
        let result = match &spec.alert {
            None => self.record(time, timing, context),
            Some(alert) => self.update_alerts(alert, time, timing, context),
        };
        let missing = MissingNodes::of(context);
        let written =
            result.and_then(|samples| self.write(samples, &missing, time, timing, context));
        self.last_error = written.err();
        self.last_warning = missing.warning();
        self.last_evaluation = Some(time);
        self.evaluation_seconds = started.elapsed().as_secs_f64();
        self.last_error.is_none()
    }

    fn record(
        &mut self,
        time: Millis,
        timing: GroupTiming,
        context: &EvaluationContext<'_>,
    ) -> Result<Vec<RuleSample>, String> {
        let at = time - timing.query_offset;
        let vector = evaluate(context.source(), &self.spec.expression, at, &context.limits)?;
        let missing = MissingNodes::of(context);
        let samples: Vec<RuleSample> = vector
            .iter()
            .filter(|sample| !missing.falsifies(&sample.labels))
            .map(|sample| {
                let added = self.spec.labels.iter();
                let added = added.map(|(name, text)| (name.as_str(), text.text.as_str()));
                let name = std::iter::once((NAME, self.spec.name.as_str()));
                RuleSample {
                    labels: overlay(&sample.labels, name.chain(added)),
                    time: at,
                    value: sample.value,
                }
            })
            .collect();
        let distinct: BTreeSet<&LabelSet> = samples.iter().map(|sample| &sample.labels).collect();
        if distinct.len() < samples.len() {
            return Err(
                "vector contains metrics with the same labelset after applying rule labels"
                    .to_owned(),
            );
        }
        if timing.limit > 0 && samples.len() > timing.limit {
            let (limit, count) = (timing.limit, samples.len());
            return Err(format!("exceeded limit of {limit} with {count} series"));
        }
        Ok(samples)
    }

    fn update_alerts(
        &mut self,
        spec: &AlertSpec,
        time: Millis,
        timing: GroupTiming,
        context: &EvaluationContext<'_>,
    ) -> Result<Vec<RuleSample>, String> {
        let at = time - timing.query_offset;
        let vector = evaluate(context.source(), &self.spec.expression, at, &context.limits)?;
        let missing = MissingNodes::of(context);
        let mut found = self.expand(spec, &vector, time, context)?;
        self.restore(&mut found, &missing, time, timing, context);
        let limit = match timing.limit {
            0 => ALERTS_MAX,
            limit => limit.min(ALERTS_MAX),
        };
        self.merge(&mut found);
        let active = self.advance(spec, &found, &missing, time);
        if active > limit {
            self.alerts.clear();
            return Err(format!("exceeded limit of {limit} with {active} alerts"));
        }
        let alerts = self.alerts.values();
        let active = alerts.filter(|alert| alert.state != AlertState::Inactive);
        Ok(active.flat_map(|alert| alert_samples(alert, at)).collect())
    }

    /// Creates a pending alert for each element, with its labels and annotations.
    fn expand(
        &self,
        spec: &AlertSpec,
        vector: &[VectorSample],
        time: Millis,
        context: &EvaluationContext<'_>,
    ) -> Result<BTreeMap<LabelSet, Alert>, String> {
        let source = context.source();
        let query = |expression: &str| evaluate(source, expression, time, &context.limits);
        let mut found = BTreeMap::new();
        let mut bytes = 0;
        for sample in vector {
            let data = TemplateData {
                labels: &sample.labels,
                value: sample.value,
                external_labels: context.external_labels,
                external_url: context.external_url,
                time,
                query: &query,
            };
            let expand_all = |texts: &BTreeMap<String, RuleText>| -> BTreeMap<String, String> {
                let texts = texts.iter();
                texts
                    .map(|(name, text)| (name.clone(), text.expand(&data)))
                    .collect()
            };
            let own = expand_all(&self.spec.labels);
            let own = own
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()));
            let fixed = [(ALERT_NAME, self.spec.name.as_str()), (NAME, "")];
            let labels = overlay(&sample.labels, fixed.into_iter().chain(own));
            let annotations = expand_all(&spec.annotations);
            bytes += annotations
                .values()
                .map(|text| text.len() + 64)
                .sum::<usize>()
                + 256;
            if bytes > ALERT_BYTES_MAX {
                return Err(format!("the alerts exceed {} MiB", ALERT_BYTES_MAX >> 20));
            }
            let alert = Alert::pending(labels.clone(), annotations, sample.value, time);
            if found.insert(labels, alert).is_some() {
                return Err(
                    "vector contains metrics with the same labelset after applying alert labels"
                        .to_owned(),
                );
            }
        }
        Ok(found)
    }

    /// Continues the alerts of the agent that ran before this one.
    fn restore(
        &mut self,
        found: &mut BTreeMap<LabelSet, Alert>,
        missing: &MissingNodes,
        time: Millis,
        timing: GroupTiming,
        context: &EvaluationContext<'_>,
    ) {
        let restoration = std::mem::replace(&mut self.restoration, Restoration::Done);
        let (mut restored, until) = match restoration {
            Restoration::Done => return,
            Restoration::Waiting(restored, until) => (restored, until),
            Restoration::Due => match RestoredAlerts::read(&self.spec, time, context) {
                Ok(restored) => (restored, time + RESTORATION_TIME),
                // If the store cannot be read now, alerts are not delayed: they begin without it.
                Err(error) => {
                    let rule = &self.spec.name;
                    tracing::warn!(rule, error, "cannot restore the state of a rule");
                    return;
                }
            },
        };
        for (labels, alert) in found.iter_mut() {
            let known = self.alerts.get(labels);
            if known.is_none_or(|known| known.state == AlertState::Inactive) {
                restored.continue_alert(alert, &self.spec, time, timing.interval);
            }
        }
        // While nodes are missing, it is not known which alerts ended.
        if time < until || !missing.0.is_empty() {
            self.restoration = Restoration::Waiting(restored, until);
            return;
        }
        if self.has_unique_name {
            for labels in restored.ended(&self.spec, found) {
                let mut alert = Alert::pending(labels.clone(), BTreeMap::new(), f64::NAN, time);
                alert.state = AlertState::Firing;
                alert.fired_at = Some(time);
                // Becomes inactive below, since the expression does not hold for it.
                self.alerts.entry(labels).or_insert(alert);
            }
        }
        self.series.extend(restored.into_series());
    }

    /// Adds new alerts, and updates the value and the annotations of known ones.
    fn merge(&mut self, found: &mut BTreeMap<LabelSet, Alert>) {
        for (labels, new) in found.iter() {
            match self.alerts.get_mut(labels) {
                Some(known) if known.state != AlertState::Inactive => {
                    known.value = new.value;
                    known.annotations.clone_from(&new.annotations);
                }
                _ => {
                    self.alerts.insert(labels.clone(), new.clone());
                }
            }
        }
    }

    /// Moves every alert to its next state; one that a missing node may hide keeps its state.
    /// Returns the number of pending and firing ones.
    fn advance(
        &mut self,
        spec: &AlertSpec,
        found: &BTreeMap<LabelSet, Alert>,
        missing: &MissingNodes,
        time: Millis,
    ) -> usize {
        let keep_firing = as_millis(spec.keep_firing);
        let hold = as_millis(spec.hold);
        let mut active = 0;
        self.alerts.retain(|labels, alert| {
            if found.contains_key(labels) {
                alert.keep_firing_since = None;
            } else if alert.state != AlertState::Inactive && missing.hides(labels) {
                active += 1;
                return true;
            } else {
                let mut keeps_firing = false;
                if alert.state == AlertState::Firing && keep_firing > 0 {
                    let since = *alert.keep_firing_since.get_or_insert(time);
                    keeps_firing = time - since < keep_firing;
                }
                let is_over = |resolved: Millis| time - resolved > RESOLVED_RETENTION;
                if alert.state == AlertState::Pending || alert.resolved_at.is_some_and(is_over) {
                    return false;
                }
                if !keeps_firing {
                    if alert.state != AlertState::Inactive {
                        alert.state = AlertState::Inactive;
                        alert.resolved_at = Some(time);
                    }
                    return true;
                }
            }
            active += 1;
            if alert.state == AlertState::Pending && time - alert.active_at >= hold {
                alert.state = AlertState::Firing;
                alert.fired_at = Some(time);
            }
            true
        });
        active
    }

    /// Writes the series of this evaluation, and marks those of the previous one that are gone.
    /// Those that a missing node may hide are not gone.
    fn write(
        &mut self,
        mut samples: Vec<RuleSample>,
        missing: &MissingNodes,
        time: Millis,
        timing: GroupTiming,
        context: &EvaluationContext<'_>,
    ) -> Result<(), String> {
        let mut series: BTreeSet<LabelSet> =
            samples.iter().map(|sample| sample.labels.clone()).collect();
        let absent = self.series.difference(&series);
        let (hidden, gone): (Vec<_>, Vec<_>) =
            absent.cloned().partition(|labels| missing.hides(labels));
        series.extend(hidden);
        samples.extend(gone.into_iter().map(|labels| RuleSample {
            labels,
            time: time - timing.query_offset,
            value: STALE_NAN,
        }));
        context.storage.append(&samples)?;
        self.series = series;
        Ok(())
    }

    /// Returns the end marks of all its series, for a rule that is removed.
    pub(crate) fn end_marks(&self, time: Millis) -> Vec<RuleSample> {
        let mark = |labels: &LabelSet| RuleSample {
            labels: labels.clone(),
            time,
            value: STALE_NAN,
        };
        self.series.iter().map(mark).collect()
    }

    /// Returns the alerts that are due for delivery.
    pub(crate) fn take_due_alerts(
        &mut self,
        time: Millis,
        intervals: SendIntervals,
    ) -> Vec<DueAlert> {
        let expression = &self.spec.expression;
        let alerts = self.alerts.values_mut();
        let due = alerts.filter_map(|alert| {
            let is_news = alert.take_due(time, intervals)?;
            Some(DueAlert {
                alert: alert.clone(),
                expression: expression.clone(),
                is_news,
            })
        });
        due.collect()
    }
}

impl RuleText {
    fn expand(&self, data: &TemplateData<'_>) -> String {
        match &self.template {
            Some(template) => template.expand(data),
            None => self.text.clone(),
        }
    }
}

/// Returns labels with some of them replaced; an empty value removes a label.
fn overlay<'a>(
    labels: &'a LabelSet,
    changes: impl Iterator<Item = (&'a str, &'a str)>,
) -> LabelSet {
    // Of two labels with one name the first remains; empty ones are left out only afterwards, so
    // that they hide those of the series.
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (name, value) in changes.chain(labels.iter()) {
        if pairs.iter().all(|(known, _)| *known != name) {
            pairs.push((name, value));
        }
    }
    LabelSet::new(pairs)
}

/// Returns the series of an alert: `ALERTS` and `ALERTS_FOR_STATE`.
fn alert_samples(alert: &Alert, time: Millis) -> [RuleSample; 2] {
    let state = [(NAME, "ALERTS"), ("alertstate", alert.state.as_str())];
    let for_state = [(NAME, "ALERTS_FOR_STATE")];
    [
        RuleSample {
            labels: overlay(&alert.labels, state.into_iter()),
            time,
            value: 1.0,
        },
        RuleSample {
            labels: overlay(&alert.labels, for_state.into_iter()),
            time,
            value: alert.active_at.div_euclid(1_000) as f64,
        },
    ]
}

pub(crate) fn as_millis(duration: std::time::Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
