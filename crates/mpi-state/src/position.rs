//! Where a rank is: the thread of a process that counts, and what it waits for.

use crate::rank::{CommId, MpiRank, RankOperation, RankPhase, RankThread};

/// What a rank waits for, so that ranks that wait for the same have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitTarget {
    /// A collective: communicator, number, starts of a persistent request, and the function.
    Collective {
        comm: CommId,
        number: u64,
        starts: u32,
        function: String,
    },
    /// Another process, or something else that is not numbered: the function.
    Function(String),
}

/// Where a rank is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Position {
    /// The process ended without `MPI_Finalize`; what it was in then.
    Ended(Option<WaitTarget>),
    Finalized,
    /// In a call, or polling for a collective.
    Inside(WaitTarget),
    /// In no call.
    Outside,
}

/// A thread that tests its requests more often than this, in seconds, polls.
const POLL_SECONDS_MAX: f64 = 1.0;

/// Returns the thread whose state is that of the process: the one that has been in a call for
/// longest, collectives first, else the one that was in MPI last.
pub(crate) fn main_thread(rank: &MpiRank) -> Option<&RankThread> {
    let seconds = |thread: &RankThread| thread.seconds.unwrap_or(0.0);
    let is_collective = |thread: &&RankThread| {
        matches!(
            thread.operation,
            RankOperation::Collective { .. } | RankOperation::Waits { .. }
        )
    };
    let waiting = || rank.threads.iter().filter(|thread| is_waiting(thread));
    let longest = |a: &&RankThread, b: &&RankThread| seconds(a).total_cmp(&seconds(b));
    waiting()
        .filter(is_collective)
        .max_by(longest)
        .or_else(|| waiting().max_by(longest))
        .or_else(|| rank.threads.iter().min_by(longest))
}

/// Returns whether a thread is in a call, or polls for a collective.
fn is_waiting(thread: &RankThread) -> bool {
    thread.is_inside || is_polling(thread)
}

/// Returns whether a thread keeps testing the request of a collective.
pub(crate) fn is_polling(thread: &RankThread) -> bool {
    let is_test = thread.function.starts_with("MPI_Test");
    let is_recent = thread.seconds.is_some_and(|age| age < POLL_SECONDS_MAX);
    let waits = matches!(thread.operation, RankOperation::Waits { .. });
    !thread.is_inside && is_test && is_recent && waits
}

/// Returns the name of a function without the suffix of large counts: both match each other.
pub(crate) fn base_name(function: &str) -> &str {
    function.strip_suffix("_c").unwrap_or(function)
}

fn target(thread: &RankThread) -> WaitTarget {
    match &thread.operation {
        RankOperation::Collective { comm, number } => WaitTarget::Collective {
            comm: *comm,
            number: *number,
            starts: 0,
            function: base_name(&thread.function).to_owned(),
        },
        RankOperation::Waits {
            comm,
            number,
            begun_by,
            starts,
        } => WaitTarget::Collective {
            comm: *comm,
            number: *number,
            starts: *starts,
            function: base_name(begun_by).to_owned(),
        },
        _ => WaitTarget::Function(thread.function.clone()),
    }
}

pub(crate) fn position(rank: &MpiRank) -> Position {
    let waiting = main_thread(rank).filter(|thread| is_waiting(thread));
    let target = waiting.map(target);
    match (rank.phase, target) {
        (RankPhase::Finalized, _) => Position::Finalized,
        (_, target) if rank.has_ended => Position::Ended(target),
        (_, Some(target)) => Position::Inside(target),
        (_, None) => Position::Outside,
    }
}
