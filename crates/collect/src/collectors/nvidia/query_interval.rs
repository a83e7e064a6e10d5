//! The intervals at which the queries of a GPU are repeated.

use std::time::Duration;

/// A query that failed, or a GPU that is lost, is retried after this time.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(60);

/// How often a query is run. Measured on an H200: most queries are served from memory that the
/// driver shares with the GPU and take about 1 µs; others are requests to the GPU's firmware and
/// take up to 5 ms of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryInterval {
    /// In every pass.
    EveryPass,
    /// Every second: values that change too little for every pass, or cost too much (memory: 72
    /// µs).
    Second,
    /// Every 10 s: expensive queries. In between, the last value is published.
    TenSeconds,
    /// Every minute: expensive values that hardly ever change, and the energy counter (4 ms of CPU
    /// time).
    Minute,
    /// Every 30 s, at most one in a pass: the driver blocks for 20 ms while it measures.
    Blocking,
}

impl QueryInterval {
    fn period(self) -> Duration {
        match self {
            QueryInterval::EveryPass => Duration::ZERO,
            // Slightly less than a second, so that a pass that starts early still runs the query.
            QueryInterval::Second => Duration::from_millis(900),
            QueryInterval::TenSeconds => Duration::from_secs(10),
            QueryInterval::Blocking => Duration::from_secs(30),
            QueryInterval::Minute => Duration::from_secs(60),
        }
    }
}

/// The time at which a query is due again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DueTime(Duration);

impl DueTime {
    pub(super) fn is_due(self, now: Duration) -> bool {
        now >= self.0
    }

    pub(super) fn succeeded(&mut self, interval: QueryInterval, now: Duration) {
        self.0 = now + interval.period();
    }

    pub(super) fn failed(&mut self, now: Duration) {
        self.0 = now + RETRY_AFTER;
    }
}

/// The time of a pass, and whether it may still block.
#[derive(Debug)]
pub(super) struct PassBudget {
    pub(super) now: Duration,
    /// Whether a query with [`QueryInterval::Blocking`] may still run.
    pub(super) allows_blocking: bool,
}
