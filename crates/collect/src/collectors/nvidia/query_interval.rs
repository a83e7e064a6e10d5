//! How often what is asked.

use std::time::Duration;

/// What the driver refused, or a GPU that is gone, is asked again after this time.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Seen on an H200: most answers come from memory that the driver shares with the GPU and take
/// about 1 µs; others are a request to the GPU's firmware and take up to 5 ms of CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryInterval {
    /// In every pass.
    EveryPass,
    /// Answers that cost more than they change: every second.
    Second,
    /// Expensive answers: every 10 s. In between, the last one stays.
    TenSeconds,
    /// Expensive answers that hardly ever change, and the energy counter (4 ms of CPU): every minute.
    Minute,
    /// The driver measures for 20 ms while it is asked: every 30 s, one in a pass.
    Blocking,
}

impl QueryInterval {
    fn period(self) -> Duration {
        match self {
            QueryInterval::EveryPass => Duration::ZERO,
            // A little less, so that a pass that comes early still asks.
            QueryInterval::Second => Duration::from_millis(900),
            QueryInterval::TenSeconds => Duration::from_secs(10),
            QueryInterval::Blocking => Duration::from_secs(30),
            QueryInterval::Minute => Duration::from_secs(60),
        }
    }
}

/// When one question is due again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DueTime(Duration);

impl DueTime {
    pub(super) fn is_due(self, now: Duration) -> bool {
        now >= self.0
    }

    pub(super) fn succeeded(&mut self, beat: QueryInterval, now: Duration) {
        self.0 = now + beat.period();
    }

    pub(super) fn failed(&mut self, now: Duration) {
        self.0 = now + RETRY_AFTER;
    }
}

/// What a pass may still take.
#[derive(Debug)]
pub(super) struct PassBudget {
    pub(super) now: Duration,
    /// Whether there is time for a question with [`Beat::Long`].
    pub(super) allows_blocking: bool,
}
