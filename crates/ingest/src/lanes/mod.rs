//! Lanes, the agent's side: finds lanes, sums what they counted, and keeps the sums across
//! restarts.
//!
//! The program sampler calls [`Lanes`] at each pass, which reads every lane. A lane ends when its
//! program exits; its counters stay in the totals, its gauges are removed. The file is removed some
//! time after the process ended, and never before the journal contains its counts, so that no
//! restart loses or repeats a count. Contents of lanes are untrusted: an invalid lane is refused
//! and affects only its own series. See `pegel_lane` for the file, [`journal`] for what is kept on
//! disk, [`totals`] for the sums.

pub mod amount;
mod contribution;
mod directories;
mod directory_claim;
mod histograms;
pub mod journal;
mod journal_file;
mod journal_update;
mod journal_writer;
mod lane_points;
mod mpi_processes;
mod open_lane;
mod process_files;
mod quota;
mod settings;
mod skip_log;
mod status;
mod total_spec;
mod totals;
mod watched_directory;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{Clock, DropReason, Input, Millis, Tick};
use pegel_store::Store;

use crate::admission::{Admission, AdmissionError};
use crate::current_values::CurrentValues;
use crate::point_writer::PointWriter;
use crate::program_sampler::ValueSource;
use crate::senders::{Sender, account_of, other_user_name};
use directories::{LaneDirectories, OpenedLane};
use journal::{JournalContents, JournalSeries, LaneId};
use journal_writer::JournalWriter;
use open_lane::OpenLane;
use totals::{LaneTotals, TotalId};

pub use journal::JournalError;
pub use mpi_processes::MpiProcesses;
pub use quota::LANES_MAX;
pub use settings::{LaneDirectory, LanesSettings};
pub use status::LanesStatus;

/// Counters of ended programs are removed from the current values if they did not increase for this
/// long.
const FORGET_AFTER_MS: Millis = 24 * 3_600_000;
/// The interval between searches for new and ended lanes.
const SCAN_INTERVAL_MS: Millis = 1_000;
/// The most cached user names.
const USERS_MAX: usize = 1024;
/// The interval between submissions to the journal.
const JOURNAL_INTERVAL_MS: Millis = 1_000;

/// All lanes of the node.
#[derive(Debug)]
pub struct Lanes {
    admission: Arc<Admission>,
    points: Arc<PointWriter>,
    clock: Arc<dyn Clock>,
    directories: LaneDirectories,
    lanes: HashMap<LaneId, OpenLane>,
    /// Names of users whose lanes were seen, by uid.
    users: HashMap<u32, Option<Arc<str>>>,
    totals: LaneTotals,
    journal: JournalWriter,
    /// Lanes of the journal whose files could not be read at the start: their counts are in the
    /// base.
    folded_into_base: HashSet<LaneId>,
    /// The number of lanes that another agent counted before this one took over.
    counted_elsewhere: u64,
    is_aborted: bool,
    /// Whether the numbers of series in the journal are outdated: those of before the start, or of
    /// removed series.
    needs_rewrite: bool,
    last_scan: Millis,
    last_journaled: Millis,
    last_synced: Millis,
    last_expired: Millis,
    buffer: Vec<u8>,
    status: Arc<Mutex<LanesStatus>>,
    mpi_processes: Arc<MpiProcesses>,
}

impl Lanes {
    /// Reads the journal; the first pass reads the lanes.
    pub fn open(
        settings: &LanesSettings,
        admission: Arc<Admission>,
        points: Arc<PointWriter>,
        store: &Store,
        clock: Arc<dyn Clock>,
    ) -> Result<Lanes, JournalError> {
        let now = clock.utc();
        let is_new = !settings.journal.exists();
        let kept = journal::load(&settings.journal)?;
        let journal = JournalWriter::start(settings, store.supervisor());
        let journal = journal.map_err(|source| JournalError::Io {
            path: settings.journal.clone(),
            source,
        })?;
        if kept.torn_bytes > 0 {
            tracing::warn!(
                bytes = kept.torn_bytes,
                "cut a torn record at the end of the lane journal"
            );
        }
        let totals = LaneTotals::new(admission.clone(), CurrentValues::new("lanes", store, now));
        let mut lanes = Lanes {
            admission,
            points,
            clock,
            directories: LaneDirectories::new(settings, is_new),
            lanes: HashMap::new(),
            users: HashMap::new(),
            totals,
            journal,
            folded_into_base: HashSet::new(),
            counted_elsewhere: 0,
            is_aborted: false,
            needs_rewrite: true,
            last_scan: Millis::MIN,
            last_journaled: now,
            last_synced: now,
            last_expired: now,
            buffer: Vec::new(),
            status: Arc::default(),
            mpi_processes: Arc::default(),
        };
        lanes.resume(kept, now);
        Ok(lanes)
    }

    /// Ends without a last write, as a kill would: for tests.
    #[doc(hidden)]
    pub fn abort(mut self) {
        self.is_aborted = true;
    }

    /// Returns whether everything submitted to the journal is written: for tests.
    #[doc(hidden)]
    pub fn is_journal_written(&self) -> bool {
        !self.journal.is_busy()
    }

    pub fn status(&self) -> Arc<Mutex<LanesStatus>> {
        self.status.clone()
    }

    pub fn mpi_processes(&self) -> Arc<MpiProcesses> {
        self.mpi_processes.clone()
    }

    /// Continues where the previous agent ended.
    fn resume(&mut self, kept: JournalContents, now: Millis) {
        let numbers = self.restore_series(&kept.series, now);
        for (old, base) in &kept.base {
            if let Some(&number) = numbers.get(old) {
                self.totals.set_base(number, *base);
            }
        }
        let mut known = kept.lanes;
        for lane in known.values_mut() {
            lane.amounts.retain_mut(|(number, _)| {
                let new = numbers.get(number);
                *number = new.copied().unwrap_or(*number);
                new.is_some()
            });
        }
        // By their ids: the directory listing may be very long, and other files must not hide these
        // lanes.
        let ids: Vec<LaneId> = known.keys().copied().collect();
        for id in ids {
            if let Some(opened) = self.directories.open_by_id(&id) {
                let resumed = known.remove(&id);
                self.add(opened, resumed, now);
            }
        }
        // Their files are gone after a reboot or a removal, or another agent reads them.
        for (id, lane) in known {
            self.folded_into_base.insert(id);
            for (number, amount) in lane.counted() {
                self.totals.add_amount(number, amount, now);
                self.totals.add_to_base(number, amount);
            }
        }
        self.find_new(now);
    }

    /// Restores the counters of the journal. Returns their new numbers by the old ones.
    fn restore_series(
        &mut self,
        kept: &BTreeMap<u32, JournalSeries>,
        now: Millis,
    ) -> HashMap<u32, TotalId> {
        let admission = self.admission.clone();
        let removed_user = admission.sender(Input::Lane, "programs that ended");
        let mut senders: HashMap<Option<Box<str>>, Arc<Sender>> = HashMap::new();
        let mut sender_of = |user: Option<&str>| {
            let sender = senders.entry(user.map(Box::from));
            let new_sender = || account_of(user).map(|who| admission.sender(Input::Lane, &who));
            let sender = sender.or_insert_with(|| new_sender().unwrap_or(removed_user.clone()));
            sender.clone()
        };
        let mut numbers = HashMap::new();
        for (old, series) in kept {
            match self.totals.restore(&mut sender_of, series, now) {
                Ok(number) => {
                    numbers.insert(*old, number);
                }
                Err(refusal) => self.refuse(&removed_user, refusal),
            }
        }
        numbers
    }

    fn add(&mut self, opened: OpenedLane, resumed: Option<journal::JournalLane>, now: Millis) {
        // The user as reported by the kernel; the lane's own claim could be used to evade limits.
        let who = format!("uid {}", opened.file.owner());
        let sender = self.admission.sender(Input::Lane, &who);
        let id = opened.file.header().id;
        let is_claimed = self.directories.claim(opened.directory, &id);
        let is_folded = self.folded_into_base.remove(&id);
        let is_elsewhere = resumed.is_none() && (is_claimed || is_folded);
        self.counted_elsewhere += u64::from(is_elsewhere);
        self.mpi_processes.add(&opened.file);
        let owner = (sender, self.user(opened.file.owner()));
        let lane = OpenLane::new(
            opened.file,
            opened.directory,
            owner,
            resumed,
            is_elsewhere,
            now,
        );
        self.lanes.insert(id, lane);
    }

    /// Returns the value of the label `user` for lanes of this user: series of different users are
    /// never summed. The agent's own user has none.
    fn user(&mut self, uid: u32) -> Option<Arc<str>> {
        if self.users.len() >= USERS_MAX {
            self.users.clear();
        }
        let user = self.users.entry(uid);
        user.or_insert_with(|| other_user_name(uid).map(Arc::from))
            .clone()
    }

    fn refuse(&self, sender: &Arc<Sender>, refusal: AdmissionError) {
        self.admission.count_received(sender, 1);
        self.admission.count_dropped(sender, refusal.reason(), 1);
    }

    fn find_new(&mut self, now: Millis) {
        let lanes = &self.lanes;
        for opened in self
            .directories
            .open_new_lanes(|id| lanes.contains_key(id), now)
        {
            self.add(opened, None, now);
        }
    }

    /// Reads every lane.
    fn read(&mut self, now: Millis) {
        let mut points = Vec::new();
        for lane in self.lanes.values_mut().filter(|lane| !lane.is_drained) {
            let admission = &self.admission;
            let mut refuse = |sender: &Arc<Sender>, refusal: AdmissionError| {
                admission.count_received(sender, 1);
                admission.count_dropped(sender, refusal.reason(), 1);
            };
            let has_ended = lane.has_ended;
            let read = lane.update(&mut self.totals, &mut self.buffer, now, &mut refuse);
            let read = read.and_then(|_| {
                points.clear();
                lane.file.points(&mut self.buffer, has_ended, &mut points)
            });
            match read {
                Ok(read) => {
                    admission.count_received(&lane.sender, read.lost);
                    admission.count_dropped(&lane.sender, DropReason::Overrun, read.lost);
                    lane_points::store_points(lane, &points, &self.points, admission, now);
                    lane.is_drained = has_ended;
                }
                Err(error) => lane.error = Some(error.to_string()),
            }
        }
    }

    /// Detects lanes that ended, and removes those that ended long ago.
    fn update_ended_lanes(&mut self, now: Millis) {
        let mut gone = Vec::new();
        for (id, lane) in &mut self.lanes {
            if !lane.has_ended && lane.file.is_ended().unwrap_or(false) {
                lane.end(&mut self.totals);
                self.mpi_processes.set_ended(id);
            }
            if lane.error.is_some() || lane.is_removable(now) {
                gone.push(*id);
            }
        }
        for id in gone {
            self.remove_lane(&id, now);
        }
        self.update_status();
        if now - self.last_expired > 3_600_000 {
            self.last_expired = now;
            // Their numbers are reused for other series, to which the journal would assign the old
            // counts.
            self.needs_rewrite |= self.totals.expire(now - FORGET_AFTER_MS) > 0;
        }
    }

    fn remove_lane(&mut self, id: &LaneId, now: Millis) {
        let Some(mut lane) = self.lanes.remove(id) else {
            return;
        };
        if let Some(fault) = lane.error.take() {
            self.directories.refuse(lane.directory, &lane.file, fault);
        } else {
            // The journal first: a removed file cannot be read again.
            let is_written = |number| self.journal.is_written(number);
            if !lane.journaled_in.is_some_and(is_written) {
                self.lanes.insert(*id, lane);
                return;
            }
            if let Err(error) = self.directories.remove(lane.directory, lane.file.name()) {
                tracing::warn!(lane = lane.file.name(), %error, "cannot remove a lane");
                lane.quiet_since = now;
                self.lanes.insert(*id, lane);
                return;
            }
        }
        lane.remove_from_totals(&mut self.totals);
        self.mpi_processes.remove(id, now);
        self.journal.records.put_removed(id);
        self.directories.release(&lane.file);
    }

    fn status_mut(&self) -> MutexGuard<'_, LanesStatus> {
        self.status.lock()
    }

    fn update_status(&self) {
        let mut status = self.status_mut();
        status.directories = self
            .directories
            .paths()
            .map(|path| path.display().to_string())
            .collect();
        status.faults = self.directories.faults().collect();
        status.refused = self.directories.refused();
        let ended = self.lanes.values().filter(|lane| lane.has_ended).count() as u64;
        status.ended = ended;
        status.alive = self.lanes.len() as u64 - ended;
        status.counted_elsewhere = self.counted_elsewhere;
        status.jobs.clear();
        for lane in self.lanes.values().filter(|lane| !lane.has_ended) {
            let header = lane.file.header();
            // A process has several lanes if it has many series.
            if !header.job.is_empty() && header.number == 0 {
                let job = (header.job.clone(), lane.file.owner());
                status.jobs.entry(job).or_default().push(header.pid);
            }
        }
    }
}

impl ValueSource for Lanes {
    fn update(&mut self, tick: &mut Tick) {
        let now = self.clock.utc();
        let is_time = |last: Millis, every: Millis| (now - last).abs() >= every;
        let is_time_to_look =
            self.last_scan == Millis::MIN || is_time(self.last_scan, SCAN_INTERVAL_MS);
        if self.directories.has_changes() || is_time_to_look {
            self.find_new(now);
            self.last_scan = now;
            self.update_status();
        }
        // Before reading: what is read after the end is complete.
        if is_time_to_look {
            self.update_ended_lanes(now);
        }
        self.read(now);
        self.totals.emit(tick);
        if self.needs_rewrite || is_time(self.last_journaled, JOURNAL_INTERVAL_MS) {
            self.update_journal(now);
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        if self.is_aborted {
            self.journal.discard();
        } else if self.journal.wait_until_idle() {
            self.submit_changes(self.clock.utc(), true);
        }
    }
}
