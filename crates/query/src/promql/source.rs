//! The interface between the evaluator and the data.

use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Input, Millis};
use pegel_store::QueryCancellation;

use super::error::PromqlError;
use super::labels::LabelSet;
use super::matcher::LabelMatcher;
use super::pushdown::{PushedAggregation, PushedSeries};

/// Which samples a selector needs, and the limits for reading them.
#[derive(Debug)]
pub struct Selection<'a> {
    /// A series must match all of them.
    pub matchers: &'a [LabelMatcher],
    /// Only series of this input; `None`: of all inputs.
    pub input: Option<Input>,
    /// Both ends are included.
    pub start: Millis,
    pub end: Millis,
    pub bytes_max: usize,
    pub deadline: Instant,
    pub cancellation: QueryCancellation,
}

/// The samples of one series, in the order of their times. A sample of the value
/// [`STALE_NAN`](super::STALE_NAN) ends the series until its next sample.
#[derive(Debug, Clone, Copy)]
pub struct SelectedSamples<'a> {
    /// Series that share their times are evaluated faster.
    pub times: &'a Arc<[Millis]>,
    pub values: &'a [f64],
    /// Whether a rule of this agent made the series.
    pub is_of_rule: bool,
}

impl SelectedSamples<'_> {
    /// Returns the last sample.
    pub fn last(&self) -> Option<(Millis, f64)> {
        self.times.last().copied().zip(self.values.last().copied())
    }
}

/// Samples that were a list of points.
#[derive(Debug)]
pub struct SampleColumns {
    times: Arc<[Millis]>,
    values: Vec<f64>,
}

impl SampleColumns {
    pub fn new(points: &[(Millis, f64)]) -> SampleColumns {
        SampleColumns {
            times: points.iter().map(|point| point.0).collect(),
            values: points.iter().map(|point| point.1).collect(),
        }
    }

    pub fn samples(&self) -> SelectedSamples<'_> {
        SelectedSamples {
            times: &self.times,
            values: &self.values,
            is_of_rule: false,
        }
    }
}

/// Receives the labels and the samples of a series.
pub type SeriesSampleVisitor<'a> =
    dyn FnMut(LabelSet, SelectedSamples<'_>) -> Result<(), PromqlError> + 'a;

/// A set of series that PromQL can select from.
pub trait SeriesSource {
    /// Visits every series that matches and has samples in the range, each once, in any order. An
    /// error of `visit` ends the selection and is returned.
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError>;

    /// Returns whether the evaluator should offer aggregations to [`aggregate`](Self::aggregate).
    fn takes_aggregations(&self) -> bool {
        false
    }

    /// Evaluates an aggregation where the series are; `None` if the evaluator must select the
    /// series and aggregate them itself.
    fn aggregate(
        &self,
        _: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        None
    }
}

impl<S: SeriesSource + ?Sized> SeriesSource for &S {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        (**self).select(selection, visit)
    }

    fn takes_aggregations(&self) -> bool {
        (**self).takes_aggregations()
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        (**self).aggregate(pushed)
    }
}
