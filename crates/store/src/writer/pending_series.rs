//! Enforces the limits of series within a batch. All commands of a batch are checked before any of
//! them is applied, so series accepted earlier in the batch are counted here, in addition to those
//! in the head.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{GroupSeries, Series};

use crate::head::{GroupHead, Head};
use crate::input_class::InputClass;

/// Derived series may be this part of all series, and a twentieth is never theirs: how many there
/// are depends on what the nodes below a parent and the users of this one send.
const DERIVED_PART: usize = 2;
const NODE_PART: usize = 20;

/// Series that were accepted and are not in the head yet.
#[derive(Debug, Default)]
pub(crate) struct PendingSeries {
    series: HashSet<Arc<Series>>,
    /// The number of derived ones among `series`.
    derived: usize,
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
        let is_derived = is_derived(series);
        let fits = self.has_room(head, is_derived, (0, 1), series_max);
        if fits {
            self.series.insert(series.clone());
            self.derived += usize::from(is_derived);
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
        let is_derived = members.series.first().is_some_and(is_derived);
        let fits = after <= before || self.has_room(head, is_derived, (before, after), series_max);
        if fits {
            match pending {
                Some(at) => self.groups[at] = members.clone(),
                None => self.groups.push(members.clone()),
            }
        }
        fits
    }

    /// Returns whether the limit allows `after` series in place of `before`.
    fn has_room(
        &self,
        head: &Head,
        is_derived: bool,
        (before, after): (usize, usize),
        series_max: usize,
    ) -> bool {
        let all = self.count(head) - before + after;
        if !is_derived {
            return all <= series_max;
        }
        all <= series_max - series_max / NODE_PART
            && self.count_derived(head) - before + after <= series_max / DERIVED_PART
    }

    /// Counts the derived series, as if the accepted ones were already in the head.
    fn count_derived(&self, head: &Head) -> usize {
        let is_pending = |group: &GroupHead| self.groups.iter().any(|new| group.is_same_group(new));
        let in_head = { head.groups.iter() }.filter(|group| !is_pending(group));
        let groups = in_head.map(|group| group.members()).chain(&self.groups);
        let groups = groups.filter(|members| members.series.first().is_some_and(is_derived));
        let grouped: usize = groups.map(|members| members.series.len()).sum();
        grouped + head.ungrouped.derived_len() + self.derived
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

fn is_derived(series: &Arc<Series>) -> bool {
    InputClass::of(series) == InputClass::Derived
}
