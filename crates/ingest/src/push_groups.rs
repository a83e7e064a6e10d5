//! Groups of pushed metrics, as Pushgateway keeps them.
//!
//! The values of a group stay current until the group is replaced or deleted, also over a restart:
//! the groups are in a file beside the store, which is replaced before a push is acknowledged.
//! Every value is stored as a point when it is pushed, and again every minute, so that queries find
//! it. A group belongs to its sender: no user replaces or deletes that of another.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pegel_metric::{DropReason, Input, MetricKind};
use pegel_supervisor::{RestartedThread, Supervisor};
use pegel_wire::{ParsedPoint, PointBatch};
use serde::{Deserialize, Serialize};

use crate::Ingest;
use crate::point_batch::BatchPointError;
use crate::point_writer::{IncomingPoint, PointError};

/// How often values are stored again: queries look back five minutes.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The most groups, and bytes of names and labels in all of them.
const GROUPS_MAX: usize = 1000;
const BYTES_MAX: usize = 8 << 20;
/// The file with the groups, beside the store.
const FILE: &str = "pushgateway.json";
/// The largest file that is read back.
const FILE_BYTES_MAX: u64 = 64 << 20;
const LEVEL: u8 = 1;
const HELP: &str = "Pushed by a program.";
const PUSH_TIME: &str = "push_time_seconds";
const PUSH_TIME_HELP: &str = "Last time when a push changed this group.";

/// The labels of a group, sorted by name.
pub type GroupLabels = BTreeMap<String, String>;

/// The result of a push.
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome {
    Stored,
    /// Some metrics were refused; the first with its reason.
    Refused(String),
    /// A limit on all groups is reached; nothing was stored.
    TooMuch(String),
}

/// All groups.
#[derive(Debug)]
pub struct PushGroups {
    ingest: Arc<Ingest>,
    file: PathBuf,
    groups: Mutex<GroupMap>,
    /// Ends the wait of the thread.
    is_stopped: Mutex<bool>,
    wake: Condvar,
    supervisor: Supervisor,
    /// Started with the first group.
    thread: Mutex<Option<RestartedThread>>,
}

/// Groups by sender and labels.
type GroupMap = BTreeMap<(String, GroupLabels), BTreeMap<String, Vec<PushedSample>>>;

/// A value of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PushedSample {
    name: String,
    /// Its own labels; those of the group replace them.
    labels: Vec<(String, String)>,
    kind: StoredKind,
    help: String,
    value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredKind {
    Counter,
    Gauge,
    Unknown,
}

/// One group in the file.
#[derive(Serialize, Deserialize)]
struct StoredGroup {
    sender: String,
    labels: GroupLabels,
    families: BTreeMap<String, Vec<PushedSample>>,
}

impl From<MetricKind> for StoredKind {
    fn from(kind: MetricKind) -> StoredKind {
        match kind {
            MetricKind::Counter => StoredKind::Counter,
            MetricKind::Gauge => StoredKind::Gauge,
            MetricKind::Unknown => StoredKind::Unknown,
        }
    }
}

impl From<StoredKind> for MetricKind {
    fn from(kind: StoredKind) -> MetricKind {
        match kind {
            StoredKind::Counter => MetricKind::Counter,
            StoredKind::Gauge => MetricKind::Gauge,
            StoredKind::Unknown => MetricKind::Unknown,
        }
    }
}

impl PushGroups {
    /// Reads the groups that an earlier agent kept in `dir`. A damaged file is ignored, with a
    /// message: the points are in the store.
    pub fn open(ingest: Arc<Ingest>, dir: &Path, supervisor: Supervisor) -> Arc<PushGroups> {
        let file = dir.join(FILE);
        let groups = read_groups(&file).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %file.display(), "cannot read pushed groups; starting without");
            GroupMap::new()
        });
        let has_groups = !groups.is_empty();
        let groups = Arc::new(PushGroups {
            ingest,
            file,
            groups: Mutex::new(groups),
            is_stopped: Mutex::new(false),
            wake: Condvar::new(),
            supervisor,
            thread: Mutex::new(None),
        });
        if has_groups {
            groups.start_thread();
        }
        groups
    }

    pub(crate) fn ingest(&self) -> &Arc<Ingest> {
        &self.ingest
    }

    /// Stores the metrics of a group. With `replaces_all`, its other metrics are removed.
    pub fn push(
        self: &Arc<PushGroups>,
        sender: &str,
        labels: GroupLabels,
        batch: &PointBatch<'_>,
        replaces_all: bool,
    ) -> io::Result<PushOutcome> {
        let mut pushed: BTreeMap<String, Vec<PushedSample>> = BTreeMap::new();
        let mut first_refusal = None;
        let account = self.ingest.sender(Input::Pushgateway, sender);
        for point in &batch.points {
            match point {
                Ok(point) if !point.value.is_finite() => {
                    self.ingest.count_refused(&account, DropReason::BadValue);
                    let refused = PointError::NotFinite;
                    first_refusal.get_or_insert(format!("{}: {refused}", point.name));
                }
                Ok(point) => {
                    let sample = PushedSample::new(point, batch, &labels);
                    pushed
                        .entry(point.family().to_owned())
                        .or_default()
                        .push(sample);
                }
                Err(fault) => {
                    let refused = BatchPointError::from(*fault);
                    self.ingest.count_refused(&account, refused.reason());
                    first_refusal.get_or_insert(refused.to_string());
                }
            }
        }
        let now = self.ingest.now();
        let time = PushedSample {
            name: PUSH_TIME.to_owned(),
            labels: Vec::new(),
            kind: StoredKind::Gauge,
            help: PUSH_TIME_HELP.to_owned(),
            value: now as f64 / 1000.0,
        };
        pushed.insert(PUSH_TIME.to_owned(), vec![time]);
        let key = (sender.to_owned(), labels);
        let mut groups = self.groups.lock();
        let mut changed = match groups.get(&key) {
            Some(known) if !replaces_all => known.clone(),
            _ => BTreeMap::new(),
        };
        let new: Vec<PushedSample> = pushed.values().flatten().cloned().collect();
        changed.extend(pushed);
        let before = groups.insert(key.clone(), changed);
        let too_much = groups.len() > GROUPS_MAX || size(&groups) > BYTES_MAX;
        let written = match too_much {
            true => Ok(()),
            false => write_groups(&self.file, &groups),
        };
        if too_much || written.is_err() {
            match before {
                Some(before) => groups.insert(key, before),
                None => groups.remove(&key),
            };
            written?;
            let message = format!(
                "more than {GROUPS_MAX} groups, or more than {BYTES_MAX} bytes in all of them"
            );
            return Ok(PushOutcome::TooMuch(message));
        }
        drop(groups);
        self.start_thread();
        let refused = self.store(sender, &key.1, &new)?;
        Ok(match first_refusal.or(refused) {
            Some(message) => PushOutcome::Refused(message),
            None => PushOutcome::Stored,
        })
    }

    /// Removes a group, if it exists.
    pub fn delete(&self, sender: &str, labels: &GroupLabels) -> io::Result<()> {
        let key = (sender.to_owned(), labels.clone());
        let mut groups = self.groups.lock();
        let Some(removed) = groups.remove(&key) else {
            return Ok(());
        };
        write_groups(&self.file, &groups).inspect_err(|_| {
            groups.insert(key, removed);
        })
    }

    /// Stores samples with the current time. Returns why the first of those that were refused was.
    fn store(
        &self,
        sender: &str,
        group: &GroupLabels,
        samples: &[PushedSample],
    ) -> io::Result<Option<String>> {
        let account = self.ingest.sender(Input::Pushgateway, sender);
        let labels: Vec<Vec<(&str, &str)>> = samples
            .iter()
            .map(|sample| {
                let own = sample.labels.iter().map(|(key, value)| (&**key, &**value));
                let of_group = group.iter().map(|(key, value)| (&**key, &**value));
                own.chain(of_group).collect()
            })
            .collect();
        let time = self.ingest.now();
        let offered: Vec<IncomingPoint<'_>> = samples
            .iter()
            .zip(&labels)
            .map(|(sample, labels)| IncomingPoint {
                name: &sample.name,
                labels,
                help: &sample.help,
                kind: sample.kind.into(),
                level: LEVEL,
                time,
                value: sample.value,
            })
            .collect();
        let result = self.ingest.store_points(&account, &offered);
        let result = result.map_err(io::Error::other)?;
        let first = result.refused.first();
        Ok(first.map(|(at, error)| format!("{}: {error}", offered[*at].name)))
    }

    /// Starts the thread that stores all values again at times, unless it runs.
    fn start_thread(self: &Arc<PushGroups>) {
        let mut thread = self.thread.lock();
        if thread.is_some() || *self.is_stopped.lock() {
            return;
        }
        let groups = Arc::downgrade(self);
        let started = self.supervisor.thread("pushgateway").restarted(move || {
            while let Some(groups) = groups.upgrade() {
                if !groups.wait() {
                    return;
                }
                groups.store_all();
            }
        });
        match started {
            Ok(started) => *thread = Some(started),
            Err(error) => tracing::warn!(%error, "cannot start the thread for pushed groups"),
        }
    }

    /// Waits for the next repetition. Returns false when the agent stops.
    fn wait(&self) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            self.wake.wait_for(&mut is_stopped, REPEAT_INTERVAL);
        }
        !*is_stopped
    }

    /// Stores the values of all groups again.
    fn store_all(&self) {
        let groups = self.groups.lock().clone();
        for ((sender, labels), families) in &groups {
            let samples: Vec<PushedSample> = families.values().flatten().cloned().collect();
            if let Err(error) = self.store(sender, labels, &samples) {
                // Counted by the store.
                tracing::debug!(%error, "cannot store pushed values again");
                return;
            }
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

impl PushedSample {
    /// Labels of the group replace those of the sample.
    fn new(point: &ParsedPoint<'_>, batch: &PointBatch<'_>, group: &GroupLabels) -> PushedSample {
        let labels = batch.labels()[batch.labels_of(point)].iter();
        let own = labels.filter(|(key, _)| !group.contains_key(&**key));
        PushedSample {
            name: point.name.to_string(),
            labels: own
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            kind: point.kind.into(),
            help: match &*point.help {
                "" => HELP.to_owned(),
                help => help.to_owned(),
            },
            value: point.value,
        }
    }

    fn size(&self) -> usize {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| key.len() + value.len() + 48);
        self.name.len() + self.help.len() + labels.sum::<usize>() + 96
    }
}

/// Returns the approximate memory of all groups.
fn size(groups: &GroupMap) -> usize {
    let samples = groups.values().flat_map(BTreeMap::values).flatten();
    samples.map(PushedSample::size).sum()
}

fn read_groups(file: &Path) -> io::Result<GroupMap> {
    let bytes = match pegel_plain_file::read_plain(file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(GroupMap::new()),
        bytes => bytes?,
    };
    let stored: Vec<StoredGroup> = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    let groups = stored.into_iter();
    Ok(groups
        .map(|group| ((group.sender, group.labels), group.families))
        .collect())
}

/// Replaces the file: temporary file, sync, rename, sync of the directory.
fn write_groups(file: &Path, groups: &GroupMap) -> io::Result<()> {
    let stored: Vec<StoredGroup> = groups
        .iter()
        .map(|((sender, labels), families)| StoredGroup {
            sender: sender.clone(),
            labels: labels.clone(),
            families: families.clone(),
        })
        .collect();
    let text = serde_json::to_vec(&stored).map_err(io::Error::other)?;
    let temporary = file.with_extension("tmp");
    let mut written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    written.write_all(&text)?;
    written.sync_data()?;
    fs::rename(&temporary, file)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    File::open(dir)?.sync_data()
}
