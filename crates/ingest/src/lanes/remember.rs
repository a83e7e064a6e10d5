//! What lanes counted goes to the journal: regularly, and before a lane's file is removed.

use pegel_metric::Millis;

use super::Lanes;
use super::journal::{Kept, LaneId};
use super::lane::KnownLane;

/// How often what went to the journal is forced to disk. What is lost by a power cut before that is made
/// up from what the store has.
const SYNC_MS: Millis = 10_000;
/// What waits for a journal that cannot be written.
const PENDING_BYTES_MAX: usize = 4 << 20;

impl Lanes {
    /// Puts what changed into the journal.
    pub(super) fn remember(&mut self, now: Millis) {
        self.journaled = now;
        let changed: Vec<LaneId> = self
            .lanes
            .iter()
            .filter(|(_, lane)| !lane.is_journaled)
            .map(|(id, _)| *id)
            .collect();
        for id in changed {
            if let Some(mut lane) = self.lanes.remove(&id) {
                self.journal_lane(&mut lane);
                self.lanes.insert(id, lane);
            }
        }
        let is_time_to_sync = (now - self.synced).abs() >= SYNC_MS;
        // After a failed sync the kernel may have dropped what was written: the journal is written anew, as often as it is
        // synced.
        let is_overdue = self.needs_rewrite || self.journal.is_overdue();
        if is_overdue || (is_time_to_sync && self.journal_sync.has_failed()) {
            self.synced = now;
            self.rewrite();
            return;
        }
        let written = self.journal.write();
        let fault = written.err().map(|error| error.to_string());
        self.say_journal(fault.or_else(|| self.journal_sync.fault()));
        if is_time_to_sync {
            self.synced = now;
            if let Some(file) = self.journal.for_sync() {
                self.journal_sync.request(file);
            }
        }
    }

    pub(super) fn journal_lane(&mut self, lane: &mut KnownLane) {
        // A journal that cannot be written must not grow in memory: it will be written anew.
        if self.journal.pending_bytes() > PENDING_BYTES_MAX {
            return;
        }
        let Some(kept) = lane.kept() else { return };
        for (number, _) in &kept.amounts {
            if let Some(series) = self.totals.introduce(*number) {
                self.journal.put_series(*number, &series);
            }
        }
        self.journal.put_lane(&lane.id(), &kept);
        lane.is_journaled = true;
    }

    pub(super) fn rewrite(&mut self) {
        let mut kept = Kept::default();
        for (number, series, base) in self.totals.counters() {
            kept.series.insert(number, series);
            kept.base.insert(number, base);
        }
        for (id, lane) in &mut self.lanes {
            kept.lanes.extend(lane.kept().map(|kept| (*id, kept)));
            lane.is_journaled = true;
        }
        let written = self.journal.rewrite(&kept);
        if written.is_ok() {
            self.needs_rewrite = false;
            self.journal_sync.reset();
        }
        self.say_journal(written.err().map(|error| error.to_string()));
    }

    pub(super) fn say_journal(&self, trouble: Option<String>) {
        let mut status = self.status_mut();
        // Said when it begins, not every second.
        if let (Some(error), None) = (&trouble, &status.journal) {
            tracing::warn!(error, "the journal of lanes cannot be written");
        }
        status.journal = trouble;
    }
}
