//! Where lanes are found: directories that are looked through when something changed in them, and now and then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pegel_lane::reader::{Directory, LaneFile, Limits, OpenError};
use pegel_metric::Millis;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::journal::LaneId;

/// How many lanes are read at one time, and how many of one user.
const LANES_MAX: usize = 16_384;
const LANES_PER_USER_MAX: usize = 4_096;
/// What the lanes of one user may take of the agent's time: this much is copied at each pass.
const BYTES_PER_USER_MAX: u64 = 256 << 20;
/// How many files that are not read one look names in the log; `/status` counts them all.
const COMPLAINTS_MAX: u32 = 10;
/// A file that its program did not finish is removed after this long.
const UNFINISHED_MS: Millis = 3_600_000;

/// A lane that was not known before.
#[derive(Debug)]
pub(super) struct Opened {
    pub file: LaneFile,
    pub directory: usize,
}

#[derive(Debug)]
pub(super) struct Directories {
    places: Vec<Watched>,
    inotify: Option<OwnedFd>,
    /// By user: lanes and bytes.
    users: HashMap<u32, (usize, u64)>,
    lanes: usize,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    state: Result<Directory, String>,
    /// Files that are not read, and why; until they are gone.
    refused: HashMap<String, String>,
    /// Files that are not finished, and when they were first seen.
    unfinished: HashMap<String, Millis>,
}

impl Directories {
    pub fn new(paths: &[PathBuf]) -> Directories {
        let places = paths.iter().map(|path| Watched {
            path: path.clone(),
            state: Err("not opened yet".to_owned()),
            refused: HashMap::new(),
            unfinished: HashMap::new(),
        });
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let mut directories = Directories {
            places: places.collect(),
            // Without it, new lanes are found a second later.
            inotify: inotify::init(flags).ok(),
            users: HashMap::new(),
            lanes: 0,
        };
        directories.open();
        directories
    }

    /// Opens those that are not open: a directory may be made after the agent started.
    fn open(&mut self) {
        for place in &mut self.places {
            if place.state.is_ok() {
                continue;
            }
            place.state = open(&place.path);
            if let (Ok(_), Some(inotify)) = (&place.state, &self.inotify) {
                let events = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::ONLYDIR;
                let _ = inotify::add_watch(inotify, &place.path, events);
            }
        }
    }

    /// Whether something appeared since the last time.
    pub fn has_news(&self) -> bool {
        let Some(inotify) = &self.inotify else {
            return false;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        let mut has_news = false;
        // Bounded: a program that renames without end must not hold up the pass.
        for _ in 0..1000 {
            match reader.next() {
                Ok(_) => has_news = true,
                Err(_) => break,
            }
        }
        has_news
    }

    /// Opens the lanes that `is_known` does not know.
    pub fn look(&mut self, is_known: impl Fn(&LaneId) -> bool, now: Millis) -> Vec<Opened> {
        self.open();
        let mut opened = Vec::new();
        for at in 0..self.places.len() {
            self.look_in(at, &is_known, now, &mut opened);
        }
        opened
    }

    fn look_in(
        &mut self,
        at: usize,
        is_known: &impl Fn(&LaneId) -> bool,
        now: Millis,
        opened: &mut Vec<Opened>,
    ) {
        let place = &mut self.places[at];
        let Ok(directory) = &place.state else { return };
        // Again each time: a program may have been sweeping.
        directory.hold();
        let listing = match directory.list(2 * LANES_MAX) {
            Ok(listing) => listing,
            Err(error) => {
                place.state = Err(error.to_string());
                return;
            }
        };
        let names: HashSet<&str> = listing.found.iter().map(|found| &*found.name).collect();
        place.refused.retain(|name, _| names.contains(&**name));
        place.unfinished.retain(|name, _| names.contains(&**name));
        let mut complaints = 0;
        let limits = Limits {
            owner: place.only_owner(),
            ..Limits::default()
        };
        for found in &listing.found {
            if found.is_temporary {
                let seen = *place.unfinished.entry(found.name.clone()).or_insert(now);
                if now - seen > UNFINISHED_MS {
                    let _ = directory.remove(&found.name);
                }
                continue;
            }
            let id = id_of(&found.name);
            if id.is_some_and(|id| is_known(&id)) || place.refused.contains_key(&found.name) {
                continue;
            }
            let checked = directory.open_lane(&found.name, &limits);
            match checked.map_err(Trouble::Open).and_then(|file| {
                admit(&mut self.users, &mut self.lanes, &file)?;
                Ok(file)
            }) {
                Ok(file) => opened.push(Opened {
                    file,
                    directory: at,
                }),
                Err(Trouble::Open(OpenError::NotThere)) => {}
                // No descriptors left: the lane waits until some are free.
                Err(Trouble::Open(OpenError::Open(error))) if is_shortage(&error) => break,
                Err(trouble) => {
                    let reason = trouble.to_string();
                    complaints += 1;
                    if complaints <= COMPLAINTS_MAX {
                        tracing::warn!(lane = found.name, reason, "a lane is not read");
                    }
                    place.refused.insert(found.name.clone(), reason);
                }
            }
        }
    }

    /// The lane is not read any more.
    pub fn release(&mut self, file: &LaneFile) {
        self.lanes = self.lanes.saturating_sub(1);
        if let Some((lanes, bytes)) = self.users.get_mut(&file.owner()) {
            *lanes = lanes.saturating_sub(1);
            *bytes = bytes.saturating_sub(file.file_bytes());
            if *lanes == 0 {
                self.users.remove(&file.owner());
            }
        }
    }

    /// A lane that lies is not opened again.
    pub fn refuse(&mut self, directory: usize, file: &LaneFile, reason: String) {
        self.places[directory]
            .refused
            .insert(file.name().to_owned(), reason);
    }

    pub fn remove(&self, directory: usize, name: &str) -> io::Result<()> {
        match &self.places[directory].state {
            Ok(open) => open.remove(name),
            Err(reason) => Err(io::Error::other(reason.clone())),
        }
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().map(|place| place.path.as_path())
    }

    pub fn faults(&self) -> impl Iterator<Item = String> + '_ {
        self.places.iter().filter_map(|place| {
            let reason = place.state.as_ref().err()?;
            Some(format!("{}: {reason}", place.path.display()))
        })
    }

    /// How many files are not read, by the reason.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        let mut reasons = BTreeMap::new();
        for reason in self.places.iter().flat_map(|place| place.refused.values()) {
            *reasons.entry(reason.clone()).or_default() += 1;
        }
        reasons
    }
}

impl Watched {
    /// In a user's own directory nobody else's lanes are read.
    fn only_owner(&self) -> Option<u32> {
        let uid = rustix::process::geteuid().as_raw();
        (self.path == pegel_lane::user_directory(uid)).then_some(uid)
    }
}

#[derive(Debug)]
enum Trouble {
    Open(OpenError),
    Many(&'static str),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Open(error) => write!(f, "{error}"),
            Trouble::Many(what) => write!(f, "{what}"),
        }
    }
}

fn admit(
    users: &mut HashMap<u32, (usize, u64)>,
    all: &mut usize,
    file: &LaneFile,
) -> Result<(), Trouble> {
    if *all >= LANES_MAX {
        return Err(Trouble::Many("the node has too many lanes"));
    }
    let (lanes, bytes) = users.entry(file.owner()).or_default();
    if *lanes >= LANES_PER_USER_MAX {
        return Err(Trouble::Many("the user has too many lanes"));
    }
    if *bytes + file.file_bytes() > BYTES_PER_USER_MAX {
        return Err(Trouble::Many("the lanes of the user are too large"));
    }
    *lanes += 1;
    *bytes += file.file_bytes();
    *all += 1;
    Ok(())
}

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

/// The user's own directory is made if it is not there; one that somebody else made first is not used.
fn open(path: &Path) -> Result<Directory, String> {
    let uid = rustix::process::geteuid().as_raw();
    if path == pegel_lane::user_directory(uid) {
        make(path, uid, 0o700)?;
    } else if path == pegel_lane::guests_directory(uid) {
        // As the system's: everybody may put a lane there, nobody else can see or remove it.
        make(path, uid, 0o1733)?;
    }
    Directory::open(path).map_err(|error| error.to_string())
}

/// Makes a directory of our own below one where anybody could have been quicker.
fn make(path: &Path, uid: u32, mode: u32) -> Result<(), String> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error.to_string());
    }
    let found = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !found.is_dir() || found.uid() != uid {
        return Err(format!("it is not a directory of user {uid}"));
    }
    if found.mode() & 0o7777 & !mode != 0 {
        return Err(format!(
            "it is open to more users than it should be; set its mode to {mode:o}"
        ));
    }
    // It is ours, so that nobody else can have put a link in its place meanwhile: the directory above is sticky.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())
}
