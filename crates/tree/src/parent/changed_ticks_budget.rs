//! Limits how many past ticks a child can have computed again: all nodes read their stores for
//! each of them. A child that was away reports at most the time of the back-fill, and one that is
//! connected a tick now and then.

use pegel_metric::Millis;

/// Ticks per interval that a child may have computed again, on average.
const TICKS_PER_INTERVAL: f64 = 2.0;

/// The allowance of one child. It belongs to the name of the child, not to a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedTicksBudget {
    left: f64,
    max: f64,
    per_milli: f64,
    updated: Millis,
}

impl ChangedTicksBudget {
    /// Permits twice the ticks of `backfill_time` at once: a time may be reported twice when a
    /// connection is lost.
    pub(crate) fn new(backfill_time: Millis, interval: Millis, now: Millis) -> ChangedTicksBudget {
        let interval = interval.max(1) as f64;
        let max = 2.0 * (backfill_time as f64 / interval) + 100.0;
        ChangedTicksBudget {
            left: max,
            max,
            per_milli: TICKS_PER_INTERVAL / interval,
            updated: now,
        }
    }

    /// Takes one tick. Returns false if the child had too many computed again.
    pub(crate) fn take(&mut self, now: Millis) -> bool {
        let elapsed = now.saturating_sub(self.updated).max(0) as f64;
        self.updated = now;
        self.left = (self.left + elapsed * self.per_milli).min(self.max);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reports_an_outage_twice_and_then_two_ticks_per_interval() {
        let mut budget = ChangedTicksBudget::new(3_600_000, 1000, 0);
        let burst = (0..100_000).filter(|_| budget.take(0)).count();
        assert_eq!(burst, 2 * 3600 + 100);
        let later = (0..100_000).filter(|_| budget.take(10_000)).count();
        assert_eq!(later, 20);
        assert!(!budget.take(5_000), "the clock was set back");
        assert!(budget.take(6_000));
    }
}
