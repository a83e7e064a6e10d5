//! Aggregations that the nodes of a tree evaluate, instead of sending their samples to a parent.
//!
//! ```text
//! parent   evaluator ──► offer ──► SeriesSource::aggregate ──► PushedMerger ──► columns
//!                        operand       │  request                  ▲  series
//! node                                 └──► evaluate_pushed ───────┘
//! ```
//!
//! `sum by (cpu) (rate(x[5m]))` over all nodes is the sum of what each node has for it, because the
//! operand is computed from one series at a time (`operand.rs`). The evaluator offers every such
//! aggregation to its source before it evaluates it. Counts, minima, maxima and the choices of
//! `topk` and `bottomk` are exactly those of an evaluation over all series. Sums and averages are
//! carried with what rounding took from them, so that they differ in the last digit at most. The
//! order of an instant query's groups is that of their labels.
//!
//! The route is `POST /tree/aggregate`, reachable only through the tree. The body is
//! [`encode_pushed_request`], the response [`encode_pushed_series`], or the status and the message
//! of a [`PromqlError`]. An agent answers
//! 1. with [`evaluate_pushed`] over its own store, with its own name as the host if it has
//!    children and without host otherwise, unless `nodes` leaves it out,
//! 2. after sending the same body to its children: [`decode_pushed_series`] for each response, and
//!    [`set_host`] if the child is no parent, so that a node cannot take the name of another,
//! 3. with all of them in one [`PushedMerger`].
//!
//! The source of a parent does the same in [`SeriesSource::aggregate`](super::SeriesSource), with
//! `nodes` chosen by the matchers of the label `host`. A node that fails with
//! [`PromqlErrorKind::BadData`](super::PromqlErrorKind) or `Execution` fails the query, as it would
//! over all series; one that does not answer is reported as missing. If a child does not know the
//! route (status 404), the source returns `None` and the evaluator selects the series.

mod codec;
mod evaluate;
mod merge;
mod operand;

use std::time::{Duration, Instant};

use pegel_metric::Millis;
use pegel_store::QueryCancellation;

use super::check_time;
use super::error::PromqlError;
use super::evaluator::Evaluator;
use super::functions::over_time::KahanSum;
use super::labels::LabelSet;
use super::limits::PromqlLimits;
use super::matcher::LabelMatcher;
use super::node::{AggregateNode, AggregateOperation, Grouping};
use super::steps::Steps;
use super::value::StepSeries;
use crate::tags::HOST;

pub use codec::{
    decode_pushed_request, decode_pushed_series, encode_pushed_request, encode_pushed_series,
};
pub use evaluate::{evaluate_pushed, evaluate_pushed_with_hosts, set_host};
pub use merge::{PushedMerger, merge_pushed};

use operand::LocalOperand;

/// The maximum number of steps of an aggregation that is pushed down. Subqueries may have more than
/// a range query.
const STEPS_MAX: usize = 100_000;

/// The aggregations that can be pushed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushedOperator {
    Sum,
    Count,
    Min,
    Max,
    Avg,
    Group,
    TopK(u32),
    BottomK(u32),
}

impl PushedOperator {
    /// Returns whether the result consists of series of the operand, with their labels.
    fn keeps_series(self) -> bool {
        matches!(self, PushedOperator::TopK(_) | PushedOperator::BottomK(_))
    }
}

/// The times of evaluation: `start`, and every `step` milliseconds up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRange {
    pub start: Millis,
    pub end: Millis,
    pub step: Millis,
}

impl StepRange {
    /// Returns the steps; fails if there are none or too many.
    fn steps(self) -> Result<Steps, PromqlError> {
        check_time("start", self.start)?;
        check_time("end", self.end)?;
        Steps::of_range(self.start, self.end, self.step, STEPS_MAX)
    }
}

/// An aggregation as it is sent to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedRequest {
    /// The operand. Its times are absolute or relative to the step, and it does not mention `host`.
    pub expression: String,
    pub operator: PushedOperator,
    pub grouping: Grouping,
    pub steps: StepRange,
    /// The age up to which the last sample of a series is its current value.
    pub lookback: Millis,
    /// The limit on memory, and on the response.
    pub bytes_max: usize,
    /// Only these nodes; none: all nodes.
    pub nodes: Vec<String>,
}

/// An aggregation that the evaluator offers to its source.
#[derive(Debug)]
pub struct PushedAggregation<'a> {
    /// With no `nodes`: the source sets them.
    pub request: PushedRequest,
    /// The matchers of the label `host`: only nodes that all of them accept take part.
    pub host_matchers: Vec<&'a LabelMatcher>,
    pub deadline: Instant,
    pub cancellation: QueryCancellation,
}

impl PushedAggregation<'_> {
    /// Returns whether a node takes part.
    pub fn accepts_host(&self, host: &str) -> bool {
        self.host_matchers
            .iter()
            .all(|matcher| matcher.accepts(host))
    }

    /// Returns the limits for evaluating and merging within this aggregation.
    pub fn limits(&self) -> PromqlLimits {
        PromqlLimits {
            bytes_max: self.request.bytes_max,
            time_max: self.deadline.saturating_duration_since(Instant::now()),
            lookback: Duration::from_millis(self.request.lookback.unsigned_abs()),
            cancellation: self.cancellation.clone(),
            ..PromqlLimits::default()
        }
    }
}

/// One series of a partial or complete result.
#[derive(Debug, Clone, PartialEq)]
pub struct PushedSeries {
    pub labels: LabelSet,
    /// One value per step, [`STALE_NAN`](super::STALE_NAN) where there is none. Of an average, the
    /// sums.
    pub values: Vec<f64>,
    /// What rounding took from the sums, per step; empty if nothing.
    pub compensations: Vec<f64>,
    /// The numbers of values of an average, per step; otherwise empty.
    pub counts: Vec<u64>,
    /// The values of an average are means: the sums would overflow.
    pub are_means: bool,
}

impl PushedSeries {
    fn of_column(column: StepSeries) -> PushedSeries {
        PushedSeries {
            labels: column.labels,
            values: column.values,
            compensations: Vec::new(),
            counts: Vec::new(),
            are_means: false,
        }
    }

    /// Fails unless every column that the operator requires has one value per step.
    fn check(&self, operator: PushedOperator, steps: usize) -> Result<(), PromqlError> {
        let is_sum = matches!(operator, PushedOperator::Sum | PushedOperator::Avg);
        let counts = match operator {
            PushedOperator::Avg => steps,
            _ => 0,
        };
        let has_compensations = is_sum && !self.are_means && self.compensations.len() == steps;
        let is_whole = self.values.len() == steps
            && self.counts.len() == counts
            && (self.compensations.is_empty() || has_compensations)
            && (operator == PushedOperator::Avg || !self.are_means);
        match is_whole {
            true => Ok(()),
            false => Err(PromqlError::internal(
                "malformed series in the response to an aggregation",
            )),
        }
    }

    fn compensation(&self, step: usize) -> f64 {
        self.compensations.get(step).copied().unwrap_or(0.0)
    }

    fn sum(&self, step: usize) -> KahanSum {
        KahanSum::new(self.values[step], self.compensation(step))
    }

    /// Returns the mean of an average at a step.
    fn mean(&self, step: usize) -> f64 {
        let (value, count) = (self.values[step], self.counts[step] as f64);
        match self.are_means {
            true => value,
            false => value / count + self.compensation(step) / count,
        }
    }
}

/// Offers an aggregation to the source; `None` if it cannot be pushed down or the source declines.
pub(crate) fn offer(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    steps: &Steps,
) -> Result<Option<Vec<StepSeries>>, PromqlError> {
    let Some(operand) = LocalOperand::find(&node.expression) else {
        return Ok(None);
    };
    let Some(operator) = operator(evaluator, node, &operand, steps) else {
        return Ok(None);
    };
    let Some(expression) = operand::text(evaluator, &node.expression) else {
        return Ok(None);
    };
    if steps.count > STEPS_MAX {
        return Ok(None);
    }
    let pushed = PushedAggregation {
        request: PushedRequest {
            expression,
            operator,
            grouping: node.grouping.clone(),
            steps: StepRange {
                start: steps.start,
                end: steps.last(),
                step: steps.interval,
            },
            lookback: evaluator.lookback,
            bytes_max: evaluator.budget.bytes_left(),
            nodes: Vec::new(),
        },
        host_matchers: operand
            .matchers
            .iter()
            .filter(|matcher| matcher.name == HOST)
            .collect(),
        deadline: evaluator.budget.deadline(),
        cancellation: evaluator.budget.cancellation().clone(),
    };
    let Some(answer) = evaluator.source.aggregate(&pushed) else {
        return Ok(None);
    };
    let answer = answer?;
    operand::annotate(evaluator, &node.expression, answer.is_empty(), steps)?;
    let mut columns = Vec::with_capacity(answer.len());
    for series in answer {
        series.check(operator, steps.count)?;
        evaluator.reserve_series(1, steps)?;
        evaluator.reserve_labels(&series.labels)?;
        columns.push(merge::column(series, operator));
    }
    Ok(Some(columns))
}

/// Returns the operator; `None` if its partial results cannot be merged exactly.
fn operator(
    evaluator: &mut Evaluator<'_>,
    node: &AggregateNode,
    operand: &LocalOperand<'_>,
    steps: &Steps,
) -> Option<PushedOperator> {
    Some(match node.operation {
        AggregateOperation::Sum => PushedOperator::Sum,
        AggregateOperation::Count => PushedOperator::Count,
        AggregateOperation::Min => PushedOperator::Min,
        AggregateOperation::Max => PushedOperator::Max,
        AggregateOperation::Avg => PushedOperator::Avg,
        AggregateOperation::Group => PushedOperator::Group,
        AggregateOperation::TopK | AggregateOperation::BottomK => {
            let parameter = node.parameter.as_deref();
            let parameter = parameter.filter(|node| operand::is_series_free(node))?;
            let counts = evaluator.eval_scalar(parameter, steps).ok()?;
            let count = counts[0];
            let is_same = counts.iter().all(|other| *other == count);
            if !operand.has_known_order || !is_same || !(0.0..=1e9).contains(&count) {
                return None;
            }
            match node.operation {
                AggregateOperation::TopK => PushedOperator::TopK(count as u32),
                _ => PushedOperator::BottomK(count as u32),
            }
        }
        _ => return None,
    })
}
