//! Bounds the part of the log that is kept for a receiver, by dropping the oldest samples.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pegel_store::LogPosition;

use super::super::sample_stream::{RoundEnd, SampleStream};
use super::{LAG_CHECK_INTERVAL, TargetThread};

impl TargetThread<'_> {
    /// Returns whether more than `lag` bytes wait. Measured at most once a second.
    pub(super) fn is_lag_exceeded(&self) -> bool {
        let mut checked = self.lag_checked.lock();
        let now = Instant::now();
        if checked.is_some_and(|last| now - last < LAG_CHECK_INTERVAL) {
            return false;
        }
        *checked = Some(now);
        let lag = self.measure_lag(self.confirmed.log);
        lag > self.options.settings.lag_bytes()
    }

    /// Returns the bytes of the log after a position.
    fn measure_lag(&self, from: LogPosition) -> u64 {
        let store = &self.options.store;
        let end = store.log_end();
        let mut lag = end.offset;
        if end.segment == from.segment {
            lag = end.offset.saturating_sub(from.offset);
        } else {
            for (number, bytes) in store.log_segments() {
                if number == from.segment {
                    lag += bytes.saturating_sub(from.offset);
                } else if (from.segment..end.segment).contains(&number) {
                    lag += bytes;
                }
            }
        }
        let counters = &self.shared.counters;
        counters.pending_bytes.store(lag, Ordering::Relaxed);
        lag
    }

    /// Reads samples without sending them, until the rest is within the limit. A segment that
    /// cannot be read is skipped and counted: it would be kept for ever.
    pub(super) fn drop_oldest(&mut self, stream: &mut SampleStream) -> io::Result<()> {
        let bound = self.options.settings.lag_bytes();
        let counters = &self.shared.counters;
        tracing::warn!(
            receiver = self.shared.name,
            bytes = bound,
            "waiting samples exceed lag; dropping the oldest"
        );
        while self.measure_lag(stream.position().log) > bound {
            let end = match stream.take(&mut self.round, 1 << 16, None) {
                Err(_) if stream.skip_segment() => RoundEnd::Full,
                end => end?,
            };
            self.count_losses(stream);
            let dropped = self.round.len() as u64;
            counters.dropped_lag.fetch_add(dropped, Ordering::Relaxed);
            self.round.clear();
            if end == RoundEnd::EndOfLog || self.shared.abort.load(Ordering::Relaxed) {
                break;
            }
        }
        self.publish_position(stream);
        self.save(None);
        Ok(())
    }
}
