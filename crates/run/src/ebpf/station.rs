//! The agent's side: it counts for wrappers that have no right to do so themselves.
//!
//! A wrapper says which process it means, over the agent's socket, and asks for its counts until the end. The programs are in
//! the kernel only while somebody is watched. Whoever asks gets to see processes of its own user, and nothing but numbers.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pegel_supervisor::Supervisor;

use super::place::{Place, possible_processors};
use super::programs::{ROW_WORDS, ROWS};
use super::reading::{From, Request};
use super::release::Releases;
use super::set::{self, Set};
use super::watched::Watched;
use super::{EbpfError, Time, refused, task};
use crate::rights;

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
pub struct Station {
    obstacle: Option<String>,
    sets: Mutex<[Weak<Set>; 2]>,
    /// One for each program that is watched or about to be let go.
    seats: Arc<()>,
    programs_max: usize,
    releases: Arc<Releases<WatchedProgram>>,
}

/// A watched program and its share of the limit on their number.
#[derive(Debug)]
struct WatchedProgram {
    watched: Watched,
    _seat: Arc<()>,
}

/// A program that is watched for somebody else. Dropped, it is watched no more; that takes time, which another thread spends.
#[derive(Debug)]
pub struct Visitor {
    /// None only while it is dropped.
    program: Option<WatchedProgram>,
    releases: Arc<Releases<WatchedProgram>>,
}

impl Visitor {
    fn watched(&mut self) -> Option<&mut Watched> {
        self.program.as_mut().map(|program| &mut program.watched)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            self.releases.push(program);
        }
    }
}

/// Why a program is not watched.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Form(#[from] super::reading::NoRequest),
    #[error("process {0} is not here, or not the one that is meant; is it in a container?")]
    Unknown(i32),
    #[error("process {0} is not yours")]
    Foreign(i32),
    #[error("a program is watched on this connection already")]
    Again,
    #[error("{0} programs are watched already")]
    Full(usize),
    #[error("no eBPF: {0}")]
    Ebpf(#[from] EbpfError),
}

impl Station {
    /// `supervisor` watches the thread that lets programs go.
    pub fn new(supervisor: &Supervisor) -> Station {
        let is_allowed = rights::has(rights::SYS_ADMIN)
            || rights::has(rights::BPF) && rights::has(rights::PERFMON);
        Station {
            obstacle: (!is_allowed).then(|| EbpfError::Permission.to_string()),
            sets: Mutex::default(),
            seats: Arc::default(),
            programs_max: programs_max(),
            releases: Arc::new(Releases::new(supervisor)),
        }
    }

    /// The same for at most this many programs at a time.
    pub fn limited_to(mut self, programs: usize) -> Station {
        self.programs_max = self.programs_max.min(programs);
        self
    }

    /// Why this agent cannot count for others; None if it can, as far as one can say without trying.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref()
    }

    /// How many programs are watched.
    pub fn programs(&self) -> usize {
        Arc::strong_count(&self.seats) - 1
    }

    /// Answers a line of a wrapper of this user; None for a line that is not meant for this.
    pub fn answer(&self, line: &str, uid: u32, visitor: &mut Option<Visitor>) -> Option<String> {
        let is_request = line.starts_with("watch ") && !line.contains([':', '|']);
        let answer = match (line, visitor.as_mut().and_then(Visitor::watched)) {
            ("counts", Some(watched)) => watched.read().to_string(),
            ("release", Some(watched)) => {
                watched.release();
                "ok".to_owned()
            }
            (_, now) if is_request => match now {
                Some(_) => format!("error {}", Refusal::Again),
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

    fn watch(&self, line: &str, uid: u32) -> Result<Visitor, Refusal> {
        // A service that may not is not even to try: its filter would take note.
        if self.obstacle.is_some() {
            return Err(EbpfError::Permission.into());
        }
        let request: Request = line.parse()?;
        let pid = request.pid;
        let process = task::open(pid).map_err(|_| Refusal::Unknown(pid))?;
        let check = |watched: Option<&Watched>| {
            if task::start_of(pid) != Some(request.start) {
                return Err(Refusal::Unknown(pid));
            }
            if uid != 0 && !task::is_of(pid, uid) {
                return Err(Refusal::Foreign(pid));
            }
            match watched.is_some_and(Watched::is_gone) {
                true => Err(Refusal::Unknown(pid)),
                false => Ok(()),
            }
        };
        check(None)?;
        let seat = self.seats.clone();
        if self.programs() > self.programs_max {
            return Err(Refusal::Full(self.programs_max));
        }
        let place = self.place(request.time)?;
        let watched = match request.from {
            From::Exec => Watched::from_exec(place, pid, process),
            From::Now => Watched::from_now(place, pid, process).map(|(watched, _)| watched),
        };
        let watched = watched.map_err(refused("the process"))?;
        // Once more: until here it could have become another program with other rights, or its number that of another
        // process. From here on the kernel lets it go if it gets rights; and while it lives its number is its own.
        check(Some(&watched))?;
        let program = WatchedProgram {
            watched,
            _seat: seat,
        };
        Ok(Visitor {
            program: Some(program),
            releases: self.releases.clone(),
        })
    }

    /// A place in the set that is there, or in a new one.
    fn place(&self, time: Time) -> Result<Place, EbpfError> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut sets[usize::from(time == Time::Ignored)];
        if let Some(set) = kept.upgrade() {
            let slot = set.take_slot();
            return Place::another(set, slot);
        }
        let table = set::create_table().map_err(refused("maps"))?;
        let set = Arc::new(Set::load(&table, time)?);
        *kept = Arc::downgrade(&set);
        Place::first(set, table)
    }
}
