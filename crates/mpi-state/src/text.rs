//! The sentences about ranks.

use crate::comm_names::CommNames;
use crate::position::{is_polling, main_thread};
use crate::rank::{CommId, MpiRank, RankOperation, RankPhase};

/// Formats a time: `0.4 s`, `31 s`, `12 min`, `3 h`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 36_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// Formats a number of ranks with its noun.
pub(crate) fn ranks(count: usize) -> String {
    match count {
        1 => "1 rank".to_owned(),
        count => format!("{count} ranks"),
    }
}

/// Names ranks: `rank 3`, `ranks 0, 1, 2 and 5 more`.
pub(crate) fn rank_list(ranks: &[&MpiRank]) -> String {
    const NAMED_MAX: usize = 8;
    let mut numbers: Vec<String> = ranks
        .iter()
        .take(NAMED_MAX)
        .map(|rank| number(rank))
        .collect();
    if let Some(more @ 1..) = ranks.len().checked_sub(NAMED_MAX) {
        numbers.push(format!("{more} more"));
    }
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    match numbers.as_slice() {
        [one] => format!("{noun} {one}"),
        [first @ .., last] => format!("{noun} {} and {last}", first.join(", ")),
        [] => "no ranks".to_owned(),
    }
}

pub(crate) fn number(rank: &MpiRank) -> String {
    match rank.rank {
        Some(number) => number.to_string(),
        None => format!("of pid {}", rank.pid),
    }
}

/// Names a rank and its node: `rank 317 on nid0019`.
pub(crate) fn rank_on_node(rank: &MpiRank) -> String {
    match rank.node.is_empty() {
        true => format!("rank {}", number(rank)),
        false => format!("rank {} on {}", number(rank), rank.node),
    }
}

/// Describes where a rank is: `in MPI_Recv from rank 2 (tag 7) for 31 s`.
pub(crate) fn place(rank: &MpiRank, names: &CommNames<'_>) -> String {
    let mut text = match (rank.phase, rank.has_ended, main_thread(rank)) {
        (RankPhase::Finalized, _, _) => return "done: MPI_Finalize has returned".to_owned(),
        (_, true, Some(thread)) if thread.is_inside => {
            let function = &thread.function;
            return format!(
                "gone: it ended without MPI_Finalize in {function}{}",
                operand(&thread.operation, names)
            );
        }
        (_, true, _) => return "gone: it ended without MPI_Finalize, outside MPI".to_owned(),
        (_, false, None) => "outside MPI".to_owned(),
        (_, false, Some(thread)) => {
            let since = thread.seconds.map(|s| format!(" for {}", duration(s)));
            let since = since.unwrap_or_default();
            let function = match thread.function.as_str() {
                "" => "an MPI call",
                function => function,
            };
            let what = operand(&thread.operation, names);
            if thread.is_inside {
                format!("in {function}{what}{since}")
            } else if is_polling(thread) {
                format!("polling with {function}{what}")
            } else {
                format!("outside MPI{since}, after {function}{what}")
            }
        }
    };
    text.push_str(&process_state(rank));
    text
}

/// Describes the operation of a call: ` #20481 (comm 3)`, ` from rank 2 (tag 7)`.
pub(crate) fn operand(operation: &RankOperation, names: &CommNames<'_>) -> String {
    match operation {
        RankOperation::Other => String::new(),
        RankOperation::PointToPoint { comm, peer, tag } => {
            let peer = peer.map_or_else(
                || "any or no rank".to_owned(),
                |peer| format!("rank {peer}"),
            );
            let tag = tag.map(|tag| format!("tag {tag}"));
            let comm = comm.filter(|comm| *comm != CommId::WORLD);
            let comm = comm.map(|comm| names.name(comm));
            let details: Vec<String> = tag.into_iter().chain(comm).collect();
            match details.is_empty() {
                true => format!(" with {peer}"),
                false => format!(" with {peer} ({})", details.join(", ")),
            }
        }
        RankOperation::Collective { comm, number } => collective(*comm, *number, 0, names),
        RankOperation::Waits {
            comm,
            number,
            begun_by,
            starts,
        } => format!(
            " for {begun_by}{}",
            collective(*comm, *number, *starts, names)
        ),
    }
}

/// Names a collective on its communicator: ` #20481 (comm 3)`.
pub(crate) fn collective(comm: CommId, number: u64, starts: u32, names: &CommNames<'_>) -> String {
    let name = names.name(comm);
    match starts {
        0 => format!(" #{number} ({name})"),
        starts => format!(" #{number}, start {starts} ({name})"),
    }
}

/// Describes a state of the process in which it cannot continue, and where the kernel holds it.
fn process_state(rank: &MpiRank) -> String {
    let wchan = rank.wchan.as_deref().filter(|name| !name.is_empty());
    let held = |text: &str| match wchan {
        Some(wchan) => format!(" ({text} in {wchan})"),
        None => format!(" ({text})"),
    };
    match rank.state {
        Some('T') => " (the process is stopped by a signal)".to_owned(),
        Some('t') => " (the process is stopped by a debugger)".to_owned(),
        Some('Z' | 'X') => " (the process has ended)".to_owned(),
        Some('D') => held("uninterruptible"),
        Some('R') => " (running)".to_owned(),
        Some('S') if wchan.is_some() => held("sleeping"),
        _ => String::new(),
    }
}
