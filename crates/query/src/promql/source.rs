//! The interface between the evaluator and the data.

use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::QueryCancellation;

use super::error::PromqlError;
use super::labels::LabelSet;
use super::matcher::LabelMatcher;

/// Which samples a selector needs, and the limits for reading them.
#[derive(Debug)]
pub struct Selection<'a> {
    /// A series must match all of them.
    pub matchers: &'a [LabelMatcher],
    /// Both ends are included.
    pub start: Millis,
    pub end: Millis,
    pub bytes_max: usize,
    pub deadline: Instant,
    pub cancellation: QueryCancellation,
}

/// Receives a series with its samples in the order of their times. A sample of the value
/// [`STALE_NAN`](super::STALE_NAN) ends the series until its next sample.
pub type SeriesSampleVisitor<'a> =
    dyn FnMut(LabelSet, &[(Millis, f64)]) -> Result<(), PromqlError> + 'a;

/// A set of series that PromQL can select from.
pub trait SeriesSource {
    /// Visits every series that matches and has samples in the range, each once, in any order. An
    /// error of `visit` ends the selection and is returned.
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError>;
}
