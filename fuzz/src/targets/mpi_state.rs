//! The MPI state in a lane, which untrusted programs write, and the analysis of what nodes report.

use pegel_lane::mpi_state::{AREA_BYTES, COMMS_MAX, THREADS_MAX, state};
use pegel_lane::reader::MpiState;
use pegel_mpi_state::{MpiRank, analyse};

use super::Target;
use crate::memory::bounded;

pub(super) const MPI_STATE: Target = Target {
    name: "mpi_state",
    run: area,
    dictionary: &[b"MPIS\x01\0\0\0", b"MPI_Barrier", &[1, 0, 1, 0], &[0xff; 8]],
    seeds: || vec![example_area(), vec![0; 8], vec![0xff; AREA_BYTES]],
};

pub(super) const MPI_RANKS: Target = Target {
    name: "mpi_ranks",
    run: ranks,
    dictionary: &[
        b"\"comm\":\"0000000000000000\"",
        b"\"collective\"",
        b"\"waits\"",
        b"\"is_inside\":true",
        b"\"has_ended\":true",
        b"\"last_number\":",
        b"null",
    ],
    seeds: || vec![EXAMPLE_RANKS.as_bytes().to_vec(), b"[]".to_vec()],
};

/// An area with one communicator and one thread in a collective.
fn example_area() -> Vec<u8> {
    let mut bytes = vec![0; AREA_BYTES];
    let mut put = |at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    put(0, u64::from_le_bytes(*b"MPIS\x01\0\0\0"));
    put(8, 1 << 32 | 1);
    put(16, 4 << 32 | 1);
    put(40, 1 << 32);
    let threads = 128 + 128 * 32;
    put(threads, 77);
    put(threads + 8, 1 | state::INSIDE | state::COLLECTIVE);
    put(threads + 32, 5);
    let comms = threads + THREADS_MAX * 64;
    put(comms, 5 << 16 | 1);
    put(comms + 32, 4 << 32);
    put(comms + 40, 1 << 32 | 1);
    bytes[128 + 32..128 + 43].copy_from_slice(b"MPI_Barrier");
    bytes
}

/// The input is the beginning of an area; the rest is zero. Every text is printable, every list has
/// its limit.
fn area(input: &[u8]) {
    let mut bytes = vec![0; AREA_BYTES];
    let length = input.len().min(AREA_BYTES);
    bytes[..length].copy_from_slice(&input[..length]);
    let Some(state) = bounded(1 << 20, || MpiState::parse(&bytes)) else {
        return;
    };
    assert!(state.threads.len() <= THREADS_MAX && state.comms.len() <= COMMS_MAX);
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic());
    for thread in &state.threads {
        assert!(is_name(&thread.function));
        let _ = state.clock.nanos_since(thread.ticks, 1 << 40);
        let _ = state.clock.nanos(thread.collective_ticks);
    }
    for comm in &state.comms {
        assert!(is_name(&comm.last_function) && is_name(&comm.created_by));
    }
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let _ = MpiState::parse_copies(&reversed, &bytes);
}

const EXAMPLE_RANKS: &str = r#"[{"node":"n","pid":1,"uid":1,"user":"a","job":"1","command":"c","rank":0,"size":2,
"launch":"0000000000000001","parent_pid":1,"phase":"running","has_ended":false,"age":9.0,"collective_seconds":1.0,
"state":"S","wchan":null,"threads":[{"id":1,"function":"MPI_Barrier","is_inside":true,"seconds":20.0,
"operation":{"collective":{"comm":"0000000000000000","number":2}}}],"comms":[{"id":"0000000000000000",
"parent":"0000000000000000","created_by":"","created_number":0,"first":0,"size":2,"rank":0,"is_self":false,
"last_number":2,"last_function":"MPI_Barrier"}]},{"node":"n","pid":2,"uid":1,"user":"a","job":"1","command":"c",
"rank":1,"size":2,"launch":"0000000000000001","parent_pid":1,"phase":"running","has_ended":false,"age":9.0,
"collective_seconds":1.0,"state":"R","wchan":null,"threads":[{"id":1,"function":"MPI_Wait","is_inside":true,
"seconds":20.0,"operation":{"waits":{"comm":"0000000000000007","number":1,"begun_by":"MPI_Ibarrier","starts":0}}}],
"comms":[{"id":"0000000000000007","parent":"0000000000000000","created_by":"MPI_Comm_dup","created_number":1,
"first":0,"size":2,"rank":1,"is_self":false,"last_number":1,"last_function":"MPI_Ibarrier"}]}]"#;

/// What a node reports is analysed without failing, and each rank is in at most one job.
fn ranks(input: &[u8]) {
    let Ok(ranks) = serde_json::from_slice::<Vec<MpiRank>>(input) else {
        return;
    };
    let count = ranks.len();
    let jobs = analyse(ranks, 10.0);
    let shown: usize = jobs.iter().map(|job| job.ranks.len()).sum();
    assert!(shown <= count);
    for job in &jobs {
        assert_eq!(job.is_stuck, !job.findings.is_empty());
        assert!(job.findings.iter().all(|finding| !finding.lines.is_empty()));
    }
}
