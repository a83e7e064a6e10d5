//! One directory of lanes. It is listed in portions, and files are counted per user, so that a user
//! with very many files cannot hide the lanes of others.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use pegel_lane::reader::{
    LaneDirectoryHandle, LaneDirectoryScan, LaneFile, LaneLimits, LaneOpenError, ListedLane,
};
use pegel_metric::Millis;

use super::LaneDirectory;
use super::directories::{OpenedLane, prepare_directory};
use super::directory_claim::{ClaimError, DirectoryClaim, file_name};
use super::journal::LaneId;
use super::quota::LaneQuota;
use super::skip_log::SkipLog;

/// The entries that one scan reads; a larger directory takes several scans.
const ENTRIES_PER_SCAN: usize = 16_384;
/// The most skipped files remembered per user. Further ones that are not lanes, or not finished,
/// are removed.
const SKIPPED_MAX: usize = 4_096;
/// A file that its program did not finish is removed after this long.
const UNFINISHED_MS: Millis = 3_600_000;

#[derive(Debug)]
pub(super) struct WatchedDirectory {
    settings: LaneDirectory,
    limits: LaneLimits,
    state: Result<OpenDirectory, String>,
    /// The scan in progress; `None` at the start of the directory.
    scan: Option<LaneDirectoryScan>,
    /// The number of complete scans.
    round: u64,
    /// Files that are not read, until they are removed.
    skipped: HashMap<String, SkippedFile>,
    skip_log: SkipLog,
    /// The number of skipped files per user.
    per_user: HashMap<u32, usize>,
    /// The number of surplus files removed, by user.
    removed: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct OpenDirectory {
    directory: LaneDirectoryHandle,
    /// An agent without a claim still reads the lanes, and reports a fault.
    claim: Result<DirectoryClaim, String>,
}

#[derive(Debug)]
struct SkippedFile {
    owner: u32,
    reason: SkipReason,
    /// The round in which it was last seen.
    round: u64,
}

#[derive(Debug, PartialEq)]
enum SkipReason {
    /// Not renamed to its final name yet; holds the time when it was first seen.
    Unfinished(Millis),
    NotALane(String),
    /// Over a limit: read as soon as there is room.
    OverLimit(&'static str),
}

impl SkipReason {
    /// Returns the reason to report; an unfinished file is not reported.
    fn reason(&self) -> Option<&str> {
        match self {
            SkipReason::Unfinished(_) => None,
            SkipReason::NotALane(reason) => Some(reason),
            SkipReason::OverLimit(reason) => Some(reason),
        }
    }
}

impl WatchedDirectory {
    pub(super) fn new(settings: &LaneDirectory) -> WatchedDirectory {
        WatchedDirectory {
            settings: settings.clone(),
            limits: LaneLimits {
                owners: settings.owners.clone(),
                ..LaneLimits::default()
            },
            state: Err("not opened yet".to_owned()),
            scan: None,
            round: 0,
            skipped: HashMap::new(),
            skip_log: SkipLog::default(),
            per_user: HashMap::new(),
            removed: BTreeMap::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Opens the directory if it is not open: it may be created, or released by another agent, at
    /// any time. Returns whether this call opened it.
    pub(super) fn open(&mut self, journal: &Path, is_new: bool) -> bool {
        if self.state.is_ok() {
            return false;
        }
        self.state = open(&self.settings, journal, is_new);
        self.scan = None;
        self.state.is_ok()
    }

    /// Returns why lanes here are not read, or not all of them.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match &self.state {
            Err(_) if self.settings.is_optional && !self.path().exists() => {}
            Err(reason) => faults.push(reason.clone()),
            Ok(open) => faults.extend(open.claim.as_ref().err().cloned()),
        }
        if self.scan.is_some() {
            faults.push(format!(
                "more than {ENTRIES_PER_SCAN} files; finding new lanes takes longer"
            ));
        }
        for (reason, count) in self.counts_over_limit() {
            faults.push(format!("{count} lanes are not read: {reason}"));
        }
        for (uid, count) in &self.removed {
            faults.push(format!(
                "removed {count} files of user {uid} that are not lanes"
            ));
        }
        let path = self.path().display();
        faults
            .iter()
            .map(|fault| format!("{path}: {fault}"))
            .collect()
    }

    /// Returns the number of lanes that wait for room, by the limit that was reached.
    fn counts_over_limit(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for skipped in self.skipped.values() {
            if let SkipReason::OverLimit(limit) = skipped.reason {
                *counts.entry(limit).or_default() += 1;
            }
        }
        counts
    }

    /// Adds the skipped files to the counts by reason.
    pub(super) fn count_refused(&self, reasons: &mut BTreeMap<String, u64>) {
        for skipped in self.skipped.values() {
            if let Some(reason) = skipped.reason.reason() {
                *reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }

    /// Opens a lane by its id, without listing the directory.
    pub(super) fn open_by_id(&mut self, id: &LaneId, quota: &mut LaneQuota) -> Option<LaneFile> {
        let open = self.state.as_ref().ok()?;
        let file = open
            .directory
            .open_lane(&file_name(id), &self.limits)
            .ok()?;
        quota.admit(&file, false).ok()?;
        Some(file)
    }

    /// Opens the lanes of the next portion for which `is_known` returns false.
    pub(super) fn scan(
        &mut self,
        is_known: &impl Fn(&LaneId) -> bool,
        quota: &mut LaneQuota,
        now: Millis,
    ) -> Vec<LaneFile> {
        let (found, is_end) = match self.next_portion() {
            Ok(portion) => portion,
            Err(error) => {
                self.state = Err(error.to_string());
                return Vec::new();
            }
        };
        let mut opened = Vec::new();
        for found in found {
            if lane_id_of(&found.name).is_some_and(|id| !found.is_temporary && is_known(&id))
                || self.is_still_skipped(&found, quota, now)
            {
                continue;
            }
            match self.try_open(&found, quota, now) {
                Ok(file) => opened.push(file),
                Err(None) => {}
                // No descriptors left: the lane is retried when some are free.
                Err(Some(SkipReason::OverLimit(NO_DESCRIPTORS))) => break,
                Err(Some(why)) => {
                    if let Some(reason) = why.reason() {
                        self.skip_log.add(&found.name, reason);
                    }
                    self.skip(found.name, why);
                }
            }
        }
        self.skip_log.flush(now);
        if is_end {
            self.end_round();
        }
        opened
    }

    fn next_portion(&mut self) -> io::Result<(Vec<ListedLane>, bool)> {
        let Ok(open) = &self.state else {
            return Ok((Vec::new(), false));
        };
        // Repeated each time: a program may have been removing stale lanes.
        open.directory.lock_for_reading();
        let mut scan = match self.scan.take() {
            Some(scan) => scan,
            None => open.directory.scan()?,
        };
        let listing = scan.next_portion(ENTRIES_PER_SCAN)?;
        if listing.has_more {
            self.scan = Some(scan);
        }
        Ok((listing.lanes, !listing.has_more))
    }

    /// Returns whether a file that was skipped before is still to be skipped.
    fn is_still_skipped(&mut self, found: &ListedLane, quota: &LaneQuota, now: Millis) -> bool {
        let Some(known) = self.skipped.get_mut(&found.name) else {
            return false;
        };
        known.round = self.round;
        match known.reason {
            SkipReason::Unfinished(since) if now - since > UNFINISHED_MS => {
                let _ = self.remove(&found.name);
                true
            }
            SkipReason::OverLimit(_) => quota.exceeded_limit(known.owner, 0).is_some(),
            SkipReason::Unfinished(_) | SkipReason::NotALane(_) => true,
        }
    }

    /// Opens a lane. The error is `None` if the file is gone.
    fn try_open(
        &self,
        found: &ListedLane,
        quota: &mut LaneQuota,
        now: Millis,
    ) -> Result<LaneFile, Option<SkipReason>> {
        let open = self.state.as_ref().map_err(|_| None)?;
        if found.is_temporary {
            return Err(Some(SkipReason::Unfinished(now)));
        }
        // Cheaper than opening it; the decisive owner is that of the opened file.
        let owner = open.directory.owner_of(&found.name).map_err(|_| None)?;
        let exceeded = quota.exceeded_limit(owner, 0);
        // A surplus file is opened all the same: if it is not a lane, it is removed, so that it
        // does not delay every later scan.
        if let Some(obstacle) = exceeded.filter(|_| !self.has_surplus_files(owner)) {
            return Err(Some(SkipReason::OverLimit(obstacle)));
        }
        match open.directory.open_lane(&found.name, &self.limits) {
            Ok(file) => match quota.admit(&file, true) {
                Ok(()) => Ok(file),
                Err(obstacle) => Err(Some(SkipReason::OverLimit(obstacle))),
            },
            Err(LaneOpenError::NotFound) => Err(None),
            Err(LaneOpenError::Open(error)) if is_out_of_descriptors(&error) => {
                Err(Some(SkipReason::OverLimit(NO_DESCRIPTORS)))
            }
            Err(error) => Err(Some(SkipReason::NotALane(error.to_string()))),
        }
    }

    /// Returns whether no more skipped files of this user are remembered.
    fn has_surplus_files(&self, owner: u32) -> bool {
        let count = self.per_user.get(&owner);
        count.is_some_and(|count| *count >= SKIPPED_MAX)
    }

    /// Remembers a skipped file. Beyond [`SKIPPED_MAX`] per user, files that are not lanes are
    /// removed instead.
    fn skip(&mut self, name: String, why: SkipReason) {
        let Ok(open) = &self.state else { return };
        let Ok(owner) = open.directory.owner_of(&name) else {
            return;
        };
        if self.has_surplus_files(owner) {
            // A lane over a limit stays: its program runs, and the next round tries it again.
            let is_junk = !matches!(why, SkipReason::OverLimit(_));
            if is_junk && open.directory.remove(&name).is_ok() {
                *self.removed.entry(owner).or_default() += 1;
            }
            return;
        }
        *self.per_user.entry(owner).or_default() += 1;
        let round = self.round;
        let skipped = SkippedFile {
            owner,
            reason: why,
            round,
        };
        self.skipped.insert(name, skipped);
    }

    /// Forgets skipped files that were not seen in this round.
    fn end_round(&mut self) {
        let round = self.round;
        self.skipped.retain(|_, file| file.round == round);
        self.round += 1;
        self.per_user.clear();
        for file in self.skipped.values() {
            *self.per_user.entry(file.owner).or_default() += 1;
        }
    }

    /// Marks a lane with inconsistent contents, so that it is not opened again.
    pub(super) fn refuse(&mut self, file: &LaneFile, reason: String) {
        // Logged with the files that are skipped: a user may create any number of such lanes.
        self.skip_log.add(file.name(), &reason);
        self.skip(file.name().to_owned(), SkipReason::NotALane(reason));
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match &self.state {
            Ok(open) => open.directory.remove(name),
            Err(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    /// Records in the claim that a lane is read. Returns whether an agent with another journal has
    /// counted it before.
    pub(super) fn claim(&mut self, id: &LaneId) -> bool {
        let Ok(open) = &mut self.state else {
            return false;
        };
        let Ok(claim) = &mut open.claim else {
            return false;
        };
        let is_counted_elsewhere = claim.is_counted_elsewhere(id);
        if let Err(error) = claim.add(&open.directory, id) {
            open.claim = Err(ClaimError::Io(error).to_string());
        }
        is_counted_elsewhere
    }
}

const NO_DESCRIPTORS: &str = "no file descriptors left";

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let shortages = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    shortages
        .iter()
        .any(|shortage| error.raw_os_error() == Some(shortage.raw_os_error()))
}

fn lane_id_of(name: &str) -> Option<LaneId> {
    let digits = name.split('.').next()?;
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

fn open(settings: &LaneDirectory, journal: &Path, is_new: bool) -> Result<OpenDirectory, String> {
    prepare_directory(settings)?;
    let directory = LaneDirectoryHandle::open(&settings.path).map_err(|error| error.to_string())?;
    let claim = match DirectoryClaim::acquire(&directory, journal, is_new) {
        Ok(claim) => Ok(claim),
        Err(error @ ClaimError::ClaimedByOther(_)) => return Err(error.to_string()),
        Err(error @ ClaimError::Io(_)) => Err(error.to_string()),
    };
    Ok(OpenDirectory { directory, claim })
}

/// Adds the directory's number to the lanes that [`WatchedDirectory::scan`] opened.
pub(super) fn with_directory(
    directory: usize,
    files: Vec<LaneFile>,
) -> impl Iterator<Item = OpenedLane> {
    files
        .into_iter()
        .map(move |file| OpenedLane { file, directory })
}

#[cfg(test)]
mod tests {
    use pegel_lane::{Counter, Handle, LaneKind, LaneSeriesSpec, ProcessLanes};
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn invalid_lanes_are_logged_together() {
        let dir = TempDir::new();
        let mut watched = WatchedDirectory::new(&LaneDirectory::for_all_users(dir.path()));
        assert!(watched.open(&dir.join("journal"), true));
        for _ in 0..3 {
            let home = ProcessLanes::in_directory(dir.path());
            let spec = LaneSeriesSpec::new(LaneKind::Counter, "c_total");
            Counter::create_in(home, &spec).expect("made");
        }
        let files = watched.scan(&|_| false, &mut LaneQuota::new(10), 0);
        for file in &files {
            watched.refuse(file, "invalid".to_owned());
        }
        let (count, first, reason) = watched.skip_log.take_due(0).expect("due");
        assert_eq!((count, &*first, &*reason), (3, files[0].name(), "invalid"));
    }
}
