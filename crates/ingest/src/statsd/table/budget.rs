//! The memory budget of timers' buckets and sets' members.

/// The bytes that are left. A quarter of the total is reserved for trusted senders (the agent's
/// user and root, over sockets that identify the sender), so that other senders cannot exhaust
/// their budget.
#[derive(Debug)]
pub(crate) struct StatsdMemoryBudget {
    left: usize,
    reserved: usize,
    /// Whether the sender of the current line is trusted.
    is_trusted: bool,
}

impl StatsdMemoryBudget {
    pub(super) fn new(bytes: usize) -> StatsdMemoryBudget {
        StatsdMemoryBudget {
            left: bytes,
            reserved: bytes / 4,
            is_trusted: true,
        }
    }

    pub(super) fn set_trusted(&mut self, is_trusted: bool) {
        self.is_trusted = is_trusted;
    }

    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let kept = if self.is_trusted { 0 } else { self.reserved };
        let is_there = bytes <= self.left.saturating_sub(kept);
        if is_there {
            self.left -= bytes;
        }
        is_there
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.left += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_for_trusted_senders() {
        let mut budget = StatsdMemoryBudget::new(100);
        budget.set_trusted(false);
        assert!(budget.take(75) && !budget.take(1));
        budget.set_trusted(true);
        assert!(budget.take(25) && !budget.take(1));
        budget.give_back(26);
        budget.set_trusted(false);
        assert!(budget.take(1) && !budget.take(1));
    }
}
