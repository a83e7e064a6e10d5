//! The limit of series. Commands are admitted together before any of them is applied, so that those let in before
//! must be remembered beside the series that the head knows.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{GroupMembers, Series};

use crate::head::Head;

/// Series that were let in and are not in the head yet.
#[derive(Debug, Default)]
pub(crate) struct PendingSeries {
    series: HashSet<Arc<Series>>,
    /// The latest version of each group that was let in.
    groups: Vec<Arc<GroupMembers>>,
}

impl PendingSeries {
    /// Lets a loose series in if it is known or there is room for it.
    pub fn admit_series(&mut self, head: &Head, series: &Arc<Series>, series_max: usize) -> bool {
        if head.ungrouped.contains(series) || self.series.contains(series) {
            return true;
        }
        let fits = self.count(head) < series_max;
        if fits {
            self.series.insert(series.clone());
        }
        fits
    }

    /// Lets a version of a group in if there is room for it. One that does not grow is let in even when the limit
    /// was lowered.
    pub fn admit_group(
        &mut self,
        head: &Head,
        members: &Arc<GroupMembers>,
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
        let newcomer = self
            .groups
            .iter()
            .position(|known| known.group == members.group);
        let in_head = head
            .groups
            .iter()
            .find(|group| group.is_same_group(members));
        let before = match (newcomer, in_head) {
            (Some(at), _) => self.groups[at].series.len(),
            (None, Some(group)) => group.members().series.len(),
            (None, None) => 0,
        };
        if let Some(group) = in_head
            && newcomer.is_none()
            && Arc::ptr_eq(group.members(), members)
        {
            return true;
        }
        let after = members.series.len();
        let fits = after <= before || self.count(head) - before + after <= series_max;
        if fits {
            match newcomer {
                Some(at) => self.groups[at] = members.clone(),
                None => self.groups.push(members.clone()),
            }
        }
        fits
    }

    /// All series, as if those let in were in the head.
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
