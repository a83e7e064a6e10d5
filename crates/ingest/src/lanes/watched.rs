//! One directory of lanes. It is read in portions, and each user's files are counted on their own, so that a user with very
//! many files hides nothing of others.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use pegel_lane::reader::{Directory, Found, LaneFile, Limits, OpenError, Scan};
use pegel_metric::Millis;

use super::LaneDirectory;
use super::claim::{Claim, ClaimError, file_name};
use super::directories::{Opened, own_directory};
use super::journal::LaneId;
use super::quota::LaneQuota;

/// How many entries of a directory one look reads; a larger one takes several looks.
const PORTION: usize = 16_384;
/// How many files that are not read are remembered of one user. Further ones that are no lanes, or not finished, are removed.
const PASSED_OVER_MAX: usize = 4_096;
/// How many files that are not read one look names in the log; `/status` counts them all.
const COMPLAINTS_MAX: u32 = 10;
/// A file that its program did not finish is removed after this long.
const UNFINISHED_MS: Millis = 3_600_000;

#[derive(Debug)]
pub(super) struct WatchedDirectory {
    settings: LaneDirectory,
    limits: Limits,
    state: Result<OpenDirectory, String>,
    /// How far the directory was read; None at its beginning.
    scan: Option<Scan>,
    /// How often it was read to its end.
    round: u64,
    /// Files that are not read, until they are gone.
    passed_over: HashMap<String, PassedOver>,
    /// How many of them each user has.
    per_user: HashMap<u32, usize>,
    /// Files beyond that number that were removed, by user.
    removed: BTreeMap<u32, u64>,
}

#[derive(Debug)]
struct OpenDirectory {
    directory: Directory,
    /// An agent without a claim reads all the same, and says so.
    claim: Result<Claim, String>,
}

#[derive(Debug)]
struct PassedOver {
    owner: u32,
    why: Why,
    /// The round in which it was last seen.
    round: u64,
}

#[derive(Debug, PartialEq)]
enum Why {
    /// Not renamed yet, and when that was first seen.
    Unfinished(Millis),
    NoLane(String),
    /// Read as soon as there is room.
    NoRoom(&'static str),
}

impl Why {
    /// For people; an unfinished file is nothing to report.
    fn reason(&self) -> Option<&str> {
        match self {
            Why::Unfinished(_) => None,
            Why::NoLane(reason) => Some(reason),
            Why::NoRoom(reason) => Some(reason),
        }
    }
}

impl WatchedDirectory {
    pub fn new(settings: &LaneDirectory) -> WatchedDirectory {
        WatchedDirectory {
            settings: settings.clone(),
            limits: Limits {
                owners: settings.owners.clone(),
                ..Limits::default()
            },
            state: Err("not opened yet".to_owned()),
            scan: None,
            round: 0,
            passed_over: HashMap::new(),
            per_user: HashMap::new(),
            removed: BTreeMap::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Opens it if it is not open: it may be made, or left by another agent, after this one started. Whether that was done now.
    pub fn open(&mut self, journal: &Path, is_new: bool) -> bool {
        if self.state.is_ok() {
            return false;
        }
        self.state = open(&self.settings, journal, is_new);
        self.scan = None;
        self.state.is_ok()
    }

    /// Why lanes here are not read, or not all of them.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match &self.state {
            Err(_) if self.settings.is_optional && !self.path().exists() => {}
            Err(reason) => faults.push(reason.clone()),
            Ok(open) => faults.extend(open.claim.as_ref().err().cloned()),
        }
        if self.scan.is_some() {
            faults.push(format!(
                "more than {PORTION} files: new lanes are found with delay"
            ));
        }
        for (uid, count) in &self.removed {
            faults.push(format!(
                "removed {count} files of user {uid} that are no lanes"
            ));
        }
        let path = self.path().display();
        faults
            .iter()
            .map(|fault| format!("{path}: {fault}"))
            .collect()
    }

    /// Adds the files that are not read to the count of their reason.
    pub fn count_refused(&self, reasons: &mut BTreeMap<String, u64>) {
        for passed_over in self.passed_over.values() {
            if let Some(reason) = passed_over.why.reason() {
                *reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }

    /// Opens a lane whose identity is known, wherever in the listing it stands.
    pub fn open_known(&mut self, id: &LaneId, quota: &mut LaneQuota) -> Option<LaneFile> {
        let open = self.state.as_ref().ok()?;
        let file = open
            .directory
            .open_lane(&file_name(id), &self.limits)
            .ok()?;
        quota.admit(&file).ok()?;
        Some(file)
    }

    /// Opens the lanes of the next portion that `is_known` does not know.
    pub fn look(
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
        let mut complaints = 0;
        for found in found {
            if id_of(&found.name).is_some_and(|id| !found.is_temporary && is_known(&id))
                || self.is_settled(&found, quota, now)
            {
                continue;
            }
            match self.try_open(&found, quota, now) {
                Ok(file) => opened.push(file),
                Err(None) => {}
                // No descriptors left: the lane waits until some are free.
                Err(Some(Why::NoRoom(SHORTAGE))) => break,
                Err(Some(why)) => {
                    if let Some(reason) = why.reason().filter(|_| complaints < COMPLAINTS_MAX) {
                        complaints += 1;
                        tracing::warn!(lane = found.name, reason, "a lane is not read");
                    }
                    self.pass_over(found.name, why);
                }
            }
        }
        if is_end {
            self.end_round();
        }
        opened
    }

    fn next_portion(&mut self) -> io::Result<(Vec<Found>, bool)> {
        let Ok(open) = &self.state else {
            return Ok((Vec::new(), false));
        };
        // Again each time: a program may have been sweeping.
        open.directory.hold();
        let mut scan = match self.scan.take() {
            Some(scan) => scan,
            None => open.directory.scan()?,
        };
        let listing = scan.next_portion(PORTION)?;
        if listing.is_cut {
            self.scan = Some(scan);
        }
        Ok((listing.found, !listing.is_cut))
    }

    /// Whether a file that was passed over before is so still.
    fn is_settled(&mut self, found: &Found, quota: &LaneQuota, now: Millis) -> bool {
        let Some(known) = self.passed_over.get_mut(&found.name) else {
            return false;
        };
        known.round = self.round;
        match known.why {
            Why::Unfinished(since) if now - since > UNFINISHED_MS => {
                let _ = self.remove(&found.name);
                true
            }
            Why::NoRoom(_) => quota.obstacle(known.owner, 0).is_some(),
            Why::Unfinished(_) | Why::NoLane(_) => true,
        }
    }

    /// None as the reason: it went away meanwhile.
    fn try_open(
        &self,
        found: &Found,
        quota: &mut LaneQuota,
        now: Millis,
    ) -> Result<LaneFile, Option<Why>> {
        let open = self.state.as_ref().map_err(|_| None)?;
        if found.is_temporary {
            return Err(Some(Why::Unfinished(now)));
        }
        // Cheaper than opening it; the owner that counts is the one of the opened file.
        let owner = open.directory.owner_of(&found.name).map_err(|_| None)?;
        if let Some(obstacle) = quota.obstacle(owner, 0) {
            return Err(Some(Why::NoRoom(obstacle)));
        }
        match open.directory.open_lane(&found.name, &self.limits) {
            Ok(file) => match quota.admit(&file) {
                Ok(()) => Ok(file),
                Err(obstacle) => Err(Some(Why::NoRoom(obstacle))),
            },
            Err(OpenError::NotThere) => Err(None),
            Err(OpenError::Open(error)) if is_shortage(&error) => Err(Some(Why::NoRoom(SHORTAGE))),
            Err(error) => Err(Some(Why::NoLane(error.to_string()))),
        }
    }

    /// Remembers a file that is not read. One user's junk beyond a number is removed instead.
    fn pass_over(&mut self, name: String, why: Why) {
        let Ok(open) = &self.state else { return };
        let Ok(owner) = open.directory.owner_of(&name) else {
            return;
        };
        let count = self.per_user.entry(owner).or_default();
        if *count >= PASSED_OVER_MAX {
            // A lane without room stays: its program runs, and the next round looks at it again.
            let is_junk = !matches!(why, Why::NoRoom(_));
            if is_junk && open.directory.remove(&name).is_ok() {
                *self.removed.entry(owner).or_default() += 1;
            }
            return;
        }
        *count += 1;
        let round = self.round;
        let passed_over = PassedOver { owner, why, round };
        self.passed_over.insert(name, passed_over);
    }

    /// Forgets the files that were not seen in this round.
    fn end_round(&mut self) {
        let round = self.round;
        self.passed_over.retain(|_, file| file.round == round);
        self.round += 1;
        self.per_user.clear();
        for file in self.passed_over.values() {
            *self.per_user.entry(file.owner).or_default() += 1;
        }
    }

    /// A lane that lies is not opened again.
    pub fn refuse(&mut self, file: &LaneFile, reason: String) {
        self.pass_over(file.name().to_owned(), Why::NoLane(reason));
    }

    pub fn remove(&self, name: &str) -> io::Result<()> {
        match &self.state {
            Ok(open) => open.directory.remove(name),
            Err(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    /// Notes in the claim that a lane is read. Whether an agent with another journal has counted it before.
    pub fn claim(&mut self, id: &LaneId) -> bool {
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

const SHORTAGE: &str = "no descriptors left";

fn is_shortage(error: &io::Error) -> bool {
    let shortages = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    shortages
        .iter()
        .any(|shortage| error.raw_os_error() == Some(shortage.raw_os_error()))
}

fn id_of(name: &str) -> Option<LaneId> {
    let digits = name.split('.').next()?;
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

fn open(settings: &LaneDirectory, journal: &Path, is_new: bool) -> Result<OpenDirectory, String> {
    own_directory(settings)?;
    let directory = Directory::open(&settings.path).map_err(|error| error.to_string())?;
    let claim = match Claim::take(&directory, journal, is_new) {
        Ok(claim) => Ok(claim),
        Err(error @ ClaimError::Held(_)) => return Err(error.to_string()),
        Err(error @ ClaimError::Io(_)) => Err(error.to_string()),
    };
    Ok(OpenDirectory { directory, claim })
}

/// What [`WatchedDirectory::look`] opened, with the directory's number.
pub(super) fn opened_in(directory: usize, files: Vec<LaneFile>) -> impl Iterator<Item = Opened> {
    files
        .into_iter()
        .map(move |file| Opened { file, directory })
}
