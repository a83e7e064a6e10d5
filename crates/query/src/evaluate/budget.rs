use pegel_store::QueryError;

use crate::problem::Problem;

/// The memory that one sub-query may take for what it keeps.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    max: usize,
}

impl Budget {
    pub fn new(max: usize) -> Budget {
        Budget { left: max, max }
    }

    pub fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return Err(QueryError::TooLarge(self.max).into()),
        }
        Ok(())
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
