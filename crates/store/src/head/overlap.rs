//! Series that are both members of a group and ungrouped: points are pushed under the name of a
//! collector's series.
//!
//! Of two samples of one series and time, the last one written wins, whichever way it arrived.
//! Queries give ungrouped points precedence over rows of the same head; a row that arrives after a
//! point of the same time therefore also overwrites that point. Such series are rare, so a group
//! keeps a list of them, extended only when its members change or an ungrouped series appears.

use pegel_metric::{GroupRow, Ledger, Millis};

use super::Head;

impl Head {
    /// Overwrites ungrouped points of the same time with the values of a row that was just
    /// appended.
    pub(super) fn overwrite_points(
        &mut self,
        group: usize,
        time: Millis,
        row: &GroupRow,
        ledger: &Ledger,
    ) {
        let group = &mut self.groups[group];
        if group.overlapping.ungrouped_count != self.ungrouped.len() {
            group.overlapping = group
                .overlapping
                .extended(&row.members, &self.ungrouped.current);
        }
        for &(member, slot) in group.overlapping.pairs.iter() {
            if row.is_present(member as usize) {
                let sample = (time, row.values[member as usize]);
                if self.ungrouped.overwrite(slot, sample, self.changes) {
                    ledger.add_duplicates(1);
                }
            }
        }
    }
}
