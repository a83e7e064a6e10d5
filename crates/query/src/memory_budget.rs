//! The memory limit of a request or sub-query.

use pegel_metric::Millis;
use pegel_store::QueryError;

use crate::error::OpentsdbError;

/// The memory that may still be used. Reserving more than is left fails the request.
#[derive(Debug)]
pub(crate) struct QueryMemoryBudget {
    left: usize,
    max: usize,
}

impl QueryMemoryBudget {
    pub(crate) fn new(max: usize) -> QueryMemoryBudget {
        QueryMemoryBudget { left: max, max }
    }

    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), OpentsdbError> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(QueryError::TooLarge(self.max).into()),
        }
        Ok(())
    }

    /// Reserves memory for a result series with this many points.
    pub(crate) fn reserve_points(&mut self, count: usize) -> Result<(), OpentsdbError> {
        let bytes = count.saturating_mul(size_of::<(Millis, f64)>());
        self.reserve(bytes.saturating_add(512))
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
