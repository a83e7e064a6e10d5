//! The MPI processes of this node: what they are in, read from their lanes when a client asks.
//!
//! [`Lanes`](super::Lanes) adds and removes lanes; requests read the files on their own threads, so
//! that nothing here delays a sample. A process that ended without `MPI_Finalize` stays for an hour
//! after its lane was removed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pegel_config::UserInfo;
use pegel_lane::monotonic_ns;
use pegel_lane::mpi_state::MpiPhase;
use pegel_lane::reader::{
    LaneFile, LaneHeader, MpiOperation, MpiState, MpiStateReader, MpiThread, ProcessState,
};
use pegel_metric::Millis;
use pegel_mpi_state::{CommId, MpiRank, RankComm, RankOperation, RankPhase, RankThread};

use super::journal::LaneId;
use super::process_files::ProcessFiles;

/// How long processes that ended without `MPI_Finalize` are shown.
const ENDED_SHOWN_MS: Millis = 3_600_000;
/// The most of them.
const ENDED_MAX: usize = 1024;
/// The most processes in one answer.
const SHOWN_MAX: usize = 16_384;

/// The MPI processes of this node.
#[derive(Debug, Default)]
pub struct MpiProcesses {
    /// Locked only to copy or to change pointers: the program sampler locks it.
    lanes: Mutex<HashMap<LaneId, Arc<MpiLane>>>,
    /// With the time when their lanes were removed. Locked as `lanes` is.
    ended: Mutex<VecDeque<(Millis, Arc<MpiRank>)>>,
}

/// A lane with MPI state.
#[derive(Debug)]
struct MpiLane {
    reader: MpiStateReader,
    header: LaneHeader,
    owner: u32,
    has_ended: AtomicBool,
}

impl MpiProcesses {
    /// Adds a lane, if it has MPI state.
    pub(super) fn add(&self, file: &LaneFile) {
        if let Some(reader) = file.mpi_state() {
            let lane = MpiLane {
                reader,
                header: file.header().clone(),
                owner: file.owner(),
                has_ended: AtomicBool::new(false),
            };
            self.lanes.lock().insert(file.header().id, Arc::new(lane));
        }
    }

    pub(super) fn set_ended(&self, id: &LaneId) {
        if let Some(lane) = self.lanes.lock().get(id) {
            lane.has_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a lane; keeps what is known if its process ended without `MPI_Finalize`.
    pub(super) fn remove(&self, id: &LaneId, now: Millis) {
        let removed = self.lanes.lock().remove(id);
        let Some(lane) = removed else {
            return;
        };
        let rank = lane.rank(now, &ProcessFiles::open());
        let is_kept = |rank: &MpiRank| rank.has_ended && rank.phase != RankPhase::Finalized;
        if let Some(rank) = rank.filter(is_kept) {
            let mut ended = self.ended.lock();
            ended.push_back((now, Arc::new(rank)));
            while ended.len() > ENDED_MAX {
                ended.pop_front();
            }
        }
    }

    /// Returns the processes, or those of one user, as they are now. Reads files, without a lock.
    pub fn ranks(&self, uid: Option<u32>, now: Millis) -> Vec<MpiRank> {
        let files = ProcessFiles::open();
        self.ranks_read_by(uid, now, |lane| lane.rank(now, &files))
    }

    /// Like [`ranks`](MpiProcesses::ranks), with the function that reads a lane.
    fn ranks_read_by(
        &self,
        uid: Option<u32>,
        now: Millis,
        read: impl FnMut(&MpiLane) -> Option<MpiRank>,
    ) -> Vec<MpiRank> {
        let is_shown = |owner: u32| uid.is_none_or(|uid| uid == owner);
        let lanes = self.shown_lanes(is_shown);
        let mut ranks: Vec<MpiRank> = lanes.iter().map(|lane| &**lane).filter_map(read).collect();
        let mut names: HashMap<u32, String> = HashMap::new();
        for rank in &mut ranks {
            rank.user = names
                .entry(rank.uid)
                .or_insert_with_key(|uid| user_name(*uid))
                .clone();
        }
        let ended = self.shown_ended(is_shown, now);
        ranks.extend(ended.iter().map(|rank| (**rank).clone()));
        ranks
    }

    fn shown_lanes(&self, is_shown: impl Fn(u32) -> bool) -> Vec<Arc<MpiLane>> {
        let lanes = self.lanes.lock();
        let shown = lanes.values().filter(|lane| is_shown(lane.owner));
        shown.take(SHOWN_MAX).cloned().collect()
    }

    fn shown_ended(&self, is_shown: impl Fn(u32) -> bool, now: Millis) -> Vec<Arc<MpiRank>> {
        let mut ended = self.ended.lock();
        ended.retain(|(since, _)| (0..ENDED_SHOWN_MS).contains(&(now - since)));
        let ranks = ended.iter().map(|(_, rank)| rank);
        ranks.filter(|rank| is_shown(rank.uid)).cloned().collect()
    }
}

impl MpiLane {
    /// Reads the state of the process; `None` if it has none or the file is truncated.
    fn rank(&self, now: Millis, files: &ProcessFiles) -> Option<MpiRank> {
        let state = self.reader.read().ok()??;
        let process = ProcessState::of(&self.header);
        let main_thread = longest_thread(&state);
        let seen = match process {
            ProcessState::Alive => files.read(self.header.pid, main_thread),
            ProcessState::Gone | ProcessState::NotVisible => Default::default(),
        };
        let is_gone = process == ProcessState::Gone || matches!(seen.state, Some('Z' | 'X'));
        let age = now.saturating_sub(self.header.created_ms).max(0) as f64 / 1e3;
        let clock_now = monotonic_ns();
        // A clock that is not known yet is that of a process in its first call.
        let seconds = |ticks| match state.clock.nanos_since(ticks, clock_now) {
            Some(nanos) => Some((nanos as f64 / 1e9).min(age)),
            None if state.phase == MpiPhase::Starting => Some(age),
            None => None,
        };
        let thread = |thread: &MpiThread| RankThread {
            id: thread.id,
            function: thread.function.clone(),
            is_inside: thread.is_inside,
            seconds: seconds(thread.ticks),
            operation: operation(&thread.operation),
        };
        let threads: Vec<RankThread> = state.threads.iter().map(thread).collect();
        let world = state.world;
        let launcher_rank = self.header.rank.parse().ok();
        Some(MpiRank {
            node: String::new(),
            pid: self.header.pid,
            uid: self.owner,
            user: self.owner.to_string(),
            job: self.header.job.clone(),
            command: self.header.command.clone(),
            rank: world.map(|(rank, _)| rank).or(launcher_rank),
            size: world.map(|(_, size)| size),
            launch: CommId(state.launch),
            parent_pid: state.parent_pid,
            phase: match state.phase {
                MpiPhase::Starting => RankPhase::Starting,
                MpiPhase::Running => RankPhase::Running,
                MpiPhase::Finalized => RankPhase::Finalized,
            },
            has_ended: self.has_ended.load(Ordering::Relaxed) || is_gone,
            age,
            collective_seconds: collective_seconds(&state, &threads),
            state: seen.state,
            wchan: seen.wchan,
            threads,
            comms: comms(&state),
        })
    }
}

fn user_name(uid: u32) -> String {
    let name = UserInfo::lookup(uid).name;
    name.unwrap_or_else(|| uid.to_string())
}

/// Returns the thread that has been in a call for longest: its state is that of the process.
fn longest_thread(state: &MpiState) -> Option<u32> {
    let inside = state.threads.iter().filter(|thread| thread.is_inside);
    inside
        .min_by_key(|thread| thread.ticks)
        .map(|thread| thread.id)
}

fn operation(operation: &MpiOperation) -> RankOperation {
    match operation {
        MpiOperation::Other => RankOperation::Other,
        MpiOperation::PointToPoint { comm, peer, tag } => RankOperation::PointToPoint {
            comm: comm.map(CommId),
            // Negative numbers are constants for any or no process, and for any tag.
            peer: u32::try_from(*peer).ok(),
            tag: u32::try_from(*tag).ok(),
        },
        MpiOperation::Collective { comm, number } => RankOperation::Collective {
            comm: CommId(*comm),
            number: *number,
        },
        MpiOperation::Waits {
            comm,
            number,
            function,
            starts,
        } => RankOperation::Waits {
            comm: CommId(*comm),
            number: *number,
            begun_by: function.clone(),
            starts: *starts,
        },
    }
}

/// Returns the time in collectives, including those in progress.
fn collective_seconds(state: &MpiState, threads: &[RankThread]) -> f64 {
    let past = state
        .threads
        .iter()
        .map(|thread| state.clock.nanos(thread.collective_ticks));
    let past = past.fold(0, u64::saturating_add) as f64 / 1e9;
    let is_collective = |thread: &&RankThread| {
        let operation = &thread.operation;
        let kinds = matches!(
            operation,
            RankOperation::Collective { .. } | RankOperation::Waits { .. }
        );
        kinds && thread.is_inside
    };
    let current = threads.iter().filter(is_collective);
    past + current.filter_map(|thread| thread.seconds).sum::<f64>()
}

fn comms(state: &MpiState) -> Vec<RankComm> {
    let comms = state.comms.iter().map(|comm| RankComm {
        id: CommId(comm.id),
        parent: CommId(comm.parent),
        created_by: comm.created_by.clone(),
        created_number: comm.created_number,
        first: comm.first,
        size: comm.size,
        rank: comm.rank,
        is_self: comm.is_self,
        last_number: comm.last_number,
        last_function: comm.last_function.clone(),
    });
    comms.filter(|comm| !comm.is_self).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use pegel_lane::ProcessLanes;
    use pegel_lane::reader::LaneFile;
    use pegel_testkit::{TempDir, open_lanes};

    use super::*;

    fn lane_in(dir: &TempDir) -> LaneFile {
        let area = ProcessLanes::in_directory(dir.path()).mpi_state();
        area.expect("made").begin(2, 7, 11);
        open_lanes(dir.path()).pop().expect("a lane")
    }

    #[test]
    fn lanes_come_and_go_while_a_reader_hangs() {
        let (dir, other_dir) = (TempDir::new(), TempDir::new());
        let (lane, other) = (lane_in(&dir), lane_in(&other_dir));
        let processes = Arc::new(MpiProcesses::default());
        processes.add(&lane);
        let (begin, begun) = mpsc::channel();
        let (resume, resumed) = mpsc::channel::<()>();
        let reader = {
            let processes = processes.clone();
            std::thread::spawn(move || {
                let read = |lane: &MpiLane| {
                    begin.send(()).expect("the test waits");
                    // Ends with an error if the test ends early.
                    let _ = resumed.recv();
                    lane.rank(0, &ProcessFiles::open())
                };
                processes.ranks_read_by(None, 0, read).len()
            })
        };
        begun.recv().expect("it reads");
        let (change, changed) = mpsc::channel();
        let sampler = {
            let processes = processes.clone();
            std::thread::spawn(move || {
                processes.add(&other);
                processes.set_ended(&other.header().id);
                processes.remove(&lane.header().id, 0);
                let _ = change.send(());
            })
        };
        let sampled = changed.recv_timeout(Duration::from_secs(20));
        drop(resume);
        assert_eq!(reader.join().expect("no panic"), 1);
        sampler.join().expect("no panic");
        assert_eq!(sampled, Ok(()), "the program sampler waited for a reader");
        let left = processes.ranks(None, 0);
        assert_eq!((left.len(), left[0].has_ended), (1, true));
    }
}
