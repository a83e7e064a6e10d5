//! Compares the ranks of each program.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::comm_names::CommNames;
use crate::finding::{StuckFinding, collective_finding, function_finding};
use crate::grouping::group_by_start;
use crate::late::{LateRank, late_rank};
use crate::position::{Position, WaitTarget, main_thread, position};
use crate::rank::{CommId, MpiRank, RankPhase};
use crate::text;

/// One start of a program: its ranks and what was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MpiJob {
    /// Empty if there is none.
    pub job: String,
    pub user: String,
    pub command: String,
    pub size: Option<u32>,
    pub nodes: usize,
    /// Whether ranks have been waiting for longer than the limit.
    pub is_stuck: bool,
    /// Whether all ranks have ended, with or without `MPI_Finalize`.
    pub has_ended: bool,
    /// What ranks wait for, largest group first.
    pub findings: Vec<StuckFinding>,
    pub late: Option<LateRank>,
    /// The sentence that describes the late rank.
    pub late_text: Option<String>,
    pub ranks: Vec<JobRank>,
}

/// A rank of a job, with the sentence that describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRank {
    #[serde(flatten)]
    pub state: MpiRank,
    pub text: String,
}

/// Compares ranks. Those that have been in one call for `after` seconds are waiting.
pub fn analyse(ranks: Vec<MpiRank>, after: f64) -> Vec<MpiJob> {
    let groups = group_by_start(ranks).into_iter();
    let mut jobs: Vec<MpiJob> = groups.map(|ranks| analyse_job(ranks, after)).collect();
    jobs.sort_by(|a, b| {
        let stuck_first = b.is_stuck.cmp(&a.is_stuck);
        let running_first = a.has_ended.cmp(&b.has_ended);
        let order = stuck_first.then(running_first);
        order.then_with(|| (&a.job, &a.command).cmp(&(&b.job, &b.command)))
    });
    jobs
}

fn analyse_job(ranks: Vec<MpiRank>, after: f64) -> MpiJob {
    let names = CommNames::new(&ranks);
    let findings = findings(&ranks, &names, after);
    let texts: Vec<String> = ranks.iter().map(|rank| text::place(rank, &names)).collect();
    let late = late_of(&ranks);
    let mut nodes: Vec<&str> = ranks.iter().map(|rank| rank.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let first = ranks.first();
    MpiJob {
        job: first.map_or_else(String::new, |rank| rank.job.clone()),
        user: first.map_or_else(String::new, |rank| rank.user.clone()),
        command: first.map_or_else(String::new, |rank| rank.command.clone()),
        size: first.and_then(|rank| rank.size),
        nodes: nodes.len(),
        is_stuck: !findings.is_empty(),
        has_ended: ranks.iter().all(has_ended),
        findings,
        late_text: late.as_ref().map(LateRank::text),
        late,
        ranks: ranks
            .into_iter()
            .zip(texts)
            .map(|(state, text)| JobRank { state, text })
            .collect(),
    }
}

/// Returns the late rank: of those that run, or of all if the program has ended.
fn late_of(ranks: &[MpiRank]) -> Option<LateRank> {
    let is_over = ranks.iter().all(has_ended);
    let is_compared =
        |rank: &&MpiRank| is_over || (rank.phase == RankPhase::Running && !rank.has_ended);
    let compared = ranks.iter().filter(is_compared);
    let seconds: Vec<(u32, &str, f64)> = compared
        .filter_map(|rank| Some((rank.rank?, rank.node.as_str(), rank.collective_seconds)))
        .collect();
    late_rank(&seconds)
}

fn has_ended(rank: &MpiRank) -> bool {
    rank.has_ended || rank.phase == RankPhase::Finalized
}

/// The most findings of one job; more would be a program whose communicators all hang alone.
const FINDINGS_MAX: usize = 16;

fn findings(ranks: &[MpiRank], names: &CommNames<'_>, after: f64) -> Vec<StuckFinding> {
    let mut waiting: BTreeMap<WaitTarget, Vec<&MpiRank>> = BTreeMap::new();
    for rank in ranks {
        if let Position::Inside(target) = position(rank) {
            waiting.entry(target).or_default().push(rank);
        }
    }
    let is_long = |rank: &&MpiRank| {
        let thread = main_thread(rank).filter(|thread| thread.is_inside);
        thread.is_some_and(|thread| thread.seconds.is_some_and(|seconds| seconds >= after))
    };
    waiting.retain(|_, ranks| ranks.iter().any(is_long));
    let mut order: Vec<(&WaitTarget, &Vec<&MpiRank>)> = waiting.iter().collect();
    let is_collective = |target: &WaitTarget| matches!(target, WaitTarget::Collective { .. });
    order.sort_by_key(|(target, ranks)| (!is_collective(target), std::cmp::Reverse(ranks.len())));
    let mut findings: Vec<StuckFinding> = Vec::new();
    let mut reported: Vec<(CommId, u64)> = Vec::new();
    for (target, ranks_waiting) in order {
        // Named before as those for whom others wait: that is where to look.
        let is_named = |rank: &&MpiRank| {
            let number = rank.rank.unwrap_or(u32::MAX);
            findings
                .iter()
                .any(|finding| finding.missing.contains(&number))
        };
        let is_known = match target {
            // Named as a collective in different order.
            WaitTarget::Collective { comm, number, .. } => reported.contains(&(*comm, *number)),
            WaitTarget::Function(_) => ranks_waiting.iter().all(is_named),
        };
        if is_known || findings.len() == FINDINGS_MAX {
            continue;
        }
        if let WaitTarget::Collective { comm, number, .. } = target {
            reported.push((*comm, *number));
        }
        findings.extend(match target {
            WaitTarget::Collective { .. } => collective_finding(ranks, target, names),
            WaitTarget::Function(function) => {
                Some(function_finding(ranks, ranks_waiting, function, names))
            }
        });
    }
    findings
}
