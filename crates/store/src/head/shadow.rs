//! Series that are both in a group and loose: somebody pushes points under the name of a collector's series.
//!
//! Of two samples of one series and time the last one counts, whichever way it came. Questions let loose
//! points count more than rows of the same head; a row that comes after a point of the same time
//! therefore writes its value over that point as well. Such series are rare, so that a group keeps a list of
//! them, made anew only when its members change or a loose series appears.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pegel_metric::{GroupRow, Ledger, Members, Millis, Series};

use super::{GroupHead, Head, LooseHead};

/// Which members of a group are loose series too.
#[derive(Debug, Default)]
pub(crate) struct Shadowed {
    members: Vec<u32>,
    /// How many loose series there were when the list was made; a head never loses one.
    loose_count: usize,
}

impl Shadowed {
    /// The list for these members, which is made anew if it is out of date.
    fn list(&self, members: &Members, loose: &HashMap<Arc<Series>, LooseHead>) -> Cow<'_, [u32]> {
        if self.loose_count == loose.len() {
            return Cow::Borrowed(&self.members);
        }
        let is_loose = |(_, series): &(u32, &Arc<Series>)| loose.contains_key(*series);
        Cow::Owned(
            (0..)
                .zip(&members.series)
                .filter(is_loose)
                .map(|(index, _)| index)
                .collect(),
        )
    }
}

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
        if group.shadowed.loose_count != self.loose.len() {
            let members = group.shadowed.list(&row.members, &self.loose).into_owned();
            group.shadowed = Shadowed {
                members,
                loose_count: self.loose.len(),
            };
        }
        for &member in &group.shadowed.members {
            let series = &row.members.series[member as usize];
            if row.is_present(member as usize)
                && let Some(loose) = self.loose.get_mut(series)
                && loose.overwrite(series, (time, row.values[member as usize]), self.changes)
            {
                ledger.duplicate(1);
            }
        }
    }

    /// Of the members of a live group that are loose series too: those whose loose points are the current ones
    /// (sorted), and the loose series for which it is the other way round.
    pub(super) fn settle_currents<'a>(
        &'a self,
        group: &'a GroupHead,
        now: Millis,
        older_loose: &mut HashSet<&'a Arc<Series>>,
    ) -> Vec<usize> {
        let mut older_members = Vec::new();
        for &member in group.shadowed.list(group.members(), &self.loose).iter() {
            let series = &group.members().series[member as usize];
            if !group.is_present(member as usize) {
                continue;
            }
            match self.loose.get(series) {
                Some(loose) if loose.is_live(now) && loose.latest.seen >= group.time() => {
                    older_members.push(member as usize);
                }
                Some(_) => drop(older_loose.insert(series)),
                None => {}
            }
        }
        older_members
    }
}
