//! The MPI processes of this node: what they are in, read from their lanes when a client asks.
//!
//! [`Lanes`](super::Lanes) adds and removes lanes; requests read the files on their own threads, so
//! that nothing here delays a sample. A process that ended without `MPI_Finalize` stays for an hour
//! after its lane was removed.

use std::collections::{HashMap, VecDeque};

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
    lanes: Mutex<HashMap<LaneId, MpiLane>>,
    /// With the time when their lanes were removed.
    ended: Mutex<VecDeque<(Millis, MpiRank)>>,
}

/// A lane with MPI state.
#[derive(Debug, Clone)]
struct MpiLane {
    reader: MpiStateReader,
    header: LaneHeader,
    owner: u32,
    has_ended: bool,
}

impl MpiProcesses {
    /// Adds a lane, if it has MPI state.
    pub(super) fn add(&self, file: &LaneFile) {
        if let Some(reader) = file.mpi_state() {
            let lane = MpiLane {
                reader,
                header: file.header().clone(),
                owner: file.owner(),
                has_ended: false,
            };
            self.lanes.lock().insert(file.header().id, lane);
        }
    }

    pub(super) fn set_ended(&self, id: &LaneId) {
        if let Some(lane) = self.lanes.lock().get_mut(id) {
            lane.has_ended = true;
        }
    }

    /// Removes a lane; keeps what is known if its process ended without `MPI_Finalize`.
    pub(super) fn remove(&self, id: &LaneId, now: Millis) {
        let Some(lane) = self.lanes.lock().remove(id) else {
            return;
        };
        let rank = lane.rank(now, &ProcessFiles::open());
        let is_kept = |rank: &MpiRank| rank.has_ended && rank.phase != RankPhase::Finalized;
        if let Some(rank) = rank.filter(is_kept) {
            let mut ended = self.ended.lock();
            ended.push_back((now, rank));
            while ended.len() > ENDED_MAX {
                ended.pop_front();
            }
        }
    }

    /// Returns the processes, or those of one user, as they are now. Reads files.
    pub fn ranks(&self, uid: Option<u32>, now: Millis) -> Vec<MpiRank> {
        let is_shown = |owner: u32| uid.is_none_or(|uid| uid == owner);
        // The files are read without the lock.
        let lanes = self.lanes.lock();
        let lanes: Vec<MpiLane> = { lanes.values() }
            .filter(|lane| is_shown(lane.owner))
            .take(SHOWN_MAX)
            .cloned()
            .collect();
        let files = ProcessFiles::open();
        let mut ranks: Vec<MpiRank> = { lanes.iter() }
            .filter_map(|lane| lane.rank(now, &files))
            .collect();
        let mut names: HashMap<u32, String> = HashMap::new();
        for rank in &mut ranks {
            rank.user = names
                .entry(rank.uid)
                .or_insert_with_key(|uid| user_name(*uid))
                .clone();
        }
        let mut ended = self.ended.lock();
        ended.retain(|(since, _)| (0..ENDED_SHOWN_MS).contains(&(now - since)));
        let shown = ended.iter().filter(|(_, rank)| is_shown(rank.uid));
        ranks.extend(shown.map(|(_, rank)| rank.clone()));
        ranks
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
            has_ended: self.has_ended || is_gone,
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
