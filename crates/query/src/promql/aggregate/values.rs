//! The aggregations that need all values of a step: `quantile` and `count_values`.

use std::collections::HashMap;

use super::super::error::PromqlError;
use super::super::evaluator::Evaluator;
use super::super::functions::{over_time, warn_of_quantiles};
use super::super::labels::LabelSet;
use super::super::node::{AggregateNode, ExprNode, Grouping};
use super::super::steps::Steps;
use super::super::value::{ABSENT, StepSeries, is_absent, plain_number};
use super::{AggregateGroup, group_labels};

/// Evaluates the scalar parameter of an aggregation.
pub(super) fn scalar_parameter(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    steps: &Steps,
) -> Result<Vec<f64>, PromqlError> {
    match &node.parameter {
        Some(parameter) => evaluator.eval_scalar(parameter, steps),
        None => Err(PromqlError::bad_data(
            "the aggregation requires a parameter",
        )),
    }
}

pub(super) fn quantile(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    (groups, input): (&[AggregateGroup], &[StepSeries]),
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let quantiles = scalar_parameter(evaluator, node, steps)?;
    warn_of_quantiles(evaluator, &quantiles, node.position.argument(0));
    let mut present = Vec::new();
    let mut columns = Vec::with_capacity(groups.len());
    for group in groups {
        evaluator.reserve_series(1, steps)?;
        let mut values = Vec::with_capacity(steps.count);
        for (step, at) in quantiles.iter().enumerate() {
            evaluator.budget.spend(4 * group.members.len())?;
            present.clear();
            let members = group
                .members
                .iter()
                .map(|member| input[*member].values[step]);
            present.extend(members.filter(|value| !is_absent(*value)));
            values.push(match present.is_empty() {
                true => ABSENT,
                false => over_time::quantile(&mut present, *at),
            });
        }
        columns.push(StepSeries {
            labels: group.labels.clone(),
            values,
        });
    }
    Ok(columns)
}

/// Counts the series of each group that have the same value; the value becomes a label.
pub(super) fn count_values(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    input: &[StepSeries],
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let Some(ExprNode::Text(label)) = node.parameter.as_deref() else {
        return Err(PromqlError::bad_data(
            "count_values requires the name of a label",
        ));
    };
    if label.is_empty() {
        return Err(PromqlError::execution("invalid label name \"\""));
    }
    // The new label is one of the group, even if a series has a label of that name.
    let grouping = match &node.grouping {
        Grouping::By(names) => Grouping::By(names.iter().chain([label]).cloned().collect()),
        without => without.clone(),
    };
    let mut columns: Vec<StepSeries> = Vec::new();
    let mut places: HashMap<LabelSet, usize> = HashMap::new();
    for series in input {
        let mut previous: Option<(u64, usize)> = None;
        for (step, value) in series.values.iter().enumerate() {
            evaluator.budget.spend(8)?;
            if is_absent(*value) {
                continue;
            }
            let place = match previous {
                Some((bits, place)) if bits == value.to_bits() => place,
                _ => {
                    let labels = series.labels.with(label, &plain_number(*value));
                    let labels = group_labels(&grouping, &labels);
                    let place = *places.entry(labels.clone()).or_insert(columns.len());
                    if place == columns.len() {
                        evaluator.reserve_series(1, steps)?;
                        columns.push(StepSeries {
                            labels,
                            values: vec![ABSENT; steps.count],
                        });
                    }
                    place
                }
            };
            previous = Some((value.to_bits(), place));
            let count = &mut columns[place].values[step];
            *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
        }
    }
    Ok(columns)
}
