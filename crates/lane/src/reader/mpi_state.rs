//! Reads the MPI state of a process. Its contents are untrusted: every index is checked against its
//! table, every table has a fixed length, and texts are checked before they are used.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::layout::{LINE_BYTES, u64_at};
use crate::mpi_state::{
    AREA_BYTES, COMMS_AT, COMMS_MAX, FUNCTIONS_AT, FUNCTIONS_MAX, MAGIC, MpiPhase, NAME_BYTES_MAX,
    THREADS_AT, THREADS_MAX, VERSION, comm, head, state, thread,
};
use crate::reader::LaneError;
use crate::reader::lane_file::read_exactly;

/// Reads the MPI state in the file of a lane, at any time and from any thread.
#[derive(Debug, Clone)]
pub struct MpiStateReader {
    fd: Arc<OwnedFd>,
    offset: u64,
}

/// The MPI state of a process at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct MpiState {
    pub phase: MpiPhase,
    /// The family of the MPI library: 1 Open MPI, 2 MPICH, 3 the ABI of MPI 5.
    pub library: u32,
    /// Rank and size in `MPI_COMM_WORLD`; `None` before they are known.
    pub world: Option<(u32, u32)>,
    pub clock: MpiClock,
    /// The same for all processes of one start of the program; 0 if unknown.
    pub launch: u64,
    pub parent_pid: u32,
    /// Communicators for which there was no room.
    pub untracked_comms: u64,
    /// Threads that have called MPI.
    pub threads: Vec<MpiThread>,
    /// Communicators that exist.
    pub comms: Vec<MpiComm>,
}

/// Converts ticks to monotonic time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MpiClock {
    ticks: u64,
    nanos: u64,
    /// Nanoseconds per tick, times 2^32; 0 if unknown.
    rate: u64,
}

/// A thread that has called MPI.
#[derive(Debug, Clone, PartialEq)]
pub struct MpiThread {
    pub id: u32,
    /// The function it is in, or was in last; empty if unknown.
    pub function: String,
    pub is_inside: bool,
    /// When it entered or left the function, in ticks.
    pub ticks: u64,
    /// Ticks in collectives that have returned.
    pub collective_ticks: u64,
    pub operation: MpiOperation,
}

/// What a thread does, or did, in the function.
#[derive(Debug, Clone, PartialEq)]
pub enum MpiOperation {
    Other,
    /// Peer and tag are as the program passed them: negative numbers are constants of its library.
    PointToPoint {
        comm: Option<u64>,
        peer: i32,
        tag: i32,
    },
    Collective {
        comm: u64,
        number: u64,
    },
    /// Waits for a collective that was started before.
    Waits {
        comm: u64,
        number: u64,
        /// The function that started it, or created the persistent request.
        function: String,
        /// How many times the persistent request was started; 0 if it is not persistent.
        starts: u32,
    },
}

/// A communicator of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiComm {
    /// The same on all members; 0 is `MPI_COMM_WORLD`.
    pub id: u64,
    pub parent: u64,
    pub created_by: String,
    /// The number of the collective on the parent that created it.
    pub created_number: u64,
    /// The rank in `MPI_COMM_WORLD` of its first member.
    pub first: u32,
    pub size: u32,
    /// The rank of this process in it.
    pub rank: u32,
    pub is_self: bool,
    pub is_found: bool,
    /// The number of the last collective, 0 if there was none, and its function.
    pub last_number: u64,
    pub last_function: String,
}

impl MpiStateReader {
    pub(crate) fn new(fd: Arc<OwnedFd>, offset: u64) -> MpiStateReader {
        MpiStateReader { fd, offset }
    }

    /// Reads the state; `None` if the process has none, or one of another version. Words that
    /// changed between two copies are those of calls that just began or ended.
    pub fn read(&self) -> Result<Option<MpiState>, LaneError> {
        let mut copies = [[0; AREA_BYTES]; 2];
        for copy in &mut copies {
            read_exactly(&self.fd, copy, self.offset)?;
        }
        let [before, after] = &copies;
        Ok(MpiState::parse_copies(before, after))
    }
}

impl MpiState {
    /// Parses one copy of an area.
    pub fn parse(bytes: &[u8]) -> Option<MpiState> {
        MpiState::parse_copies(bytes, bytes)
    }

    /// Parses the later of two copies. A thread whose words differ in them is not inside.
    pub fn parse_copies(before: &[u8], bytes: &[u8]) -> Option<MpiState> {
        let area = Area(bytes.get(..AREA_BYTES)?);
        let magic = area.word(0, head::MAGIC).to_le_bytes();
        let is_known = magic[..4] == MAGIC && magic[4..] == VERSION.to_le_bytes();
        if !is_known {
            return None;
        }
        let phase = area.word(0, head::PHASE);
        let (rank, size) = halves(area.word(0, head::RANK));
        let comms: Vec<(u64, usize, MpiComm)> = (0..COMMS_MAX)
            .filter_map(|index| area.comm(index).map(|(handle, comm)| (handle, index, comm)))
            .collect();
        let threads = (0..THREADS_MAX).filter_map(|index| {
            let at = THREADS_AT + index * LINE_BYTES;
            let range = at..at + LINE_BYTES;
            let is_changed = before.get(range.clone()) != bytes.get(range);
            let mut thread = area.thread(at, &comms)?;
            thread.is_inside &= !is_changed;
            Some(thread)
        });
        Some(MpiState {
            phase: match phase >> 32 {
                0 => MpiPhase::Starting,
                1 => MpiPhase::Running,
                _ => MpiPhase::Finalized,
            },
            library: phase as u32,
            world: (rank < size).then_some((rank, size)),
            clock: MpiClock {
                ticks: area.word(0, head::CLOCK_TICKS),
                nanos: area.word(0, head::CLOCK_NANOS),
                rate: area.word(0, head::CLOCK_RATE),
            },
            launch: area.word(0, head::LAUNCH),
            parent_pid: area.word(0, head::PARENT) as u32,
            untracked_comms: area.word(0, head::UNTRACKED),
            threads: threads.collect(),
            comms: comms.into_iter().map(|(_, _, comm)| comm).collect(),
        })
    }
}

impl MpiClock {
    /// Converts a number of ticks; 0 if the rate is unknown.
    pub fn nanos(&self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * u128::from(self.rate)) >> 32).unwrap_or(u64::MAX)
    }

    /// Returns how long before `now`, in monotonic nanoseconds, a time in ticks was; `None` if the
    /// rate is unknown or the time is in the future.
    pub fn nanos_since(&self, ticks: u64, now: u64) -> Option<u64> {
        let rate = (self.rate > 0).then_some(self.rate)?;
        let from_reference = i128::from(ticks) - i128::from(self.ticks);
        let elapsed = from_reference.checked_mul(i128::from(rate))? >> 32;
        let nanos = i128::from(self.nanos) + elapsed;
        u64::try_from(i128::from(now) - nanos).ok()
    }
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// One copy of an area.
struct Area<'a>(&'a [u8]);

impl Area<'_> {
    fn word(&self, at: usize, index: usize) -> u64 {
        u64_at(self.0, at + 8 * index).unwrap_or(0)
    }

    /// Returns the name of a function; empty if the index or the name is invalid.
    fn function(&self, index: u64) -> String {
        let index = (index & state::FUNCTION_MASK) as usize;
        if index >= FUNCTIONS_MAX {
            return String::new();
        }
        let at = FUNCTIONS_AT + index * NAME_BYTES_MAX;
        let name = self.0.get(at..at + NAME_BYTES_MAX).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0);
        let name = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        match std::str::from_utf8(name) {
            Ok(text) if name.iter().all(is_name) => text.to_owned(),
            _ => String::new(),
        }
    }

    fn thread(&self, at: usize, comms: &[(u64, usize, MpiComm)]) -> Option<MpiThread> {
        let (id, state) = (self.word(at, thread::ID), self.word(at, thread::STATE));
        if id == 0 || state == 0 {
            return None;
        }
        let (operand, number) = (
            self.word(at, thread::OPERAND),
            self.word(at, thread::NUMBER),
        );
        let by_index = |index: u64| {
            let found = comms.iter().find(|(_, at, _)| *at as u64 == index);
            found.map(|(_, _, comm)| comm.id)
        };
        let kind = state >> state::KIND_SHIFT & state::KIND_MASK;
        let operation = match (kind << state::KIND_SHIFT, by_index(operand & 0xffff)) {
            (state::POINT_TO_POINT, _) => {
                let comm = comms.iter().find(|(handle, _, _)| *handle == operand);
                let (peer, tag) = halves(number);
                MpiOperation::PointToPoint {
                    comm: comm.map(|(_, _, comm)| comm.id),
                    peer: peer.cast_signed(),
                    tag: tag.cast_signed(),
                }
            }
            (state::COLLECTIVE, Some(comm)) => MpiOperation::Collective { comm, number },
            (state::WAITS, Some(comm)) => MpiOperation::Waits {
                comm,
                number,
                function: self.function(operand >> 16),
                starts: (operand >> 32) as u32,
            },
            _ => MpiOperation::Other,
        };
        Some(MpiThread {
            id: id as u32,
            function: self.function(state),
            is_inside: state & state::INSIDE != 0,
            ticks: self.word(at, thread::TICKS),
            collective_ticks: self.word(at, thread::COLLECTIVE_TICKS),
            operation,
        })
    }

    /// Returns a communicator and its handle; `None` if the entry is unused.
    fn comm(&self, index: usize) -> Option<(u64, MpiComm)> {
        let at = COMMS_AT + index * LINE_BYTES;
        let (rank, flags) = halves(self.word(at, comm::FLAGS));
        if flags & comm::FLAG_USED == 0 {
            return None;
        }
        let (first, size) = halves(self.word(at, comm::MEMBERS));
        let (last, created) = (self.word(at, comm::LAST), self.word(at, comm::CREATED));
        let found = MpiComm {
            id: self.word(at, comm::ID),
            parent: self.word(at, comm::PARENT),
            created_by: self.function(created),
            created_number: created >> 16,
            first,
            size,
            rank,
            is_self: flags & comm::FLAG_SELF != 0,
            is_found: flags & comm::FLAG_FOUND != 0,
            last_number: last >> 16,
            last_function: self.function(last),
        };
        Some((self.word(at, comm::HANDLE), found))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::mpi_state::MpiStateArea;

    fn copy(area: MpiStateArea) -> Vec<u8> {
        area.bytes()
    }

    fn example() -> MpiStateArea {
        let area = MpiStateArea::private();
        area.begin(2, 7, 11);
        area.set_world(3, 8);
        area.set_phase(MpiPhase::Running);
        area.set_clock(1000, 5_000, 2 << 32);
        area.set_function(1, "MPI_Allreduce");
        area.set_function(2, "MPI_Wait");
        let comm = &area.comms()[5];
        comm[comm::LAST].store(42 << 16 | 1, Relaxed);
        comm[comm::MEMBERS].store(8 << 32, Relaxed);
        comm[comm::FLAGS].store(u64::from(comm::FLAG_USED) << 32 | 3, Relaxed);
        let entry = area.claim_thread(99);
        entry[thread::STATE].store(1 | state::INSIDE | state::COLLECTIVE, Relaxed);
        entry[thread::TICKS].store(1500, Relaxed);
        entry[thread::OPERAND].store(5, Relaxed);
        entry[thread::NUMBER].store(42, Relaxed);
        area
    }

    #[test]
    fn what_was_written_is_read() {
        let area = example();
        let state = MpiState::parse(&copy(area)).expect("valid");
        assert_eq!((state.world, state.launch), (Some((3, 8)), 7));
        let thread = &state.threads[0];
        assert_eq!((thread.id, &*thread.function), (99, "MPI_Allreduce"));
        let (comm, number) = (0, 42);
        assert_eq!(thread.operation, MpiOperation::Collective { comm, number });
        assert_eq!(state.clock.nanos_since(thread.ticks, 7_000), Some(1_000));
        assert_eq!(state.comms[0].last_number, 42);
        let entry = &area.threads()[0];
        entry[thread::STATE].store(2 | state::INSIDE | state::WAITS, Relaxed);
        entry[thread::OPERAND].store(5 | 1 << 16 | 6 << 32, Relaxed);
        let state = MpiState::parse(&copy(area)).expect("valid");
        let waits = MpiOperation::Waits {
            comm: 0,
            number: 42,
            function: "MPI_Allreduce".to_owned(),
            starts: 6,
        };
        assert_eq!(state.threads[0].operation, waits);
    }

    #[test]
    fn a_thread_that_changes_meanwhile_is_not_in_a_call() {
        let area = example();
        let before = copy(area);
        area.threads()[0][thread::TICKS].store(1600, Relaxed);
        let state = MpiState::parse_copies(&before, &copy(area)).expect("valid");
        assert!(!state.threads[0].is_inside);
    }

    #[test]
    fn indices_beyond_their_tables_name_nothing() {
        let area = example();
        let entry = &area.threads()[0];
        entry[thread::OPERAND].store(6, Relaxed);
        entry[thread::STATE].store(0xffff | state::INSIDE | state::COLLECTIVE, Relaxed);
        area.set_function(1, "not a name");
        let state = MpiState::parse(&copy(area)).expect("valid");
        assert_eq!(state.threads[0].operation, MpiOperation::Other);
        assert_eq!(state.threads[0].function, "");
        assert_eq!(state.comms[0].last_function, "");
        assert_eq!(MpiState::parse(&copy(area)[..100]), None);
        assert_eq!(MpiState::parse(&[0; AREA_BYTES]), None);
    }

    #[test]
    fn times_are_unknown_without_a_rate_and_in_the_future() {
        let clock = MpiClock {
            ticks: u64::MAX,
            nanos: 0,
            rate: u64::MAX,
        };
        assert_eq!(clock.nanos_since(u64::MAX, 5), Some(5));
        assert_eq!(clock.nanos_since(0, 5), None);
        assert_eq!(MpiClock { rate: 0, ..clock }.nanos_since(1, 5), None);
        let clock = MpiClock {
            ticks: 0,
            nanos: 10,
            rate: 1 << 32,
        };
        assert_eq!(clock.nanos_since(5, 12), None);
    }

    #[test]
    fn threads_that_ended_give_their_entries_to_others() {
        let area = MpiStateArea::private();
        let own = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        area.claim_thread(own);
        for gone in 1..THREADS_MAX as u32 {
            area.claim_thread(0x7fff_0000 + gone);
        }
        area.claim_thread(0x7fff_1000);
        let ids: Vec<u64> = area
            .threads()
            .iter()
            .map(|t| t[thread::ID].load(Relaxed))
            .collect();
        assert_eq!((ids[0], ids[1]), (u64::from(own), 0x7fff_1000));
    }
}
