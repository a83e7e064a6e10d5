//! Series that are both in a group and loose: points are pushed under the name of a collector's series.
//!
//! Of two samples of one series and time the last one counts, whichever way it came. Questions let loose
//! points count more than rows of the same head; a row that comes after a point of the same time
//! therefore writes its value over that point as well. Such series are rare, so that a group keeps a list of
//! them, extended only when its members change or a loose series appears.

use pegel_metric::{GroupRow, Ledger, Millis};

use super::Head;

impl Head {
    /// Writes the values of a row that was just appended over loose points of the same time.
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
