//! Aggregations over series: groups are formed once, then every group is computed for all steps.

mod accumulator;
mod ranked;
mod sampling_hash;
mod values;

use std::collections::HashMap;

use super::error::PromqlError;
use super::evaluator::Evaluator;
use super::labels::{LabelSet, NAME};
use super::limits::EvaluationBudget;
use super::node::{AggregateNode, AggregateOperation, Grouping};
use super::pushdown;
use super::steps::Steps;
use super::value::{ABSENT, StepSeries, is_absent};

pub(crate) use accumulator::{Count, Group, Max, Mean, Min, StepAccumulator, Sum};
use accumulator::{Stddev, Stdvar};
pub(crate) use ranked::choose_ranked;

/// The series of one group, as indexes into the input.
pub(crate) struct AggregateGroup {
    pub labels: LabelSet,
    pub members: Vec<usize>,
}

/// Evaluates an aggregation.
pub(crate) fn aggregate(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    if evaluator.source.takes_aggregations()
        && let Some(result) = pushdown::offer(evaluator, node, steps)?
    {
        return Ok(result);
    }
    let input = evaluator.eval_vector(&node.expression, steps)?;
    if node.operation == AggregateOperation::CountValues {
        let result = values::count_values(evaluator, node, &input, steps)?;
        evaluator.release_series(&input);
        return Ok(result);
    }
    let groups = group(&mut evaluator.budget, &node.grouping, &input)?;
    let result = match node.operation {
        AggregateOperation::Sum => fold::<Sum>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Avg => fold::<Mean>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Min => fold::<Min>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Max => fold::<Max>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Count => fold::<Count>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Group => fold::<Group>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Stddev => fold::<Stddev>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Stdvar => fold::<Stdvar>(evaluator, &groups, &input, steps)?,
        AggregateOperation::Quantile => {
            values::quantile(evaluator, node, (&groups, &input), steps)?
        }
        AggregateOperation::TopK
        | AggregateOperation::BottomK
        | AggregateOperation::LimitK
        | AggregateOperation::LimitRatio => {
            ranked::choose(evaluator, node, (&groups, &input), steps)?
        }
        AggregateOperation::CountValues => Vec::new(),
    };
    evaluator.release_series(&input);
    Ok(result)
}

/// Returns the labels of the group of a series.
fn group_labels(grouping: &Grouping, labels: &LabelSet) -> LabelSet {
    match grouping {
        Grouping::By(names) if names.is_empty() => LabelSet::empty(),
        Grouping::By(names) => labels.retain(|name| names.iter().any(|kept| kept == name)),
        Grouping::Without(names) => {
            labels.retain(|name| name != NAME && names.iter().all(|dropped| dropped != name))
        }
    }
}

/// Groups series, in the order of the first series of each group.
pub(crate) fn group(
    budget: &mut EvaluationBudget,
    grouping: &Grouping,
    input: &[StepSeries],
) -> Result<Vec<AggregateGroup>, PromqlError> {
    let mut groups: Vec<AggregateGroup> = Vec::new();
    let mut places: HashMap<LabelSet, usize> = HashMap::new();
    for (index, series) in input.iter().enumerate() {
        budget.spend(64)?;
        let labels = group_labels(grouping, &series.labels);
        let place = *places.entry(labels.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(AggregateGroup {
                labels,
                members: Vec::new(),
            });
        }
        groups[place].members.push(index);
    }
    Ok(groups)
}

/// Adds up the series of each group, series by series, with one accumulator per step.
pub(crate) fn fold<A: StepAccumulator>(
    evaluator: &mut Evaluator<'_>,
    groups: &[AggregateGroup],
    input: &[StepSeries],
    steps: &Steps,
) -> Result<Vec<StepSeries>, PromqlError> {
    let scratch = steps.count * size_of::<Option<A>>();
    evaluator.budget.reserve(scratch)?;
    let mut accumulators: Vec<Option<A>> = Vec::new();
    let mut columns = Vec::with_capacity(groups.len());
    for group in groups {
        evaluator.reserve_series(1, steps)?;
        accumulators.clear();
        accumulators.resize_with(steps.count, || None);
        for member in &group.members {
            evaluator.budget.spend(steps.count)?;
            for (accumulator, value) in accumulators.iter_mut().zip(&input[*member].values) {
                if !is_absent(*value) {
                    accumulator.get_or_insert_default().add(*value);
                }
            }
        }
        let result = |accumulator: &Option<A>| accumulator.as_ref().map_or(ABSENT, A::result);
        columns.push(StepSeries {
            labels: group.labels.clone(),
            values: accumulators.iter().map(result).collect(),
        });
    }
    evaluator.budget.release(scratch);
    Ok(columns)
}
