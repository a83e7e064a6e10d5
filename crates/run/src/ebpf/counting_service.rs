//! The agent's side of remote counting: counts for wrappers that lack the permission.
//!
//! A wrapper names a process over the agent's socket and polls its counts until the process ends.
//! The programs are loaded only while a process is watched. A client can watch only processes of
//! its own user, and receives only numbers. A user other than root and the agent's can have half of
//! all watched programs.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pegel_supervisor::Supervisor;

use super::drop_queue::DropQueue;
use super::program_set::{self, ProgramSet};
use super::programs::TABLE_WORDS;
use super::watch_protocol::{CountFrom, WatchRequest};
use super::watch_slot::{WatchSlot, possible_processors};
use super::watched_process::WatchedProcess;
use super::{CallTiming, EbpfError, kernel_refused, task};
use crate::capabilities;

/// The maximum number of watched programs; less on machines with many processors.
pub const PROGRAMS_MAX: usize = 512;
/// Descriptors per watched program: the process, its table, and two for the exit hold.
pub const DESCRIPTORS_PER_PROGRAM: usize = 4;
/// The maximum kernel memory for tables, of which each program has one per processor.
const TABLE_BYTES_MAX: usize = 640 << 20;

fn programs_max() -> usize {
    let table_bytes = TABLE_WORDS * 8 * possible_processors();
    (TABLE_BYTES_MAX / table_bytes).clamp(16, PROGRAMS_MAX)
}

/// Counts for wrappers without permission. An agent has one.
#[derive(Debug)]
pub struct CountingService {
    unavailable_reason: Option<String>,
    sets: Mutex<[Weak<ProgramSet>; 2]>,
    /// One reference for each program that is watched or being released.
    permits: Arc<()>,
    /// The same for each user.
    user_permits: Mutex<HashMap<u32, Weak<()>>>,
    programs_max: usize,
    drop_queue: Arc<DropQueue<WatchedProgram>>,
}

/// A watched program and its permit.
#[derive(Debug)]
struct WatchedProgram {
    watched: WatchedProcess,
    _permit: WatchPermit,
}

/// The permit for one watched program, from all of them and from the share of its user.
#[derive(Debug)]
struct WatchPermit {
    _all: Arc<()>,
    of_user: Arc<()>,
}

/// A program watched for one connection. Dropping it ends the watch on another thread, because that
/// takes milliseconds.
#[derive(Debug)]
pub struct WatchSession {
    /// None only during drop.
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

/// The reason why a request is refused.
#[derive(Debug, thiserror::Error)]
enum WatchRefusal {
    #[error(transparent)]
    Malformed(#[from] super::watch_protocol::InvalidWatchRequest),
    #[error(
        "process {0} is not visible to the agent, or its start time differs; is it in a container?"
    )]
    Unknown(i32),
    #[error("process {0} is not owned by this user, or has gained privileges")]
    Foreign(i32),
    #[error("this connection already watches a program")]
    AlreadyWatching,
    #[error("the limit of {0} watched programs is reached")]
    Full(usize),
    #[error("the limit of {0} watched programs of one user is reached")]
    UserFull(usize),
    #[error("eBPF is not available: {0}")]
    Ebpf(#[from] EbpfError),
}

impl CountingService {
    /// Creates the service; `supervisor` runs the thread that releases programs.
    pub fn new(supervisor: &Supervisor) -> CountingService {
        let is_allowed = capabilities::has_capability(capabilities::SYS_ADMIN)
            || capabilities::has_capability(capabilities::BPF)
                && capabilities::has_capability(capabilities::PERFMON);
        CountingService {
            unavailable_reason: (!is_allowed).then(|| EbpfError::Permission.to_string()),
            sets: Mutex::default(),
            permits: Arc::default(),
            user_permits: Mutex::default(),
            programs_max: programs_max(),
            drop_queue: Arc::new(DropQueue::new(supervisor)),
        }
    }

    /// Limits the number of watched programs.
    pub fn with_programs_max(mut self, programs: usize) -> CountingService {
        self.programs_max = self.programs_max.min(programs);
        self
    }

    /// Returns the reason why this agent cannot count for others; None if it has the capabilities.
    pub fn unavailable_reason(&self) -> Option<&str> {
        self.unavailable_reason.as_deref()
    }

    /// Returns the number of watched programs.
    pub fn programs(&self) -> usize {
        Arc::strong_count(&self.permits) - 1
    }

    /// Answers a line from a wrapper of user `uid`; None if the line is not part of this protocol.
    pub fn answer(
        &self,
        line: &str,
        uid: u32,
        session: &mut Option<WatchSession>,
    ) -> Option<String> {
        let is_request = line.starts_with("watch ") && !line.contains([':', '|']);
        let answer = match (line, session.as_mut().and_then(WatchSession::watched)) {
            ("counts", Some(watched)) => watched.read().to_string(),
            ("release", Some(watched)) => {
                watched.release();
                "ok".to_owned()
            }
            (_, now) if is_request => match now {
                Some(_) => format!("error {}", WatchRefusal::AlreadyWatching),
                None => match self.watch(line, uid) {
                    Ok(started) => {
                        *session = Some(started);
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
        // Without the capabilities do not even try: the service's seccomp filter would log it.
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
            if watched.is_some_and(WatchedProcess::has_exited) {
                return Err(WatchRefusal::Unknown(pid));
            }
            Ok(())
        };
        check(None)?;
        let permit = self.take_permit(uid)?;
        let slot = self.allocate_slot(request.time)?;
        let watched = match request.from {
            CountFrom::Exec => WatchedProcess::from_exec(slot, pid, process),
            CountFrom::Now => {
                WatchedProcess::from_now(slot, pid, process).map(|(watched, _)| watched)
            }
        };
        let watched = watched.map_err(kernel_refused("the process"))?;
        // Check again: meanwhile the process could have executed a privileged program, or its ID
        // could have been reused. From here on the BPF programs exclude it if it gains privileges,
        // and its ID is its own while it lives.
        check(Some(&watched))?;
        let program = WatchedProgram {
            watched,
            _permit: permit,
        };
        Ok(WatchSession {
            program: Some(program),
            drop_queue: self.drop_queue.clone(),
        })
    }

    fn take_permit(&self, uid: u32) -> Result<WatchPermit, WatchRefusal> {
        let mut users = self.user_permits.lock();
        users.retain(|_, permit| permit.strong_count() > 0);
        let of_user = users.get(&uid).and_then(Weak::upgrade).unwrap_or_default();
        users.insert(uid, Arc::downgrade(&of_user));
        let permit = WatchPermit {
            _all: self.permits.clone(),
            of_user,
        };
        if self.programs() > self.programs_max {
            return Err(WatchRefusal::Full(self.programs_max));
        }
        let is_owner = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let share = (self.programs_max / 2).max(1);
        if !is_owner && Arc::strong_count(&permit.of_user) > share {
            return Err(WatchRefusal::UserFull(share));
        }
        Ok(permit)
    }

    /// Allocates a slot in the loaded set, or loads a new one.
    fn allocate_slot(&self, time: CallTiming) -> Result<WatchSlot, EbpfError> {
        let mut sets = self.sets.lock();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_half_of_the_watched_programs_to_others() {
        let service = CountingService::new(&Supervisor::default()).with_programs_max(8);
        let own = rustix::process::geteuid().as_raw();
        let (eve, ann) = (own ^ 4711, own ^ 4712);
        let mut held: Vec<WatchPermit> = (0..8)
            .map_while(|_| service.take_permit(eve).ok())
            .collect();
        assert_eq!(held.len(), 4);
        assert!(matches!(
            service.take_permit(eve),
            Err(WatchRefusal::UserFull(4))
        ));
        held.extend([ann, own, 0, ann].map(|uid| service.take_permit(uid).expect("free")));
        assert!(matches!(
            service.take_permit(own),
            Err(WatchRefusal::Full(8))
        ));
        held.clear();
        assert!(service.take_permit(eve).is_ok() && service.programs() == 0);
    }
}
