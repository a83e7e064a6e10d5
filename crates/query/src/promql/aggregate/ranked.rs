//! The aggregations that choose series instead of combining them: `topk`, `bottomk`, `limitk`,
//! `limit_ratio`. The chosen series keep their labels.

use std::cmp::Ordering;

use super::super::annotations::QueryAnnotation;
use super::super::error::PromqlError;
use super::super::evaluator::Evaluator;
use super::super::limits::EvaluationBudget;
use super::super::node::{AggregateNode, AggregateOperation};
use super::super::steps::Steps;
use super::super::value::{ABSENT, StepSeries, is_absent};
use super::AggregateGroup;
use super::sampling_hash::sampling_offset;
use super::values::scalar_parameter;

/// Evaluates an aggregation that chooses series at each step.
pub(super) fn choose(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    (groups, input): (&[AggregateGroup], &[StepSeries]),
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let parameters = scalar_parameter(evaluator, node, steps)?;
    // Without series, Prometheus does not check the parameter.
    if input.is_empty() {
        return Ok(Vec::new());
    }
    if node.operation == AggregateOperation::LimitRatio {
        return choose_ratio(evaluator, node, &parameters, input, steps);
    }
    check_counts(&parameters)?;
    choose_ranked(
        &mut evaluator.budget,
        node.operation,
        &parameters,
        (groups, input),
    )
}

/// Chooses up to as many series of each group as `counts` states for each step: the first ones of
/// the order of `topk` or `bottomk`, otherwise of the input. Equal values keep the order of the
/// input.
pub(crate) fn choose_ranked(
    budget: &mut EvaluationBudget,
    operation: AggregateOperation,
    counts: &[f64],
    (groups, input): (&[AggregateGroup], &[StepSeries]),
) -> Result<Vec<StepSeries>, PromqlError> {
    let mut result = Vec::new();
    for group in groups {
        let mut chosen: Vec<Option<Vec<f64>>> = vec![None; group.members.len()];
        // The order in which members were chosen at the last step, for instant queries.
        let mut order: Vec<usize> = Vec::new();
        for (step, count) in counts.iter().enumerate() {
            budget.spend(4 * group.members.len())?;
            // Not positive, too small or NaN: nothing is chosen.
            let count = count.max(0.0) as usize;
            order.clear();
            order.extend(
                (0..group.members.len())
                    .filter(|place| !is_absent(input[group.members[*place]].values[step])),
            );
            let value = |place: &usize| input[group.members[*place]].values[step];
            match operation {
                AggregateOperation::TopK => {
                    order.sort_by(|a, b| rank(value(a), value(b), |a, b| b.total_cmp(a)));
                }
                AggregateOperation::BottomK => {
                    order.sort_by(|a, b| rank(value(a), value(b), f64::total_cmp));
                }
                _ => {}
            }
            order.truncate(count);
            for place in &order {
                if chosen[*place].is_none() {
                    budget.reserve(StepSeries::bytes(counts.len()))?;
                    budget.spend(counts.len())?;
                }
                let column = chosen[*place].get_or_insert_with(|| vec![ABSENT; counts.len()]);
                column[step] = value(place);
            }
        }
        if counts.len() > 1 {
            order = (0..group.members.len()).collect();
        }
        for place in order {
            if let Some(values) = chosen[place].take() {
                result.push(StepSeries {
                    labels: input[group.members[place]].labels.clone(),
                    values,
                });
            }
        }
    }
    Ok(result)
}

/// Orders values by `order`; NaN comes last whatever the direction.
fn rank(a: f64, b: f64, order: fn(&f64, &f64) -> Ordering) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => order(&a, &b),
        (a, b) => a.cmp(&b),
    }
}

fn check_counts(counts: &[f64]) -> Result<(), PromqlError> {
    for count in counts {
        if count.is_nan() {
            return Err(PromqlError::execution("Parameter value is NaN"));
        }
        if *count <= i64::MIN as f64 {
            return Err(PromqlError::execution(format!(
                "Scalar value {count} underflows int64"
            )));
        }
        if *count >= i64::MAX as f64 {
            return Err(PromqlError::execution(format!(
                "Scalar value {count} overflows int64"
            )));
        }
    }
    Ok(())
}

/// Chooses a part of the series by a hash of their labels, so that the same series are chosen in
/// every query; a negative ratio chooses those that its complement leaves out.
fn choose_ratio(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    ratios: &[f64],
    input: &[StepSeries],
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let mut capped = Vec::with_capacity(ratios.len());
    for ratio in ratios {
        if ratio.is_nan() {
            return Err(PromqlError::execution("Ratio value is NaN"));
        }
        let used = ratio.clamp(-1.0, 1.0);
        if used != *ratio {
            let annotation = QueryAnnotation::RatioOutOfRange(*ratio, used);
            evaluator.annotate(&annotation, node.position.argument(0));
        }
        capped.push(used);
    }
    let mut result = Vec::new();
    for series in input {
        evaluator.reserve_series(1, steps)?;
        let offset = sampling_offset(&series.labels);
        let is_chosen =
            |ratio: f64| (ratio >= 0.0 && offset < ratio) || (ratio < 0.0 && offset >= 1.0 + ratio);
        let pairs = series.values.iter().zip(&capped);
        let values = pairs.map(|(value, ratio)| if is_chosen(*ratio) { *value } else { ABSENT });
        let column = StepSeries {
            labels: series.labels.clone(),
            values: values.collect(),
        };
        if column.is_empty() {
            evaluator.release_series(std::slice::from_ref(&column));
        } else {
            result.push(column);
        }
    }
    Ok(result)
}
