//! Reads the samples of selectors and turns them into columns and windows.
//!
//! Series of one tick group have the same timestamps. They share one copy of them, and the position
//! of every step among the timestamps is looked up once for all of them.

use std::borrow::Cow;
use std::sync::Arc;

use pegel_metric::Millis;

use super::error::PromqlError;
use super::evaluator::Evaluator;
use super::labels::LabelSet;
use super::matcher::LabelMatcher;
use super::node::{RangeInput, RangeNode, VectorSelector};
use super::source::Selection;
use super::steps::{Steps, TimeShift};
use super::value::{ABSENT, MatrixSeries, StepSeries, is_absent};

/// The samples of one series.
#[derive(Debug)]
pub(crate) struct SampleSeries<'s> {
    pub labels: LabelSet,
    pub times: Arc<[Millis]>,
    pub values: Cow<'s, [f64]>,
}

impl SampleSeries<'_> {
    fn bytes(samples: usize) -> usize {
        size_of::<SampleSeries>() + samples * size_of::<f64>()
    }
}

/// Receives the evaluator and a series, whose samples it may change.
pub(crate) type SampleSeriesVisitor<'v, 'a> =
    dyn FnMut(&mut Evaluator<'a>, &mut SampleSeries<'_>) -> Result<(), PromqlError> + 'v;

/// The part of a series' samples that one step sees, as indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowBounds {
    pub from: usize,
    pub until: usize,
}

/// The windows of all steps over one list of timestamps, reused while the list stays the same.
#[derive(Debug, Default)]
pub(crate) struct WindowCache {
    times: Option<Arc<[Millis]>>,
    bounds: Vec<WindowBounds>,
}

impl WindowCache {
    /// Returns for each step the samples in `(time - width, time]`.
    pub(crate) fn bounds(
        &mut self,
        times: &Arc<[Millis]>,
        (shift, width): (TimeShift, Millis),
        steps: &Steps,
    ) -> &[WindowBounds] {
        let is_same = self
            .times
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, times));
        if !is_same {
            self.bounds.clear();
            let (mut from, mut until) = (0, 0);
            for step in steps.times() {
                let end = shift.apply(step);
                let start = end.saturating_sub(width);
                while times.get(until).is_some_and(|time| *time <= end) {
                    until += 1;
                }
                while from < until && times[from] <= start {
                    from += 1;
                }
                self.bounds.push(WindowBounds { from, until });
            }
            self.times = Some(times.clone());
        }
        &self.bounds
    }
}

impl<'a> Evaluator<'a> {
    /// Evaluates an instant selector: the last sample of each series that is not older than the
    /// lookback and not stale.
    pub(crate) fn select(
        &mut self,
        selector: &VectorSelector,
        steps: &Steps,
    ) -> Result<Vec<StepSeries>, PromqlError> {
        self.select_with(selector, steps, |_, value| value)
    }

    /// Evaluates an instant selector and returns what `value_of` makes of each sample.
    pub(crate) fn select_with(
        &mut self,
        selector: &VectorSelector,
        steps: &Steps,
        value_of: impl Fn(Millis, f64) -> f64,
    ) -> Result<Vec<StepSeries>, PromqlError> {
        let lookback = self.lookback;
        let mut cache = WindowCache::default();
        let mut columns = Vec::new();
        let window = (selector.shift, lookback);
        self.for_each_series(
            &selector.matchers,
            window,
            steps,
            &mut |evaluator, series| {
                evaluator.reserve_series(1, steps)?;
                evaluator.budget.spend(series.times.len())?;
                let bounds = cache.bounds(&series.times, window, steps);
                let values: Vec<f64> = bounds
                    .iter()
                    .map(|window| match window.until.checked_sub(1) {
                        Some(last) if last >= window.from && !is_absent(series.values[last]) => {
                            value_of(series.times[last], series.values[last])
                        }
                        _ => ABSENT,
                    })
                    .collect();
                evaluator.keep_column(&mut columns, &series.labels, values)
            },
        )?;
        columns.sort_by(|a: &StepSeries, b| a.labels.cmp(&b.labels));
        Ok(columns)
    }

    /// Adds a column to a result, unless it is empty. Its memory is reserved already, but for the
    /// labels.
    pub(crate) fn keep_column(
        &mut self,
        columns: &mut Vec<StepSeries>,
        labels: &LabelSet,
        values: Vec<f64>,
    ) -> Result<(), PromqlError> {
        let labels = labels.clone();
        let column = StepSeries { labels, values };
        if column.is_empty() {
            self.release_series(std::slice::from_ref(&column));
            return Ok(());
        }
        self.budget.reserve(column.labels.bytes())?;
        columns.push(column);
        Ok(())
    }

    /// Visits the series of a range vector one by one, without stale markers.
    pub(crate) fn for_each_range(
        &mut self,
        node: &RangeNode,
        steps: &Steps,
        visit: &mut SampleSeriesVisitor<'_, 'a>,
    ) -> Result<(), PromqlError> {
        if let RangeInput::Selector(matchers) = &node.input {
            let window = (node.shift, node.range);
            return self.for_each_series(matchers, window, steps, &mut |evaluator, series| {
                remove_stale(series);
                visit(evaluator, series)
            });
        }
        let mut samples = self.load_range(node, steps)?;
        for series in &mut samples {
            visit(self, series)?;
        }
        self.release_samples(&samples);
        Ok(())
    }

    /// Reads the samples of a range vector, without stale markers.
    fn load_range(
        &mut self,
        node: &RangeNode,
        steps: &Steps,
    ) -> Result<Vec<SampleSeries<'static>>, PromqlError> {
        match &node.input {
            RangeInput::Selector(matchers) => {
                let mut samples = self.load(matchers, (node.shift, node.range), steps)?;
                for series in &mut samples {
                    remove_stale(series);
                }
                Ok(samples)
            }
            RangeInput::Subquery { expression, step } => {
                let (first, last) = shifted_ends(node.shift, steps);
                let after = first.saturating_sub(node.range);
                let Some(inner) = Steps::aligned(after, last, *step) else {
                    return Ok(Vec::new());
                };
                let columns = self.eval_vector(expression, &inner)?;
                let samples = self.columns_to_samples(&columns, &inner)?;
                self.release_series(&columns);
                Ok(samples)
            }
        }
    }

    /// Evaluates a range vector at one time.
    pub(crate) fn matrix(
        &mut self,
        node: &RangeNode,
        time: Millis,
    ) -> Result<Vec<MatrixSeries>, PromqlError> {
        let steps = Steps::single(time);
        let samples = self.load_range(node, &steps)?;
        let mut cache = WindowCache::default();
        let mut result = Vec::with_capacity(samples.len());
        for series in samples {
            let bounds = cache.bounds(&series.times, (node.shift, node.range), &steps);
            let window = bounds[0].from..bounds[0].until;
            self.budget
                .reserve(window.len() * size_of::<(Millis, f64)>())?;
            let times = series.times[window.clone()].iter().copied();
            let points: Vec<(Millis, f64)> =
                times.zip(series.values[window].iter().copied()).collect();
            if !points.is_empty() {
                result.push(MatrixSeries {
                    labels: series.labels,
                    points,
                });
            }
        }
        result.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(result)
    }

    pub(crate) fn release_samples(&mut self, samples: &[SampleSeries<'_>]) {
        let bytes = samples
            .iter()
            .map(|one| SampleSeries::bytes(one.values.len()));
        self.budget.release(bytes.sum());
    }

    /// Reads the samples that windows of this width see at all steps, sorted by labels.
    fn load(
        &mut self,
        matchers: &[LabelMatcher],
        window: (TimeShift, Millis),
        steps: &Steps,
    ) -> Result<Vec<SampleSeries<'static>>, PromqlError> {
        let mut loaded: Vec<SampleSeries<'static>> = Vec::new();
        self.for_each_series(matchers, window, steps, &mut |evaluator, series| {
            let bytes = SampleSeries::bytes(series.values.len()) + series.labels.bytes();
            evaluator.budget.reserve(bytes)?;
            let shares_times = loaded
                .last()
                .is_some_and(|last| Arc::ptr_eq(&last.times, &series.times));
            if !shares_times {
                evaluator.budget.reserve(size_of_val(&series.times[..]))?;
            }
            loaded.push(SampleSeries {
                labels: series.labels.clone(),
                times: series.times.clone(),
                values: series.values.to_vec().into(),
            });
            Ok(())
        })?;
        loaded.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(loaded)
    }

    /// Visits the series that match one by one, with the samples that windows of this width see at
    /// all steps. Memory is needed for the samples of one series at a time. Series with the same
    /// times share them.
    fn for_each_series(
        &mut self,
        matchers: &[LabelMatcher],
        (shift, width): (TimeShift, Millis),
        steps: &Steps,
        visit: &mut SampleSeriesVisitor<'_, 'a>,
    ) -> Result<(), PromqlError> {
        let (first, last) = shifted_ends(shift, steps);
        let selection = Selection {
            matchers,
            input: None,
            start: first.saturating_sub(width).saturating_add(1),
            end: last,
            bytes_max: self.budget.bytes_left(),
            deadline: self.budget.deadline(),
            cancellation: self.budget.cancellation().clone(),
        };
        let source = self.source;
        let mut shared_times: Arc<[Millis]> = Arc::new([]);
        source.select(&selection, &mut |labels, samples| {
            let bytes = samples.values.len() * size_of::<(Millis, f64)>();
            self.budget.count_samples(samples.values.len())?;
            self.budget.reserve(bytes)?;
            if !Arc::ptr_eq(&shared_times, samples.times) && shared_times != *samples.times {
                shared_times = samples.times.clone();
            }
            let mut series = SampleSeries {
                labels,
                times: shared_times.clone(),
                values: samples.values.into(),
            };
            visit(self, &mut series)?;
            self.budget.release(bytes);
            Ok(())
        })
    }

    fn columns_to_samples(
        &mut self,
        columns: &[StepSeries],
        steps: &Steps,
    ) -> Result<Vec<SampleSeries<'static>>, PromqlError> {
        let mut samples: Vec<SampleSeries<'static>> = Vec::with_capacity(columns.len());
        let mut all_times: Option<Arc<[Millis]>> = None;
        for column in columns {
            let count = column
                .values
                .iter()
                .filter(|value| !is_absent(**value))
                .count();
            self.budget.reserve(SampleSeries::bytes(count))?;
            self.budget.spend(steps.count)?;
            let times = if count == steps.count {
                let times = all_times.get_or_insert_with(|| steps.times().collect());
                times.clone()
            } else {
                let present = steps.times().zip(&column.values);
                let present = present.filter(|(_, value)| !is_absent(**value));
                present.map(|(time, _)| time).collect()
            };
            let values = column.values.iter().copied();
            samples.push(SampleSeries {
                labels: column.labels.clone(),
                times,
                values: values.filter(|value| !is_absent(*value)).collect(),
            });
        }
        Ok(samples)
    }
}

/// Returns the first and the last time that a selector reads.
fn shifted_ends(shift: TimeShift, steps: &Steps) -> (Millis, Millis) {
    (shift.apply(steps.start), shift.apply(steps.last()))
}

/// The number of values that are compared without a branch for each, so that the compiler can
/// vectorise the loop.
pub(crate) const COMPARED_BLOCK: usize = 64;

fn remove_stale(series: &mut SampleSeries<'_>) {
    let has_stale = |block: &[f64]| {
        let mut found = false;
        block.iter().for_each(|value| found |= is_absent(*value));
        found
    };
    if !series.values.chunks(COMPARED_BLOCK).any(has_stale) {
        return;
    }
    let kept = series.times.iter().zip(series.values.iter());
    let kept = kept.filter(|(_, value)| !is_absent(**value));
    let (times, values): (Vec<Millis>, Vec<f64>) =
        kept.map(|(time, value)| (*time, *value)).unzip();
    series.times = times.into();
    series.values = values.into();
}
