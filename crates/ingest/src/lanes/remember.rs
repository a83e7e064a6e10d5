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
        if self.journal.is_overdue() {
            self.rewrite();
            return;
        }
        let written = self.journal.write();
        self.say_journal(written.err().map(|error| error.to_string()));
        if now - self.synced >= SYNC_MS {
            self.synced = now;
            self.sync();
        }
    }

    pub(super) fn journal_lane(&mut self, lane: &mut KnownLane) {
        // A journal that cannot be written must not grow in memory: it will be written anew.
        if self.journal.pending_bytes() > PENDING_BYTES_MAX {
            return;
        }
        let kept = lane.kept();
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
            kept.lanes.insert(*id, lane.kept());
            lane.is_journaled = true;
        }
        let written = self.journal.rewrite(&kept);
        self.say_journal(written.err().map(|error| error.to_string()));
    }

    /// Off this thread: a disk may take its time.
    fn sync(&self) {
        if let Some(file) = self.journal.for_sync() {
            let syncing = move || {
                let _ = file.sync_data();
            };
            let _ = std::thread::Builder::new()
                .name("lane-journal".to_owned())
                .spawn(syncing);
        }
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
