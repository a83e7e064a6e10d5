//! One operation in which ranks have been waiting for long, and the ranks that they wait for.

use serde::Serialize;

use crate::comm_names::CommNames;
use crate::position::{Position, WaitTarget, base_name, main_thread, position};
use crate::rank::{CommId, MpiRank, RankPhase};
use crate::text;

/// Ranks that wait, and those for which they wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StuckFinding {
    /// The sentences, one per line.
    pub lines: Vec<String>,
    /// Ranks that wait.
    pub waiting: Vec<u32>,
    /// Ranks for which they wait, as far as known.
    pub missing: Vec<u32>,
    /// Whether members called different collectives as the same number of their communicator.
    pub is_order_mismatch: bool,
}

/// The most ranks that are described one by one.
const DESCRIBED_MAX: usize = 10;

/// How a member of a communicator stands to a collective in which others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    /// In it, but its process cannot continue.
    Held,
    Ended,
    /// Called another collective as the same number.
    Other,
    Behind,
    /// Has begun it and does not wait for it.
    Begun,
    Ahead,
}

fn standing(rank: &MpiRank, target: &WaitTarget) -> Standing {
    let WaitTarget::Collective {
        comm,
        number,
        function,
        ..
    } = target
    else {
        return Standing::Ahead;
    };
    let is_held = matches!(rank.state, Some('T' | 't' | 'Z' | 'X'));
    let last = rank.comm(*comm);
    let last_number = last.map_or(0, |last| last.last_number);
    let last_function = last.map_or("", |last| base_name(&last.last_function));
    match position(rank) {
        Position::Ended(_) => Standing::Ended,
        Position::Inside(own) if own == *target && is_held => Standing::Held,
        Position::Inside(own) if own == *target => Standing::Waits,
        _ if last_number < *number => Standing::Behind,
        _ if last_number == *number && last_function != function => Standing::Other,
        _ if last_number == *number => Standing::Begun,
        _ => Standing::Ahead,
    }
}

/// Returns how long a rank has been in its call, if known.
fn waited(rank: &MpiRank) -> f64 {
    let thread = main_thread(rank).filter(|thread| thread.is_inside);
    thread.and_then(|thread| thread.seconds).unwrap_or(0.0)
}

/// The members of a communicator, by how they stand to a collective.
struct Members<'a>(Vec<(&'a MpiRank, Standing)>);

impl<'a> Members<'a> {
    fn of(all: &'a [MpiRank], target: &WaitTarget) -> Members<'a> {
        let is_member = |rank: &&MpiRank| match target {
            WaitTarget::Collective { comm, .. } => rank.comm(*comm).is_some(),
            WaitTarget::Function(_) => false,
        };
        let members = all.iter().filter(is_member);
        Members(members.map(|rank| (rank, standing(rank, target))).collect())
    }

    fn with(&self, wanted: Standing) -> Vec<&'a MpiRank> {
        let chosen = self.0.iter().filter(|(_, standing)| *standing == wanted);
        chosen.map(|(rank, _)| *rank).collect()
    }

    /// Returns those for which the others wait, as far as known.
    fn missing(&self) -> Vec<&'a MpiRank> {
        let causes = [
            Standing::Ended,
            Standing::Held,
            Standing::Other,
            Standing::Behind,
        ];
        let missing: Vec<&MpiRank> = { causes.iter() }
            .flat_map(|standing| self.with(*standing))
            .collect();
        match missing.is_empty() {
            true => self.with(Standing::Begun),
            false => missing,
        }
    }
}

/// Describes the ranks that wait in a collective, and where the other members are.
pub(crate) fn collective_finding(
    all: &[MpiRank],
    target: &WaitTarget,
    names: &CommNames<'_>,
) -> Option<StuckFinding> {
    let WaitTarget::Collective { comm, .. } = target else {
        return None;
    };
    let members = Members::of(all, target);
    let waiting = members.with(Standing::Waits);
    let first = waiting.first()?;
    let (other, ahead) = (members.with(Standing::Other), members.with(Standing::Ahead));
    let missing = members.missing();
    let mut lines = vec![waiting_text(&waiting, target, names)];
    if !other.is_empty() {
        lines.push(order_text(&other, &waiting, target, names));
    }
    lines.extend(missing.iter().take(DESCRIBED_MAX).map(|rank| {
        let (rank_text, place) = (text::rank_on_node(rank), text::place(rank, names));
        format!("{rank_text} is {place}{}", last_collective(rank, *comm))
    }));
    // One sentence, if there is one rank to name.
    if missing.len() == 1 && lines.len() == 2 {
        lines = vec![lines.join("; ")];
    }
    if let Some(more @ 1..) = missing.len().checked_sub(DESCRIBED_MAX) {
        lines.push(format!("{} more are elsewhere", text::ranks(more)));
    }
    if !ahead.is_empty() {
        let went_on = text::rank_list(&ahead);
        lines.push(format!("{went_on} did not wait and went on"));
    }
    let size = first.comm(*comm).map_or(0, |comm| comm.size as usize);
    let unknown = size.saturating_sub(members.0.len());
    lines.extend(unknown_text(unknown, all, *comm));
    lines.extend(names.origin(*comm));
    Some(StuckFinding {
        lines,
        waiting: numbers(&waiting),
        missing: numbers(&missing),
        is_order_mismatch: !other.is_empty(),
    })
}

/// Describes what ranks wait in: `3 ranks in MPI_Wait for MPI_Ibarrier #2 (comm 1) for 31 s`.
fn waiting_text(waiting: &[&MpiRank], target: &WaitTarget, names: &CommNames<'_>) -> String {
    let (function, collective) = match target {
        WaitTarget::Collective {
            comm,
            number,
            starts,
            function,
        } => (
            function.as_str(),
            text::collective(*comm, *number, *starts, names),
        ),
        WaitTarget::Function(function) => (function.as_str(), String::new()),
    };
    let seconds = waiting.iter().map(|rank| waited(rank)).fold(0.0, f64::max);
    let since = match seconds > 0.0 {
        true => format!(" for {}", text::duration(seconds)),
        false => String::new(),
    };
    let thread = waiting.first().and_then(|rank| main_thread(rank));
    let call = thread.map_or(function, |thread| base_name(&thread.function));
    let call = match call == function {
        true => function.to_owned(),
        false => format!("{call} for {function}"),
    };
    let count = text::ranks(waiting.len());
    format!("{count} in {call}{collective}{since}")
}

fn numbers(ranks: &[&MpiRank]) -> Vec<u32> {
    ranks.iter().filter_map(|rank| rank.rank).collect()
}

fn order_text(
    other: &[&MpiRank],
    waiting: &[&MpiRank],
    target: &WaitTarget,
    names: &CommNames<'_>,
) -> String {
    let WaitTarget::Collective {
        comm,
        number,
        function,
        ..
    } = target
    else {
        return String::new();
    };
    let theirs = other.first().and_then(|rank| rank.comm(*comm));
    let theirs = theirs.map_or("", |last| last.last_function.as_str());
    format!(
        "collectives in different order on {}: #{number} is {function} on {} and {theirs} on {}",
        names.name(*comm),
        text::rank_list(waiting),
        text::rank_list(other)
    )
}

/// Describes the last collective of a rank on the communicator of a finding.
fn last_collective(rank: &MpiRank, comm: CommId) -> String {
    match rank.comm(comm) {
        Some(last) if last.last_number > 0 => {
            let (number, function) = (last.last_number, &last.last_function);
            format!(", its last collective was #{number} {function}")
        }
        Some(_) => ", it has called no collective".to_owned(),
        None => String::new(),
    }
}

/// The most unknown ranks that are named.
const UNKNOWN_MAX: usize = 8;

/// Describes members of which nothing is known.
fn unknown_text(count: usize, all: &[MpiRank], comm: CommId) -> Option<String> {
    let mut named = String::new();
    if comm == CommId::WORLD {
        let size = all.first().and_then(|rank| rank.size).unwrap_or(0);
        let known: std::collections::HashSet<u32> = all.iter().filter_map(|r| r.rank).collect();
        let unknown = (0..size).filter(|rank| !known.contains(rank));
        let unknown: Vec<String> = unknown
            .take(UNKNOWN_MAX)
            .map(|rank| rank.to_string())
            .collect();
        named = format!(
            " ({}{})",
            unknown.join(", "),
            if count > UNKNOWN_MAX { ", …" } else { "" }
        );
    }
    (count > 0).then(|| {
        let reasons = "not under `pegel run -m`, on a node that is not asked, or ended long ago";
        format!("{} unknown{named}: {reasons}", text::ranks(count))
    })
}

/// Describes ranks that wait in calls without numbers, such as `MPI_Recv`.
pub(crate) fn function_finding(
    all: &[MpiRank],
    waiting: &[&MpiRank],
    function: &str,
    names: &CommNames<'_>,
) -> StuckFinding {
    // All ranks of a program must call these.
    let is_for_all = matches!(function, "MPI_Init" | "MPI_Init_thread" | "MPI_Finalize");
    let is_elsewhere = |rank: &&MpiRank| {
        let is_here = waiting
            .iter()
            .any(|waiting| waiting.pid == rank.pid && waiting.node == rank.node);
        !is_here && rank.phase != RankPhase::Finalized
    };
    let missing: Vec<&MpiRank> = match is_for_all {
        true => all.iter().filter(is_elsewhere).collect(),
        false => Vec::new(),
    };
    let described = if is_for_all { &missing[..] } else { waiting };
    let target = WaitTarget::Function(function.to_owned());
    let mut lines = vec![waiting_text(waiting, &target, names)];
    lines.extend(described.iter().take(DESCRIBED_MAX).map(|rank| {
        format!(
            "{} is {}",
            text::rank_on_node(rank),
            text::place(rank, names)
        )
    }));
    StuckFinding {
        lines,
        waiting: numbers(waiting),
        missing: numbers(&missing),
        is_order_mismatch: false,
    }
}
