//! `info`: adds the labels of info series such as `target_info` to the series of a vector.

use std::collections::HashMap;

use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, join_same_labels};
use super::super::labels::{LabelSet, NAME};
use super::super::matcher::LabelMatcher;
use super::super::node::{CallNode, ExprNode, VectorSelector};
use super::super::steps::{Steps, TimeShift};
use super::super::value::{ABSENT, NodeValue, StepSeries, is_absent};

/// The labels by which an info series belongs to a series. All its other labels are data.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// The info series that are considered without a matcher for names.
const DEFAULT_NAME: &str = "target_info";

pub(super) fn info(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> Result<NodeValue, PromqlError> {
    let matchers = match node.arguments.get(1).map(ExprNode::unwrap_constant) {
        None => Vec::new(),
        Some(ExprNode::Selector(selector)) => selector.matchers.clone(),
        Some(_) => {
            return Err(PromqlError::bad_data(
                "expected label selectors as the second argument to the info function",
            ));
        }
    };
    let (mut names, data): (Vec<LabelMatcher>, Vec<LabelMatcher>) = matchers
        .into_iter()
        .partition(|matcher| matcher.name == NAME);
    if names.is_empty() {
        names.push(LabelMatcher::new(NAME, "=", DEFAULT_NAME)?);
    }
    let base = evaluator.eval_vector(&node.arguments[0], steps)?;
    let selector = VectorSelector {
        matchers: names.iter().chain(&data).cloned().collect(),
        shift: TimeShift::default(),
    };
    let infos = evaluator.select(&selector, steps)?;
    let enrichment = Enrichment::new(&infos, &names, &data);
    let mut result = Vec::with_capacity(base.len());
    for series in &base {
        enrichment.enrich(evaluator, series, steps, &mut result)?;
    }
    evaluator.release_series(&base);
    evaluator.release_series(&infos);
    Ok(NodeValue::Vector(join_same_labels(result)?))
}

struct Enrichment<'a> {
    infos: &'a [StepSeries],
    /// The info series by their identifying labels.
    by_identity: HashMap<LabelSet, Vec<usize>>,
    names: &'a [LabelMatcher],
    data: &'a [LabelMatcher],
    /// Whether series without info series are left out.
    requires_data: bool,
}

impl<'a> Enrichment<'a> {
    fn new(
        infos: &'a [StepSeries],
        names: &'a [LabelMatcher],
        data: &'a [LabelMatcher],
    ) -> Enrichment<'a> {
        let mut by_identity: HashMap<LabelSet, Vec<usize>> = HashMap::new();
        for (index, one) in infos.iter().enumerate() {
            by_identity
                .entry(identity(&one.labels))
                .or_default()
                .push(index);
        }
        Enrichment {
            infos,
            by_identity,
            names,
            data,
            requires_data: data.iter().any(|matcher| !matcher.accepts("")),
        }
    }

    /// Adds a series with the labels of its info series, which can change from step to step.
    fn enrich(
        &self,
        evaluator: &mut Evaluator<'_>,
        series: &StepSeries,
        steps: &Steps,
        result: &mut Vec<StepSeries>,
    ) -> Result<(), PromqlError> {
        let is_info = self
            .names
            .iter()
            .all(|matcher| matcher.matches(&series.labels));
        let found = self.by_identity.get(&identity(&series.labels));
        let found = found.map_or(&[][..], Vec::as_slice);
        let mut columns: HashMap<LabelSet, usize> = HashMap::new();
        for (step, value) in series.values.iter().enumerate() {
            evaluator.budget.spend(1 + found.len())?;
            if is_absent(*value) {
                continue;
            }
            let labels = if is_info {
                Some(series.labels.clone())
            } else {
                self.labels_at(&series.labels, found, step)?
            };
            let Some(labels) = labels else {
                continue;
            };
            let place = *columns.entry(labels.clone()).or_insert(result.len());
            if place == result.len() {
                evaluator.reserve_series(1, steps)?;
                evaluator.reserve_labels(&labels)?;
                result.push(StepSeries {
                    labels,
                    values: vec![ABSENT; steps.count],
                });
            }
            result[place].values[step] = *value;
        }
        Ok(())
    }

    /// Returns the labels of a series at a step; `None` if it is left out there.
    fn labels_at(
        &self,
        base: &LabelSet,
        found: &[usize],
        step: usize,
    ) -> Result<Option<LabelSet>, PromqlError> {
        let mut added: Vec<(&str, &str)> = Vec::new();
        for index in found {
            let info = &self.infos[*index];
            if is_absent(info.values[step]) {
                continue;
            }
            for (name, value) in info.labels.iter().filter(|label| self.is_data(label.0)) {
                match added.iter().find(|label| label.0 == name) {
                    Some((_, other)) if *other != value => {
                        return Err(PromqlError::execution(format!("conflicting label: {name}")));
                    }
                    Some(_) => {}
                    // Labels of the series itself stay.
                    None if base.get(name).is_empty() => added.push((name, value)),
                    None => {}
                }
            }
        }
        if added.is_empty() {
            return Ok((!self.requires_data).then(|| base.clone()));
        }
        Ok(Some(LabelSet::new(base.iter().chain(added))))
    }

    fn is_data(&self, name: &str) -> bool {
        let is_selected =
            self.data.is_empty() || self.data.iter().any(|matcher| matcher.name == name);
        name != NAME && !IDENTIFYING.contains(&name) && is_selected
    }
}

fn identity(labels: &LabelSet) -> LabelSet {
    labels.retain(|name| IDENTIFYING.contains(&name))
}
