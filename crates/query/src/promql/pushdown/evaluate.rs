//! What a node does with an aggregation that its parent pushed down.

use std::time::Duration;

use super::super::aggregate::{
    AggregateGroup, Count, Group, Max, Mean, Min, StepAccumulator, Sum, choose_ranked, fold, group,
};
use super::super::error::PromqlError;
use super::super::evaluator::Evaluator;
use super::super::functions::over_time::{KahanSum, RunningMean};
use super::super::limits::PromqlLimits;
use super::super::node::{AggregateOperation, Grouping};
use super::super::parse;
use super::super::source::{Selection, SeriesSampleVisitor, SeriesSource};
use super::super::steps::Steps;
use super::super::value::{ABSENT, StepSeries, is_absent};
use super::operand::LocalOperand;
use super::{HOST, PushedOperator, PushedRequest, PushedSeries};

/// Takes the place of a host whose name is not known here. The label influences the order of
/// series, and so which of equal values `topk` chooses; its value does not.
const UNNAMED: &str = "-";

/// The name under which a node's own label `host` is shown.
const EXPORTED_HOST: &str = "exported_host";

/// Evaluates an aggregation over the series of one node. They get the label `host` before they are
/// grouped; without `host`, the result does not have it and the caller adds it with [`set_host`].
/// The limits on memory and the lookback are also those of the request.
pub fn evaluate_pushed(
    source: &dyn SeriesSource,
    request: &PushedRequest,
    host: Option<&str>,
    limits: &PromqlLimits,
) -> Result<Vec<PushedSeries>, PromqlError> {
    let source = HostSource {
        source,
        host: host.unwrap_or(UNNAMED),
    };
    let mut result = evaluate_pushed_with_hosts(&source, request, limits)?;
    if host.is_none() {
        for series in &mut result {
            series.labels = series.labels.with(HOST, "");
        }
    }
    Ok(result)
}

/// Evaluates an aggregation over series that have the label `host` already.
pub fn evaluate_pushed_with_hosts(
    source: &dyn SeriesSource,
    request: &PushedRequest,
    limits: &PromqlLimits,
) -> Result<Vec<PushedSeries>, PromqlError> {
    let steps = request.steps.steps()?;
    let limits = PromqlLimits {
        bytes_max: limits.bytes_max.min(request.bytes_max),
        lookback: Duration::from_millis(request.lookback.unsigned_abs()),
        ..limits.clone()
    };
    let node = parse::plan(&request.expression, steps.start, steps.last(), &limits)?;
    let names_host =
        |operand: &LocalOperand<'_>| operand.matchers.iter().any(|one| one.name == HOST);
    if LocalOperand::find(&node).is_none_or(|operand| names_host(&operand)) {
        return Err(PromqlError::bad_data(format!(
            "a node cannot evaluate {:?} by itself",
            request.expression
        )));
    }
    let query = (steps, steps.last());
    let mut evaluator = Evaluator::new(source, &request.expression, query, &limits);
    let input = evaluator.eval_vector(&node, &steps)?;
    let groups = group(&mut evaluator.budget, &request.grouping, &input)?;
    partial_results(&mut evaluator, request.operator, (&groups, &input), &steps)
}

/// Sets the label `host` of a node's result, whatever the node sent, if the aggregation keeps it.
pub fn set_host(result: &mut [PushedSeries], request: &PushedRequest, host: &str) {
    let keeps_host = request.operator.keeps_series()
        || match &request.grouping {
            Grouping::By(names) => names.iter().any(|name| name == HOST),
            Grouping::Without(names) => names.iter().all(|name| name != HOST),
        };
    let host = if keeps_host { host } else { "" };
    for series in result {
        series.labels = series.labels.with(HOST, host);
    }
}

/// The series of a node with the label `host`. One of that name that they may have is shown as
/// `exported_host`.
struct HostSource<'a> {
    source: &'a dyn SeriesSource,
    host: &'a str,
}

impl SeriesSource for HostSource<'_> {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.source.select(selection, &mut |labels, samples| {
            let labels = match (labels.get(HOST), labels.get(EXPORTED_HOST)) {
                (host, "") if !host.is_empty() => labels.with(EXPORTED_HOST, host),
                _ => labels,
            };
            visit(labels.with(HOST, self.host), samples)
        })
    }
}

fn partial_results(
    evaluator: &mut Evaluator<'_>,
    operator: PushedOperator,
    (groups, input): (&[AggregateGroup], &[StepSeries]),
    steps: &Steps,
) -> Result<Vec<PushedSeries>, PromqlError> {
    let columns = match operator {
        PushedOperator::Sum => {
            return per_group(evaluator, (groups, input), steps, sum_series);
        }
        PushedOperator::Avg => {
            return per_group(evaluator, (groups, input), steps, mean_series);
        }
        PushedOperator::Count => fold::<Count>(evaluator, groups, input, steps)?,
        PushedOperator::Min => fold::<Min>(evaluator, groups, input, steps)?,
        PushedOperator::Max => fold::<Max>(evaluator, groups, input, steps)?,
        PushedOperator::Group => fold::<Group>(evaluator, groups, input, steps)?,
        PushedOperator::TopK(count) | PushedOperator::BottomK(count) => {
            let counts = vec![f64::from(count); steps.count];
            let (budget, series) = (&mut evaluator.budget, (groups, input));
            choose_ranked(budget, ranking(operator), &counts, series)?
        }
    };
    Ok(columns.into_iter().map(PushedSeries::of_column).collect())
}

/// Returns the order in which an operator chooses series.
pub(super) fn ranking(operator: PushedOperator) -> AggregateOperation {
    match operator {
        PushedOperator::BottomK(_) => AggregateOperation::BottomK,
        _ => AggregateOperation::TopK,
    }
}

/// Adds up the series of each group, and makes a series of the states of all steps.
fn per_group<A: StepAccumulator>(
    evaluator: &mut Evaluator<'_>,
    (groups, input): (&[AggregateGroup], &[StepSeries]),
    steps: &Steps,
    series_of: fn(&AggregateGroup, &[Option<A>]) -> PushedSeries,
) -> Result<Vec<PushedSeries>, PromqlError> {
    evaluator
        .budget
        .reserve(steps.count * size_of::<Option<A>>())?;
    let mut states: Vec<Option<A>> = Vec::new();
    let mut result = Vec::with_capacity(groups.len());
    for group in groups {
        // Values, compensations and counts.
        evaluator.reserve_series(3, steps)?;
        states.clear();
        states.resize_with(steps.count, || None);
        for member in &group.members {
            evaluator.budget.spend(steps.count)?;
            for (state, value) in states.iter_mut().zip(&input[*member].values) {
                if !is_absent(*value) {
                    state.get_or_insert_default().add(*value);
                }
            }
        }
        result.push(series_of(group, &states));
    }
    Ok(result)
}

fn sum_series(group: &AggregateGroup, states: &[Option<Sum>]) -> PushedSeries {
    let sums = states.iter().map(|state| state.as_ref().map(|sum| sum.0));
    PushedSeries {
        labels: group.labels.clone(),
        values: sums
            .clone()
            .map(|sum| sum.map_or(ABSENT, |sum| sum.sum))
            .collect(),
        compensations: compensations(sums),
        counts: Vec::new(),
        are_means: false,
    }
}

fn mean_series(group: &AggregateGroup, states: &[Option<Mean>]) -> PushedSeries {
    let means = states.iter().map(|state| state.as_ref().map(|mean| mean.0));
    // The mean of finite values is finite even if their sum is not. A mean that is not finite is
    // equal to the sum.
    let has_no_sum = |mean: RunningMean| mean.is_incremental && mean.mean().is_finite();
    let are_means = means.clone().flatten().any(has_no_sum);
    let has_sum = |mean: &RunningMean| !are_means && !mean.is_incremental;
    let value = |mean: RunningMean| match has_sum(&mean) {
        true => mean.sum.sum,
        false => mean.mean(),
    };
    let sums = means
        .clone()
        .map(|mean| mean.filter(has_sum).map(|mean| mean.sum));
    let count = |mean: Option<RunningMean>| mean.map_or(0, |mean| mean.count as u64);
    PushedSeries {
        labels: group.labels.clone(),
        values: means
            .clone()
            .map(|mean| mean.map_or(ABSENT, value))
            .collect(),
        compensations: compensations(sums),
        counts: means.map(count).collect(),
        are_means,
    }
}

/// Returns what rounding took from sums; nothing if it took nothing from any of them.
fn compensations(sums: impl Iterator<Item = Option<KahanSum>> + Clone) -> Vec<f64> {
    let lost = |sum: Option<KahanSum>| sum.map_or(0.0, |sum| sum.compensation);
    if sums.clone().all(|sum| lost(sum) == 0.0) {
        return Vec::new();
    }
    sums.map(lost).collect()
}
