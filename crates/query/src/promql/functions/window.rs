//! Calls functions for the window of every step.

use pegel_metric::Millis;

use super::super::annotations::QueryAnnotation;
use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, refuse_same_labels};
use super::super::node::{CallNode, ExprNode};
use super::super::selection::WindowCache;
use super::super::steps::Steps;
use super::super::value::{ABSENT, NodeValue, StepSeries};
use super::extrapolation::SpanCache;
use super::{WindowBody, WindowFunction, scalar_parameters};

/// The samples that a function sees at one step; there is at least one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    pub times: &'a [Millis],
    pub values: &'a [f64],
    /// The time of the step.
    pub step_time: Millis,
}

impl Window<'_> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Evaluates a call of a function over windows.
pub(super) fn call(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    body: &WindowBody,
    steps: &Steps,
) -> Result<NodeValue, PromqlError> {
    let mut range_index = 0;
    let mut range = None;
    let mut scalars = Vec::new();
    for (index, argument) in node.arguments.iter().enumerate() {
        match argument {
            ExprNode::Range(given) => (range, range_index) = (Some(given), index),
            scalar => scalars.push(scalar),
        }
    }
    let Some(range) = range else {
        return Err(PromqlError::bad_data("expected a range vector"));
    };
    let parameters = scalar_parameters(evaluator, scalars, steps)?;
    if node.function.name == "quantile_over_time" {
        warn_of_quantiles(evaluator, &parameters.columns[0], node.position.argument(0));
    }
    let mut cache = WindowCache::default();
    let mut spans = SpanCache::default();
    let mut at_step = vec![0.0; parameters.columns.len()];
    let mut columns: Vec<StepSeries> = Vec::new();
    let name_position = node.position.argument(range_index);
    evaluator.for_each_range(range, steps, &mut |evaluator, series| {
        evaluator.reserve_series(1, steps)?;
        evaluator.budget.spend(series.times.len())?;
        let bounds = cache.bounds(&series.times, (range.shift, range.range), steps);
        let values = match body.function {
            WindowFunction::Extrapolated(function) => {
                let samples = (&series.times, &series.values[..]);
                spans.changes(function, samples, bounds, (range, steps))
            }
            WindowFunction::Each(function) => {
                let mut values = Vec::with_capacity(steps.count);
                for (step, bounds) in bounds.iter().enumerate() {
                    if bounds.from == bounds.until {
                        values.push(ABSENT);
                        continue;
                    }
                    parameters.fill(step, &mut at_step);
                    evaluator.budget.spend(bounds.until - bounds.from)?;
                    let window = Window {
                        times: &series.times[bounds.from..bounds.until],
                        values: &series.values[bounds.from..bounds.until],
                        step_time: steps.time(step),
                    };
                    values.push(function(&window, &at_step)?.unwrap_or(ABSENT));
                }
                values
            }
        };
        let before = columns.len();
        evaluator.keep_column(&mut columns, &series.labels, values)?;
        if body.is_counter && columns.len() > before {
            warn_of_name(evaluator, series.labels.metric_name(), name_position);
        }
        Ok(())
    })?;
    columns.sort_by(|a, b| a.labels.cmp(&b.labels));
    if !body.keeps_name {
        for column in &mut columns {
            column.labels = column.labels.without_name();
        }
    }
    refuse_same_labels(&columns)?;
    Ok(NodeValue::Vector(columns))
}

/// Warns of quantiles outside of 0 to 1.
pub(crate) fn warn_of_quantiles(evaluator: &mut Evaluator<'_>, quantiles: &[f64], offset: usize) {
    let mut previous = None;
    for quantile in quantiles {
        if !(0.0..=1.0).contains(quantile) && previous != Some(quantile.to_bits()) {
            previous = Some(quantile.to_bits());
            evaluator.annotate(&QueryAnnotation::QuantileOutOfRange(*quantile), offset);
        }
    }
}

/// Warns of a metric whose name is not that of a counter.
pub(crate) fn warn_of_name(evaluator: &mut Evaluator<'_>, name: &str, offset: usize) {
    let is_counter = ["_total", "_sum", "_count", "_bucket"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    if !is_counter && !name.is_empty() {
        evaluator.annotate(&QueryAnnotation::NotACounter(name), offset);
    }
}
