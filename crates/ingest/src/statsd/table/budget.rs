//! What the buckets of timers and the members of sets may take together.

/// Bytes that are left. A quarter of all is reserved: only senders with a reserve (the agent's user and root, over
/// sockets that know their sender) take from it, so that no other sender leaves them without timers.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    reserved: usize,
    /// Whether the sender of the line at hand has a reserve.
    has_reserve: bool,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget {
            left: bytes,
            reserved: bytes / 4,
            has_reserve: true,
        }
    }

    pub fn turn_to(&mut self, has_reserve: bool) {
        self.has_reserve = has_reserve;
    }

    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let kept = if self.has_reserve { 0 } else { self.reserved };
        let is_there = bytes <= self.left.saturating_sub(kept);
        if is_there {
            self.left -= bytes;
        }
        is_there
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.left += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_for_senders_with_a_reserve() {
        let mut budget = Budget::new(100);
        budget.turn_to(false);
        assert!(budget.take(75) && !budget.take(1));
        budget.turn_to(true);
        assert!(budget.take(25) && !budget.take(1));
        budget.give_back(26);
        budget.turn_to(false);
        assert!(budget.take(1) && !budget.take(1));
    }
}
