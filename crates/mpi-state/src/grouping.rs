//! Finds the ranks that belong together: those of one start of a program.

use std::collections::{BTreeMap, HashSet};

use crate::rank::{CommId, MpiRank};

/// What the ranks of one start have in common.
type StartKey = (u32, String, CommId, Option<u32>);

/// Groups ranks by user, job, launch and size. Launchers that set no variable to tell two starts of
/// the same size apart are told by their process: only then, if a rank is there twice.
pub(crate) fn group_by_start(ranks: Vec<MpiRank>) -> Vec<Vec<MpiRank>> {
    let mut starts: BTreeMap<StartKey, Vec<MpiRank>> = BTreeMap::new();
    for rank in ranks {
        let key = (rank.uid, rank.job.clone(), rank.launch, rank.size);
        starts.entry(key).or_default().push(rank);
    }
    join_unsized(&mut starts);
    let mut groups = Vec::new();
    for ((_, _, launch, _), ranks) in starts {
        if launch == CommId(0) && has_duplicates(&ranks) {
            groups.extend(split_by_launcher(ranks));
        } else {
            groups.push(newest_of_each(ranks));
        }
    }
    groups
}

/// Ranks that are still in `MPI_Init` have no size yet: they join the others of their launch.
fn join_unsized(starts: &mut BTreeMap<StartKey, Vec<MpiRank>>) {
    let unsized_keys: Vec<StartKey> = starts
        .keys()
        .filter(|(_, _, launch, size)| size.is_none() && *launch != CommId(0))
        .cloned()
        .collect();
    for key in unsized_keys {
        let (uid, job, launch, _) = &key;
        let sized = starts.keys().find(|(other_uid, other_job, other, size)| {
            (other_uid, other_job, other) == (uid, job, launch) && size.is_some()
        });
        if let Some(sized) = sized.cloned()
            && let Some(ranks) = starts.remove(&key)
        {
            starts.entry(sized).or_default().extend(ranks);
        }
    }
}

fn has_duplicates(ranks: &[MpiRank]) -> bool {
    let mut seen = HashSet::new();
    ranks
        .iter()
        .any(|rank| rank.rank.is_some() && !seen.insert(rank.rank))
}

fn split_by_launcher(ranks: Vec<MpiRank>) -> Vec<Vec<MpiRank>> {
    let mut parts: BTreeMap<(String, u32), Vec<MpiRank>> = BTreeMap::new();
    for rank in ranks {
        let key = (rank.node.clone(), rank.parent_pid);
        parts.entry(key).or_default().push(rank);
    }
    parts.into_values().map(newest_of_each).collect()
}

/// Sorts by rank. Of several processes with the same rank, the youngest stays: an earlier one
/// ended.
fn newest_of_each(mut ranks: Vec<MpiRank>) -> Vec<MpiRank> {
    ranks.sort_by(|a, b| {
        (a.rank, a.has_ended)
            .cmp(&(b.rank, b.has_ended))
            .then(a.age.total_cmp(&b.age))
    });
    ranks.dedup_by(|later, kept| later.rank.is_some() && later.rank == kept.rank);
    ranks
}
