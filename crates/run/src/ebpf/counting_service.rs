//! The agent's side: it counts for wrappers that have no right to do so themselves.
//!
//! A wrapper says which process it means, over the agent's socket, and asks for its counts until the end. The programs are in
//! the kernel only while somebody is watched. Whoever asks gets to see processes of its own user, and nothing but numbers.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pegel_supervisor::Supervisor;

use super::drop_queue::DropQueue;
use super::program_set::{self, ProgramSet};
use super::programs::{ROW_WORDS, ROWS};
use super::watch_protocol::{CountFrom, WatchRequest};
use super::watch_slot::{WatchSlot, possible_processors};
use super::watched_process::WatchedProcess;
use super::{CallTiming, EbpfError, kernel_refused, task};
use crate::capabilities;

/// Programs that are watched at a time, on a machine with few processors.
pub const PROGRAMS_MAX: usize = 512;
/// Descriptors for each of them: a process, its table, and two for the hold on it.
pub const DESCRIPTORS_PER_PROGRAM: usize = 4;
/// What their tables may take: each has one for every processor, in the kernel's memory.
const TABLE_BYTES_MAX: usize = 512 << 20;

fn programs_max() -> usize {
    let table_bytes = ROWS * ROW_WORDS * 8 * possible_processors();
    (TABLE_BYTES_MAX / table_bytes).clamp(16, PROGRAMS_MAX)
}

/// Counts for others. Made once by an agent.
#[derive(Debug)]
pub struct CountingService {
    unavailable_reason: Option<String>,
    sets: Mutex<[Weak<ProgramSet>; 2]>,
    /// One for each program that is watched or about to be let go.
    permits: Arc<()>,
    programs_max: usize,
    drop_queue: Arc<DropQueue<WatchedProgram>>,
}

/// A watched program and its share of the limit on their number.
#[derive(Debug)]
struct WatchedProgram {
    watched: WatchedProcess,
    _permit: Arc<()>,
}

/// A program that is watched for somebody else. Dropped, it is watched no more; that takes time, which another thread spends.
#[derive(Debug)]
pub struct WatchSession {
    /// None only while it is dropped.
    program: Option<WatchedProgram>,
    drop_queue: Arc<DropQueue<WatchedProgram>>,
}

impl WatchSession {
    fn watched(&mut self) -> Option<&mut WatchedProcess> {
        self.program.as_mut().map(|program| &mut program.watched)
    }
}

impl Drop for WatchSession {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            self.drop_queue.push(program);
        }
    }
}

/// Why a program is not watched.
#[derive(Debug, thiserror::Error)]
enum WatchRefusal {
    #[error(transparent)]
    Malformed(#[from] super::watch_protocol::InvalidWatchRequest),
    #[error("process {0} is not here, or not the one that is meant; is it in a container?")]
    Unknown(i32),
    #[error("process {0} is not yours")]
    Foreign(i32),
    #[error("a program is watched on this connection already")]
    AlreadyWatching,
    #[error("{0} programs are watched already")]
    Full(usize),
    #[error("no eBPF: {0}")]
    Ebpf(#[from] EbpfError),
}

impl CountingService {
    /// `supervisor` watches the thread that lets programs go.
    pub fn new(supervisor: &Supervisor) -> CountingService {
        let is_allowed = capabilities::has_capability(capabilities::SYS_ADMIN)
            || capabilities::has_capability(capabilities::BPF)
                && capabilities::has_capability(capabilities::PERFMON);
        CountingService {
            unavailable_reason: (!is_allowed).then(|| EbpfError::Permission.to_string()),
            sets: Mutex::default(),
            permits: Arc::default(),
            programs_max: programs_max(),
            drop_queue: Arc::new(DropQueue::new(supervisor)),
        }
    }

    /// The same for at most this many programs at a time.
    pub fn with_programs_max(mut self, programs: usize) -> CountingService {
        self.programs_max = self.programs_max.min(programs);
        self
    }

    /// Why this agent cannot count for others; None if it can, as far as one can say without trying.
    pub fn unavailable_reason(&self) -> Option<&str> {
        self.unavailable_reason.as_deref()
    }

    /// How many programs are watched.
    pub fn programs(&self) -> usize {
        Arc::strong_count(&self.permits) - 1
    }

    /// Answers a line of a wrapper of this user; None for a line that is not meant for this.
    pub fn answer(
        &self,
        line: &str,
        uid: u32,
        visitor: &mut Option<WatchSession>,
    ) -> Option<String> {
        let is_request = line.starts_with("watch ") && !line.contains([':', '|']);
        let answer = match (line, visitor.as_mut().and_then(WatchSession::watched)) {
            ("counts", Some(watched)) => watched.read().to_string(),
            ("release", Some(watched)) => {
                watched.release();
                "ok".to_owned()
            }
            (_, now) if is_request => match now {
                Some(_) => format!("error {}", WatchRefusal::AlreadyWatching),
                None => match self.watch(line, uid) {
                    Ok(begun) => {
                        *visitor = Some(begun);
                        "ok".to_owned()
                    }
                    Err(refusal) => format!("error {refusal}"),
                },
            },
            _ => return None,
        };
        Some(answer + "\n")
    }

    fn watch(&self, line: &str, uid: u32) -> Result<WatchSession, WatchRefusal> {
        // A service that may not is not even to try: its filter would take note.
        if self.unavailable_reason.is_some() {
            return Err(EbpfError::Permission.into());
        }
        let request: WatchRequest = line.parse()?;
        let pid = request.pid;
        let process = task::open_process(pid).map_err(|_| WatchRefusal::Unknown(pid))?;
        let check = |watched: Option<&WatchedProcess>| {
            if task::start_time(pid) != Some(request.start) {
                return Err(WatchRefusal::Unknown(pid));
            }
            if uid != 0 && !task::is_owned_by(pid, uid) {
                return Err(WatchRefusal::Foreign(pid));
            }
            match watched.is_some_and(WatchedProcess::has_exited) {
                true => Err(WatchRefusal::Unknown(pid)),
                false => Ok(()),
            }
        };
        check(None)?;
        let seat = self.permits.clone();
        if self.programs() > self.programs_max {
            return Err(WatchRefusal::Full(self.programs_max));
        }
        let place = self.allocate_slot(request.time)?;
        let watched = match request.from {
            CountFrom::Exec => WatchedProcess::from_exec(place, pid, process),
            CountFrom::Now => {
                WatchedProcess::from_now(place, pid, process).map(|(watched, _)| watched)
            }
        };
        let watched = watched.map_err(kernel_refused("the process"))?;
        // Once more: until here it could have become another program with other rights, or its number that of another
        // process. From here on the kernel lets it go if it gets rights; and while it lives its number is its own.
        check(Some(&watched))?;
        let program = WatchedProgram {
            watched,
            _permit: seat,
        };
        Ok(WatchSession {
            program: Some(program),
            drop_queue: self.drop_queue.clone(),
        })
    }

    /// A place in the set that is there, or in a new one.
    fn allocate_slot(&self, time: CallTiming) -> Result<WatchSlot, EbpfError> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut sets[usize::from(time == CallTiming::Ignored)];
        if let Some(set) = kept.upgrade() {
            let slot = set.take_slot();
            return WatchSlot::another(set, slot);
        }
        let table = program_set::create_table().map_err(kernel_refused("maps"))?;
        let set = Arc::new(ProgramSet::load(&table, time)?);
        *kept = Arc::downgrade(&set);
        WatchSlot::first(set, table)
    }
}
