//! Short names for communicators: `MPI_COMM_WORLD`, and numbers for the others of a job.

use std::collections::{BTreeMap, HashMap};

use crate::rank::{CommId, MpiRank, RankComm};

/// The numbers of the communicators of a job, in the order of their creation: parents first, then
/// by the number of the collective that created them, then by their first rank.
#[derive(Debug, Default)]
pub(crate) struct CommNames<'a> {
    numbers: HashMap<CommId, usize>,
    comms: BTreeMap<CommId, &'a RankComm>,
}

/// What orders communicators: depth, creation of each ancestor and of itself, id.
type CreationOrder = (usize, Vec<(u64, u32)>, CommId);

/// Chains of parents longer than this are cut: hostile ones may be circular.
const DEPTH_MAX: usize = 64;

impl<'a> CommNames<'a> {
    pub(crate) fn new(ranks: &'a [MpiRank]) -> CommNames<'a> {
        let mut comms: BTreeMap<CommId, &RankComm> = BTreeMap::new();
        let all = ranks.iter().flat_map(|rank| &rank.comms);
        for comm in all.filter(|comm| !comm.is_self && comm.id != CommId::WORLD) {
            comms.entry(comm.id).or_insert(comm);
        }
        let path = |comm: &RankComm| {
            let mut path = vec![(comm.created_number, comm.first)];
            let mut parent = comm.parent;
            while let Some(above) = comms.get(&parent).filter(|_| path.len() < DEPTH_MAX) {
                path.push((above.created_number, above.first));
                parent = above.parent;
            }
            path.reverse();
            path
        };
        let mut order: Vec<CreationOrder> = { comms.values() }
            .map(|comm| path(comm))
            .zip(comms.keys())
            .map(|(path, id)| (path.len(), path, *id))
            .collect();
        order.sort();
        let numbers = order.iter().enumerate();
        let numbers = numbers.map(|(at, (_, _, id))| (*id, at + 1)).collect();
        CommNames { numbers, comms }
    }

    pub(crate) fn name(&self, id: CommId) -> String {
        match self.numbers.get(&id) {
            _ if id == CommId::WORLD => "MPI_COMM_WORLD".to_owned(),
            Some(number) => format!("comm {number}"),
            None => "a freed communicator".to_owned(),
        }
    }

    /// Describes where a communicator comes from; `None` of `MPI_COMM_WORLD`.
    pub(crate) fn origin(&self, id: CommId) -> Option<String> {
        let comm = self.comms.get(&id)?;
        let members = format!("{} ranks, first rank {}", comm.size, comm.first);
        Some(match comm.created_by.is_empty() {
            true => format!("{}: {members}", self.name(id)),
            false => format!(
                "{}: {members}, by {} #{} on {}",
                self.name(id),
                comm.created_by,
                comm.created_number,
                self.name(comm.parent)
            ),
        })
    }
}
