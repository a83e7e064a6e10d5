//! Functions over whole vectors: `absent`, `scalar`, `vector`, `timestamp`, and the times of the
//! query.

use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, join_same_labels};
use super::super::labels::{LabelSet, NAME};
use super::super::matcher::{LabelMatcher, MatchKind};
use super::super::node::{CallNode, ExprNode, RangeInput};
use super::super::selection::WindowCache;
use super::super::steps::Steps;
use super::super::value::{ABSENT, NodeValue, StepSeries, is_absent};
use super::WholeResult;

/// Returns one series without labels that has the time of each step, in seconds.
pub(super) fn time_vector(
    evaluator: &mut Evaluator<'_>,
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    evaluator.reserve_series(1, steps)?;
    Ok(vec![StepSeries {
        labels: LabelSet::empty(),
        values: steps.times().map(|time| time as f64 / 1_000.0).collect(),
    }])
}

pub(super) fn vector(evaluator: &mut Evaluator<'_>, node: &CallNode, steps: &Steps) -> WholeResult {
    let values = evaluator.eval_scalar(&node.arguments[0], steps)?;
    evaluator.reserve_series(1, steps)?;
    Ok(NodeValue::Vector(vec![StepSeries {
        labels: LabelSet::empty(),
        values,
    }]))
}

/// Returns the value of the only series at each step; NaN if there is none or more than one.
pub(super) fn scalar(evaluator: &mut Evaluator<'_>, node: &CallNode, steps: &Steps) -> WholeResult {
    let series = evaluator.eval_vector(&node.arguments[0], steps)?;
    let NodeValue::Scalar(mut values) = evaluator.scalar(f64::NAN, steps)? else {
        return Err(PromqlError::internal("a scalar is not a scalar"));
    };
    for (step, value) in values.iter_mut().enumerate() {
        evaluator.budget.spend(series.len())?;
        let mut present = series
            .iter()
            .map(|one| one.values[step])
            .filter(|value| !is_absent(*value));
        if let (Some(only), None) = (present.next(), present.next()) {
            *value = only;
        }
    }
    evaluator.release_series(&series);
    Ok(NodeValue::Scalar(values))
}

/// Returns the times of samples, in seconds. Values that are computed have the time of the step.
pub(super) fn timestamp(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let mut series = match node.arguments[0].unwrap_constant() {
        ExprNode::Selector(selector) => {
            evaluator.select_with(selector, steps, |time, _| time as f64 / 1_000.0)?
        }
        other => {
            let mut series = evaluator.eval_vector(other, steps)?;
            for one in &mut series {
                evaluator.budget.spend(steps.count)?;
                for (step, value) in one.values.iter_mut().enumerate() {
                    if !is_absent(*value) {
                        *value = steps.time(step) as f64 / 1_000.0;
                    }
                }
            }
            series
        }
    };
    for one in &mut series {
        one.labels = one.labels.without_name();
    }
    Ok(NodeValue::Vector(join_same_labels(series)?))
}

pub(super) fn absent(evaluator: &mut Evaluator<'_>, node: &CallNode, steps: &Steps) -> WholeResult {
    let series = evaluator.eval_vector(&node.arguments[0], steps)?;
    let matchers = match node.arguments[0].unwrap_constant() {
        ExprNode::Selector(selector) => &selector.matchers[..],
        _ => &[],
    };
    let mut is_present = vec![false; steps.count];
    for one in &series {
        evaluator.budget.spend(steps.count)?;
        for (present, value) in is_present.iter_mut().zip(&one.values) {
            *present |= !is_absent(*value);
        }
    }
    evaluator.release_series(&series);
    absence(evaluator, matchers, &is_present, steps)
}

pub(super) fn absent_over_time(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let ExprNode::Range(range) = &node.arguments[0] else {
        return Err(PromqlError::bad_data("expected a range vector"));
    };
    let matchers = match &range.input {
        RangeInput::Selector(matchers) => &matchers[..],
        RangeInput::Subquery { .. } => &[],
    };
    let mut cache = WindowCache::default();
    let mut is_present = vec![false; steps.count];
    evaluator.for_each_range(range, steps, &mut |evaluator, one| {
        evaluator.budget.spend(steps.count + one.times.len())?;
        let bounds = cache.bounds(&one.times, (range.shift, range.range), steps);
        for (present, bounds) in is_present.iter_mut().zip(bounds) {
            *present |= bounds.from < bounds.until;
        }
        Ok(())
    })?;
    absence(evaluator, matchers, &is_present, steps)
}

/// Returns a series that is 1 at the steps at which nothing is present. Its labels are those that
/// the matchers require to be equal to one value.
fn absence(
    evaluator: &mut Evaluator<'_>,
    matchers: &[LabelMatcher],
    is_present: &[bool],
    steps: &Steps,
) -> WholeResult {
    if is_present.iter().all(|present| *present) {
        return Ok(NodeValue::Vector(Vec::new()));
    }
    let is_only = |matcher: &&LabelMatcher| {
        let same_name = matchers.iter().filter(|other| other.name == matcher.name);
        same_name.count() == 1
    };
    let required = matchers
        .iter()
        .filter(|matcher| matches!(matcher.kind, MatchKind::Equal) && matcher.name != NAME)
        .filter(is_only);
    evaluator.reserve_series(1, steps)?;
    Ok(NodeValue::Vector(vec![StepSeries {
        labels: LabelSet::new(required.map(|matcher| (&matcher.name, &matcher.value))),
        values: is_present
            .iter()
            .map(|present| if *present { ABSENT } else { 1.0 })
            .collect(),
    }]))
}

pub(super) fn query_start(
    evaluator: &mut Evaluator<'_>,
    _: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let start = evaluator.query_steps.start;
    evaluator.scalar(start as f64 / 1_000.0, steps)
}

pub(super) fn query_end(evaluator: &mut Evaluator<'_>, _: &CallNode, steps: &Steps) -> WholeResult {
    let end = evaluator.query_end;
    evaluator.scalar(end as f64 / 1_000.0, steps)
}

pub(super) fn query_range(
    evaluator: &mut Evaluator<'_>,
    _: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let range = evaluator.query_end - evaluator.query_steps.start;
    evaluator.scalar(range as f64 / 1_000.0, steps)
}

/// Returns the step of a range query in seconds; 0 for an instant query.
pub(super) fn query_step(
    evaluator: &mut Evaluator<'_>,
    _: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let query = evaluator.query_steps;
    let is_instant = query == Steps::single(query.start);
    let step = if is_instant { 0 } else { query.interval };
    evaluator.scalar(step as f64 / 1_000.0, steps)
}
