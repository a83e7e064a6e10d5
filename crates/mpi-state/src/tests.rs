//! Findings about ranks that are made up.

use crate::rank::{CommId, MpiRank, RankComm, RankOperation, RankPhase, RankThread};
use crate::{MpiJob, analyse};

const SPLIT: CommId = CommId(77);

fn comm(id: CommId, size: u32, last: u64, function: &str) -> RankComm {
    RankComm {
        id,
        parent: CommId::WORLD,
        created_by: String::new(),
        created_number: 5,
        first: 0,
        size,
        rank: 0,
        is_self: false,
        last_number: last,
        last_function: function.to_owned(),
    }
}

fn thread(function: &str, seconds: f64, operation: RankOperation) -> RankThread {
    RankThread {
        id: 1,
        function: function.to_owned(),
        is_inside: true,
        seconds: Some(seconds),
        operation,
    }
}

/// A rank in the collective `number` of `MPI_COMM_WORLD`.
fn in_collective(rank: u32, function: &str, number: u64) -> MpiRank {
    let comm_id = CommId::WORLD;
    MpiRank {
        node: format!("n{}", rank / 2),
        pid: 100 + rank,
        uid: 1,
        user: "ada".to_owned(),
        job: "17".to_owned(),
        command: "solver".to_owned(),
        rank: Some(rank),
        size: Some(4),
        launch: CommId(9),
        parent_pid: 1,
        phase: RankPhase::Running,
        has_ended: false,
        age: 100.0,
        collective_seconds: 30.0,
        state: Some('S'),
        wchan: None,
        threads: vec![thread(
            function,
            31.0,
            RankOperation::Collective {
                comm: comm_id,
                number,
            },
        )],
        comms: vec![comm(comm_id, 4, number, function)],
    }
}

/// A rank in `MPI_Recv` whose last collective was `number`.
fn in_recv(rank: u32, number: u64) -> MpiRank {
    let operation = RankOperation::PointToPoint {
        comm: Some(CommId::WORLD),
        peer: Some(0),
        tag: None,
    };
    MpiRank {
        threads: vec![thread("MPI_Recv", 31.0, operation)],
        ..in_collective(rank, "MPI_Bcast", number)
    }
}

fn job(ranks: Vec<MpiRank>) -> MpiJob {
    let mut jobs = analyse(ranks, 10.0);
    assert_eq!(jobs.len(), 1);
    jobs.remove(0)
}

fn waiting() -> Vec<MpiRank> {
    [0, 1, 2]
        .map(|rank| in_collective(rank, "MPI_Allreduce", 20_481))
        .into()
}

#[test]
fn the_rank_elsewhere_is_named_in_one_sentence() {
    let mut ranks = waiting();
    ranks.push(in_recv(3, 20_480));
    let job = job(ranks);
    assert_eq!(
        job.findings[0].lines,
        [
            "3 ranks in MPI_Allreduce #20481 (MPI_COMM_WORLD) for 31 s; rank 3 on n1 is in MPI_Recv with \
          rank 0 for 31 s, its last collective was #20480 MPI_Bcast"
        ]
    );
    assert_eq!(job.findings.len(), 1, "the rank in MPI_Recv is named once");
    assert_eq!((job.nodes, job.is_stuck), (2, true));
}

#[test]
fn a_stopped_rank_in_the_same_collective_is_named() {
    let mut ranks = waiting();
    ranks[1].state = Some('T');
    ranks.push(in_collective(3, "MPI_Allreduce", 20_481));
    let job = job(ranks);
    assert_eq!(job.findings[0].missing, [1]);
    assert!(job.findings[0].lines[0].contains("stopped by a signal"));
}

#[test]
fn ranks_ahead_are_not_those_to_look_at() {
    // The root of a broadcast does not wait.
    let mut ranks = vec![in_recv(0, 9)];
    ranks.extend([1, 2].map(|rank| in_collective(rank, "MPI_Bcast", 8)));
    ranks.push(in_recv(3, 7));
    let job = job(ranks);
    assert_eq!(job.findings[0].missing, [3]);
    let text = job.findings[0].lines.join("\n");
    assert!(text.contains("rank 0 did not wait and went on"), "{text}");
}

#[test]
fn unknown_ranks_are_counted_and_named() {
    let job = job(waiting());
    let text = job.findings[0].lines.join("\n");
    assert!(text.contains("1 rank unknown (3): "), "{text}");
}

#[test]
fn short_waits_are_not_reported() {
    let mut ranks = waiting();
    for rank in &mut ranks {
        rank.threads[0].seconds = Some(0.5);
    }
    ranks.push(in_recv(3, 20_480));
    ranks[3].threads[0].seconds = Some(3.0);
    let job = job(ranks);
    assert_eq!((job.is_stuck, job.findings.len()), (false, 0));
    assert_eq!(job.ranks[3].text, "in MPI_Recv with rank 0 for 3.0 s");
}

#[test]
fn members_of_a_derived_communicator_are_compared_among_themselves() {
    let mut ranks = waiting();
    for rank in &mut ranks[..2] {
        rank.comms.push(comm(SPLIT, 2, 4, "MPI_Barrier"));
    }
    let (split, number) = (SPLIT, 4);
    ranks[0].threads[0] = thread(
        "MPI_Barrier",
        20.0,
        RankOperation::Collective {
            comm: split,
            number,
        },
    );
    ranks[1].comms[1].last_number = 3;
    let job = job(ranks);
    let texts: Vec<String> = job.findings.iter().map(|f| f.lines.join("\n")).collect();
    let barrier = texts
        .iter()
        .find(|text| text.starts_with("1 rank in MPI_Barrier #4 (comm 1)"));
    assert!(
        barrier.is_some_and(|text| text.contains("rank 1 on n0 is in MPI_Allreduce")),
        "{texts:?}"
    );
}

#[test]
fn two_starts_of_a_program_are_told_apart() {
    let mut ranks = waiting();
    ranks.extend(waiting().into_iter().map(|rank| MpiRank {
        launch: CommId(10),
        ..rank
    }));
    assert_eq!(analyse(ranks, 10.0).len(), 2);
    // Without variables of the launcher, by its process, if a rank is there twice.
    let unnamed = |parent_pid: u32| {
        waiting().into_iter().map(move |rank| MpiRank {
            launch: CommId(0),
            parent_pid,
            ..rank
        })
    };
    let jobs = analyse(unnamed(1).chain(unnamed(2)).collect(), 10.0);
    assert_eq!(jobs.len(), 4, "two nodes with a launcher each, twice");
    assert_eq!(analyse(unnamed(1).collect(), 10.0).len(), 1);
}

#[test]
fn circular_parents_and_absurd_numbers_are_survived() {
    let mut ranks = waiting();
    for rank in &mut ranks {
        let mut circular = comm(SPLIT, u32::MAX, u64::MAX, "x");
        circular.parent = SPLIT;
        rank.comms.push(circular);
        rank.size = Some(u32::MAX);
        rank.threads[0].seconds = Some(f64::INFINITY);
    }
    assert!(job(ranks).is_stuck);
    assert!(analyse(Vec::new(), 10.0).is_empty());
}

#[test]
fn ranks_are_read_as_they_are_written() {
    let rank = in_recv(3, 7);
    let text = serde_json::to_string(&rank).expect("JSON");
    assert_eq!(serde_json::from_str::<MpiRank>(&text).expect("valid"), rank);
    let wrong = text.replace("\"0000000000000009\"", "\"x\"");
    assert!(serde_json::from_str::<MpiRank>(&wrong).is_err());
}

#[test]
fn the_late_rank_of_a_program_that_ended_is_named() {
    let ended = |rank, seconds| MpiRank {
        phase: RankPhase::Finalized,
        has_ended: true,
        collective_seconds: seconds,
        ..in_collective(rank, "MPI_Barrier", 9)
    };
    let late = |ranks| job(ranks).late.map(|late| late.rank);
    let ranks = vec![ended(0, 8.0), ended(1, 8.1), ended(2, 0.1), ended(3, 8.0)];
    assert_eq!(late(ranks.clone()), Some(2));
    let mut running = in_collective(0, "MPI_Barrier", 9);
    running.collective_seconds = 8.0;
    let ranks = [vec![running], ranks[1..].to_vec()].concat();
    assert_eq!(late(ranks), None, "only one of them still runs");
}
