//! The limits of one query, and what is left of them while it runs.

use std::time::{Duration, Instant};

use pegel_store::QueryCancellation;

use super::error::PromqlError;

/// The limits of one query.
#[derive(Debug, Clone)]
pub struct PromqlLimits {
    /// The maximum number of samples read from the source.
    pub samples_max: usize,
    /// The memory for samples and intermediate values.
    pub bytes_max: usize,
    pub time_max: Duration,
    /// The maximum number of steps of a range query, and so of points per result series.
    pub points_max: usize,
    /// The age up to which the last sample of a series is its current value.
    pub lookback: Duration,
    /// The step of subqueries that name none.
    pub subquery_step: Duration,
    /// Ends the query early.
    pub cancellation: QueryCancellation,
}

impl Default for PromqlLimits {
    fn default() -> PromqlLimits {
        PromqlLimits {
            samples_max: 50_000_000,
            bytes_max: 256 << 20,
            time_max: Duration::from_secs(30),
            points_max: 11_000,
            lookback: Duration::from_secs(300),
            subquery_step: Duration::from_secs(60),
            cancellation: QueryCancellation::default(),
        }
    }
}

/// The work between two readings of the clock: about as many samples.
const CLOCK_EVERY: usize = 1 << 14;

/// What a running query may still use.
#[derive(Debug)]
pub(crate) struct EvaluationBudget {
    samples_max: usize,
    samples_left: usize,
    bytes_left: usize,
    deadline: Instant,
    cancellation: QueryCancellation,
    /// The work since the clock was last read.
    work: usize,
}

impl EvaluationBudget {
    pub(crate) fn new(limits: &PromqlLimits) -> EvaluationBudget {
        EvaluationBudget {
            samples_max: limits.samples_max,
            samples_left: limits.samples_max,
            bytes_left: limits.bytes_max,
            deadline: Instant::now() + limits.time_max,
            cancellation: limits.cancellation.clone(),
            // Read the clock before the first work.
            work: CLOCK_EVERY,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn cancellation(&self) -> &QueryCancellation {
        &self.cancellation
    }

    /// Returns the number of samples that were read from the source.
    pub(crate) fn samples_read(&self) -> usize {
        self.samples_max - self.samples_left
    }

    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Counts samples that were read from the source.
    pub(crate) fn count_samples(&mut self, count: usize) -> Result<(), PromqlError> {
        self.samples_left = self
            .samples_left
            .checked_sub(count)
            .ok_or_else(PromqlError::too_many_samples)?;
        self.spend(count)
    }

    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), PromqlError> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(PromqlError::too_many_samples)?;
        Ok(())
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.bytes_left += bytes;
    }

    /// Counts work that was done or is about to be done; fails after the deadline and when the
    /// query was canceled.
    #[inline]
    pub(crate) fn spend(&mut self, work: usize) -> Result<(), PromqlError> {
        self.work = self.work.saturating_add(work);
        if self.work < CLOCK_EVERY {
            return Ok(());
        }
        self.work = 0;
        if self.cancellation.is_canceled() {
            return Err(PromqlError::canceled());
        }
        if Instant::now() > self.deadline {
            return Err(PromqlError::timeout());
        }
        Ok(())
    }
}
