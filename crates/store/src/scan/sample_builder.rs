//! The interface between the reader of fragments and the forms of a result.

use std::ops::Range;
use std::sync::Arc;

use pegel_metric::Millis;

/// Receives the samples of one series at a time, in the order of their times, and keeps those
/// within the range of the query.
pub(super) trait SampleBuilder {
    /// Returns whether a stretch of time overlaps the range of the current series.
    fn overlaps(&self, min: Millis, max: Millis) -> bool;

    fn step_boundaries(&self, times: &[Millis]) -> StepBoundaries;

    /// Adds a column in which every row is present.
    fn add_column(&mut self, column: &Arc<TimeColumn>, values: &[f64]);

    /// Adds individual samples.
    fn add_samples(&mut self, samples: impl Iterator<Item = (Millis, f64)>);

    /// Returns the memory used by the samples so far.
    fn bytes(&self) -> usize;
}

/// A decoded time column with its step boundaries. Series of one tick group share it.
#[derive(Debug)]
pub(super) struct TimeColumn {
    pub times: Vec<Millis>,
    pub boundaries: StepBoundaries,
}

/// The rows of a time column within the query's range, and the ends of its buckets: computed once
/// for all series that share the column.
#[derive(Debug)]
pub(super) struct StepBoundaries {
    pub rows: Range<usize>,
    /// The time of each bucket, and the row after its last.
    pub buckets: Vec<(Millis, usize)>,
}
