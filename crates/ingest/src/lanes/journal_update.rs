//! Submits what lanes counted to the journal's writer, once a second.

use pegel_metric::Millis;

use super::Lanes;
use super::journal::JournalContents;

/// The interval between syncs of the journal. Counts that a power failure loses before that are
/// restored from the store.
const SYNC_MS: Millis = 10_000;
/// The most bytes collected for a journal that cannot be written; beyond it the journal is
/// rewritten.
const PENDING_BYTES_MAX: usize = 4 << 20;

impl Lanes {
    /// Submits what changed to the journal's writer, unless it is busy: then the next call covers
    /// it.
    pub(super) fn update_journal(&mut self, now: Millis) {
        self.last_journaled = now;
        self.report_journal_error(self.journal.error_message());
        if !self.journal.is_busy() {
            self.submit_changes(now, false);
        } else if self.journal.records.byte_len() > PENDING_BYTES_MAX {
            self.journal.records.clear();
            self.needs_rewrite = true;
        }
    }

    /// Submits what changed. Lanes of a sender that exceeds `limits.sender_bytes` are submitted
    /// later: until then their files are kept, from which a restarted agent reads their counts. At
    /// shutdown (`is_last`) everything is submitted, also while the last task fails: both are tried
    /// once more.
    pub(super) fn submit_changes(&mut self, now: Millis, is_last: bool) {
        let is_time_to_sync = (now - self.last_synced).abs() >= SYNC_MS;
        if is_time_to_sync {
            self.last_synced = now;
        }
        // After a failed sync the kernel may have dropped what was written: the journal is
        // rewritten, as often as it is synced.
        let is_lost = is_time_to_sync && self.journal.has_sync_failed();
        if self.needs_rewrite || self.journal.needs_compaction() || is_lost {
            self.rewrite();
            return;
        }
        let number = self.journal.next_number();
        let changed = self.lanes.iter_mut();
        for (id, lane) in changed.filter(|(_, lane)| lane.journaled_in.is_none()) {
            let Some(kept) = lane.journal_record() else {
                continue;
            };
            if !is_last && !lane.sender.try_charge(0) {
                continue;
            }
            let before = self.journal.records.byte_len();
            for (number, _) in &kept.amounts {
                if let Some(series) = self.totals.take_unjournaled(*number) {
                    self.journal.records.put_series(*number, &series);
                }
            }
            self.journal.records.put_lane(id, &kept);
            let written = self.journal.records.byte_len() - before;
            lane.sender.charge(written as u64);
            lane.journaled_in = Some(number);
        }
        self.journal.append(is_time_to_sync);
    }

    fn rewrite(&mut self) {
        let number = self.journal.next_number();
        let mut kept = JournalContents::default();
        for (number, series, base) in self.totals.counters() {
            kept.series.insert(number, series);
            kept.base.insert(number, base);
        }
        for (id, lane) in &mut self.lanes {
            if let Some(lane_kept) = lane.journal_record() {
                kept.lanes.insert(*id, lane_kept);
                lane.journaled_in = Some(number);
            }
        }
        self.journal.replace(&kept);
        self.needs_rewrite = false;
    }

    fn report_journal_error(&self, fault: Option<String>) {
        let mut status = self.status_mut();
        // Logged on the first failure, not every second.
        if let (Some(error), None) = (&fault, &status.journal) {
            tracing::warn!(error, "cannot write the lane journal");
        }
        status.journal = fault;
    }
}
