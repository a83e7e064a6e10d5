//! Enforces the limit of series within a batch. All commands of a batch are checked before any of
//! them is applied, so series accepted earlier in the batch are counted here, in addition to those
//! in the head.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{GroupSeries, Series};

use crate::head::Head;

/// Series that were accepted and are not in the head yet.
#[derive(Debug, Default)]
pub(crate) struct PendingSeries {
    series: HashSet<Arc<Series>>,
    /// The latest version of each accepted group.
    groups: Vec<Arc<GroupSeries>>,
}

impl PendingSeries {
    /// Accepts an ungrouped series that is not in the head if the limit allows one more.
    pub(super) fn admit_series(
        &mut self,
        head: &Head,
        series: &Arc<Series>,
        series_max: usize,
    ) -> bool {
        if self.series.contains(series) {
            return true;
        }
        let fits = self.count(head) < series_max;
        if fits {
            self.series.insert(series.clone());
        }
        fits
    }

    /// Accepts a version of a group if the limit allows it. A version that does not grow is
    /// accepted even after the limit was lowered.
    pub(super) fn admit_group(
        &mut self,
        head: &Head,
        members: &Arc<GroupSeries>,
        series_max: usize,
    ) -> bool {
        if self.groups.is_empty()
            && head
                .groups
                .iter()
                .any(|group| Arc::ptr_eq(group.members(), members))
        {
            return true;
        }
        let pending = self
            .groups
            .iter()
            .position(|known| known.group == members.group);
        let in_head = head
            .groups
            .iter()
            .find(|group| group.is_same_group(members));
        let before = match (pending, in_head) {
            (Some(at), _) => self.groups[at].series.len(),
            (None, Some(group)) => group.members().series.len(),
            (None, None) => 0,
        };
        if let Some(group) = in_head
            && pending.is_none()
            && Arc::ptr_eq(group.members(), members)
        {
            return true;
        }
        let after = members.series.len();
        let fits = after <= before || self.count(head) - before + after <= series_max;
        if fits {
            match pending {
                Some(at) => self.groups[at] = members.clone(),
                None => self.groups.push(members.clone()),
            }
        }
        fits
    }

    /// Counts all series, as if the accepted ones were already in the head.
    fn count(&self, head: &Head) -> usize {
        let replaced = head
            .groups
            .iter()
            .filter(|group| {
                self.groups
                    .iter()
                    .any(|members| group.is_same_group(members))
            })
            .map(|group| group.members().series.len());
        let groups = self.groups.iter().map(|members| members.series.len());
        head.series_count() - replaced.sum::<usize>() + groups.sum::<usize>() + self.series.len()
    }
}
