//! Calls functions for the window of every step.

use pegel_metric::Millis;

use super::super::annotations::QueryAnnotation;
use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, refuse_same_labels};
use super::super::node::{CallNode, ExprNode};
use super::super::selection::{SampleSeries, WindowCache};
use super::super::steps::Steps;
use super::super::value::{ABSENT, NodeValue, StepSeries};
use super::{WindowBody, scalar_parameters};

/// The samples that a function sees at one step: those after `start`, up to and including `end`.
/// There is at least one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window<'a> {
    pub times: &'a [Millis],
    pub values: &'a [f64],
    pub start: Millis,
    pub end: Millis,
    /// The time of the step.
    pub step_time: Millis,
    /// The samples that are smaller than the one before, as indexes into `values`, shifted by
    /// `resets_offset`. Empty unless the function expects a counter.
    pub resets: &'a [usize],
    pub resets_offset: usize,
}

impl Window<'_> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1_000.0
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
    let mut at_step = vec![0.0; parameters.columns.len()];
    let mut columns: Vec<StepSeries> = Vec::new();
    let name_position = node.position.argument(range_index);
    evaluator.for_each_range(range, steps, &mut |evaluator, series| {
        evaluator.reserve_series(1, steps)?;
        evaluator.budget.spend(series.times.len())?;
        let resets = if body.is_counter {
            find_resets(&series.values)
        } else {
            Vec::new()
        };
        let bounds = cache.bounds(&series.times, (range.shift, range.range), steps);
        let mut values = Vec::with_capacity(steps.count);
        for (step, bounds) in bounds.iter().enumerate() {
            if bounds.from == bounds.until {
                values.push(ABSENT);
                continue;
            }
            parameters.fill(step, &mut at_step);
            let step_time = steps.time(step);
            let end = range.shift.apply(step_time);
            // A counter's window is read at its ends and its resets only.
            if !body.is_counter {
                evaluator.budget.spend(bounds.until - bounds.from)?;
            }
            let window = Window {
                times: &series.times[bounds.from..bounds.until],
                values: &series.values[bounds.from..bounds.until],
                start: end.saturating_sub(range.range),
                end,
                step_time,
                resets: resets_between(&resets, bounds.from, bounds.until),
                resets_offset: bounds.from,
            };
            values.push((body.function)(&window, &at_step)?.unwrap_or(ABSENT));
        }
        let before = columns.len();
        evaluator.keep_column(&mut columns, &series.labels, values)?;
        if body.is_counter && columns.len() > before {
            warn_of_name(evaluator, series, name_position);
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

/// Returns the indexes of the samples that are smaller than the one before.
fn find_resets(values: &[f64]) -> Vec<usize> {
    let pairs = values.windows(2).enumerate();
    pairs
        .filter(|(_, pair)| pair[1] < pair[0])
        .map(|(index, _)| index + 1)
        .collect()
}

/// Returns the resets inside of a window. That of its first sample is not: it lies before.
fn resets_between(resets: &[usize], from: usize, until: usize) -> &[usize] {
    let first = resets.partition_point(|index| *index <= from);
    let last = resets.partition_point(|index| *index < until);
    &resets[first.min(last)..last]
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

fn warn_of_name(evaluator: &mut Evaluator<'_>, series: &SampleSeries, offset: usize) {
    let name = series.labels.metric_name();
    let is_counter = ["_total", "_sum", "_count", "_bucket"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    if !is_counter && !name.is_empty() {
        evaluator.annotate(&QueryAnnotation::NotACounter(name), offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_belong_to_the_window_that_has_both_samples() {
        let resets = find_resets(&[1.0, 2.0, 1.0, 3.0, 0.0, f64::NAN, 1.0]);
        assert_eq!(resets, [2, 4]);
        assert_eq!(resets_between(&resets, 0, 7), [2, 4]);
        assert_eq!(resets_between(&resets, 2, 5), [4]);
        assert_eq!(resets_between(&resets, 1, 2), [0; 0]);
        assert_eq!(resets_between(&resets, 4, 5), [0; 0]);
    }
}
