//! The memory limit of a sub-query.

use pegel_store::QueryError;

use crate::error::OpentsdbError;

/// The memory that one sub-query may hold. Reserving more than is left fails the request.
#[derive(Debug)]
pub(super) struct EvaluationBudget {
    left: usize,
    max: usize,
}

impl EvaluationBudget {
    pub fn new(max: usize) -> EvaluationBudget {
        EvaluationBudget { left: max, max }
    }

    pub fn reserve(&mut self, bytes: usize) -> Result<(), OpentsdbError> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(QueryError::TooLarge(self.max).into()),
        }
        Ok(())
    }

    pub fn release(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
