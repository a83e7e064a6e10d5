//! The processes that take part in a job: those with a `Telemetry` object of the Python package.
//!
//! When one of them is done and no other is active, an agent that a job started stops. A process
//! that ended without being done is not active any more.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pegel_lane::reader::ProcessState;

/// The largest number of active participants; those of ended processes are removed first.
const PARTICIPANTS_MAX: usize = 16_384;

/// A process, as it describes itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParticipantProcess {
    pub pid: u32,
    /// 0 if unknown.
    pub start_ticks: u64,
    pub pid_namespace: u64,
}

impl ParticipantProcess {
    fn has_ended(&self) -> bool {
        let state = ProcessState::of_process(self.pid, self.start_ticks, self.pid_namespace);
        state == ProcessState::Gone
    }
}

#[derive(Debug, Default)]
pub(crate) struct Participants {
    state: Mutex<ParticipantTable>,
}

#[derive(Debug, Default)]
struct ParticipantTable {
    active: BTreeMap<String, ParticipantProcess>,
    done: u64,
}

/// The numbers of active participants and of those that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParticipantCounts {
    pub active: usize,
    pub done: u64,
}

impl Participants {
    /// Adds a participant. Returns false if there are too many.
    pub(crate) fn add(&self, id: &str, process: ParticipantProcess) -> bool {
        let mut table = self.state.lock();
        if table.active.len() >= PARTICIPANTS_MAX {
            table.active.retain(|_, process| !process.has_ended());
        }
        let has_room = table.active.len() < PARTICIPANTS_MAX || table.active.contains_key(id);
        if has_room {
            table.active.insert(id.to_owned(), process);
        }
        has_room
    }

    /// Removes a participant that is done, and those whose processes have ended.
    pub(crate) fn finish(&self, id: &str) -> ParticipantCounts {
        let mut table = self.state.lock();
        table.active.remove(id);
        table.active.retain(|_, process| !process.has_ended());
        table.done += 1;
        table.counts()
    }

    pub(crate) fn counts(&self) -> ParticipantCounts {
        self.state.lock().counts()
    }

    /// Like [`Participants::counts`], without those whose processes have ended.
    pub(crate) fn live_counts(&self) -> ParticipantCounts {
        let mut table = self.state.lock();
        table.active.retain(|_, process| !process.has_ended());
        table.counts()
    }
}

impl ParticipantTable {
    fn counts(&self) -> ParticipantCounts {
        ParticipantCounts {
            active: self.active.len(),
            done: self.done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_active() {
        // A process whose start time is unknown may be in another namespace: it stays.
        let unknown = ParticipantProcess {
            pid: u32::MAX,
            start_ticks: 0,
            pid_namespace: 0,
        };
        let namespace = rustix::fs::stat("/proc/self/ns/pid").expect("a namespace");
        let gone = ParticipantProcess {
            start_ticks: 1,
            pid_namespace: namespace.st_ino,
            ..unknown
        };
        let participants = Participants::default();
        assert!(participants.add("a", unknown) && participants.add("b", gone));
        assert!(participants.add("c", unknown));
        let counts = |active, done| ParticipantCounts { active, done };
        assert_eq!(participants.counts(), counts(3, 0));
        assert_eq!(participants.finish("c"), counts(1, 1));
        assert_eq!(participants.finish("a"), counts(0, 2));
    }
}
