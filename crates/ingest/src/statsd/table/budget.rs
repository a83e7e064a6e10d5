//! What the buckets of timers and the members of sets may take together.

/// Bytes that are left. A quarter of all is reserved: only trusted senders (the agent's user and root, over
/// sockets that know their sender) take from it, so that no other sender leaves them without timers.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    reserved: usize,
    /// Whether the sender of the line at hand is trusted.
    is_trusted: bool,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget {
            left: bytes,
            reserved: bytes / 4,
            is_trusted: true,
        }
    }

    pub fn turn_to(&mut self, is_trusted: bool) {
        self.is_trusted = is_trusted;
    }

    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let kept = if self.is_trusted { 0 } else { self.reserved };
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
    fn a_quarter_is_kept_for_trusted_senders() {
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
