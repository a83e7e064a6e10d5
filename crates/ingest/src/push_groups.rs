//! Groups of pushed metrics, as Pushgateway keeps them.
//!
//! The values of a group stay current until the group is replaced or deleted, also over a restart:
//! each group has a file beside the store (`group_files.rs`), which is replaced before a push is
//! acknowledged. Every value is stored as a point when it is pushed, and again every minute, so
//! that queries find it. A group belongs to its sender: no user replaces or deletes that of
//! another.
//!
//! A sender other than the agent's user and root has at most a quarter of the groups and of their
//! memory, all such senders together three quarters, and each pays for what its pushes write.

mod group_files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pegel_metric::{DropReason, Input, MetricKind};
use pegel_supervisor::{RestartedThread, Supervisor};
use pegel_wire::{ParsedPoint, PointBatch};
use serde::{Deserialize, Serialize};

use crate::Ingest;
use crate::admission::cut_help;
use crate::point_batch::BatchPointError;
use crate::point_writer::{IncomingPoint, PointError};

/// How often values are stored again: queries look back five minutes.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The most groups, and the most memory of all of them.
const GROUPS_MAX: usize = 1000;
const BYTES_MAX: usize = 8 << 20;
/// The memory of a sample, and that of a label, besides their texts.
const SAMPLE_BYTES: usize = 96;
const LABEL_BYTES: usize = 48;
const LEVEL: u8 = 1;
const HELP: &str = "Pushed by a program.";
const PUSH_TIME: &str = "push_time_seconds";
const PUSH_TIME_HELP: &str = "Last time when a push changed this group.";

/// The labels of a group, sorted by name.
pub type GroupLabels = BTreeMap<String, String>;

pub use group_files::PUSH_GROUPS_DIR;

use group_files::{FileNumber, GroupFiles};

/// The result of a push.
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome {
    Stored,
    /// Some metrics were refused; the first with its reason.
    Refused(String),
    /// A limit on groups is reached; nothing was stored.
    TooMuch(String),
    /// The sender exceeds `limits.sender_bytes`; nothing was stored.
    TooOften,
}

/// All groups.
#[derive(Debug)]
pub struct PushGroups {
    ingest: Arc<Ingest>,
    files: GroupFiles,
    groups: Mutex<GroupMap>,
    /// Ends the wait of the thread.
    is_stopped: Mutex<bool>,
    wake: Condvar,
    supervisor: Supervisor,
    /// Started with the first group.
    thread: Mutex<Option<RestartedThread>>,
}

/// Groups by sender and labels.
type GroupMap = BTreeMap<GroupKey, PushGroup>;
type GroupKey = (String, GroupLabels);
/// The samples of a group by the names of their families.
type Families = BTreeMap<String, Vec<PushedSample>>;

/// A group.
#[derive(Debug, Clone)]
struct PushGroup {
    file: FileNumber,
    /// Its approximate memory.
    bytes: usize,
    families: Families,
}

impl PushGroup {
    fn new(file: FileNumber, (sender, labels): &GroupKey, families: Families) -> PushGroup {
        let samples = families.values().flatten().map(PushedSample::bytes);
        let labels = labels
            .iter()
            .map(|(key, value)| LABEL_BYTES + key.len() + value.len());
        PushGroup {
            file,
            bytes: sender.len() + labels.sum::<usize>() + samples.sum::<usize>(),
            families,
        }
    }
}

/// What groups take: those of one sender, or all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct GroupUsage {
    groups: usize,
    bytes: usize,
}

impl GroupUsage {
    fn of<'a>(groups: impl Iterator<Item = &'a PushGroup>) -> GroupUsage {
        groups.fold(GroupUsage::default(), GroupUsage::with)
    }

    fn with(self, group: &PushGroup) -> GroupUsage {
        GroupUsage {
            groups: self.groups + 1,
            bytes: self.bytes + group.bytes,
        }
    }

    /// Returns whether it fits into so many quarters of the limits.
    fn fits(self, quarters: usize) -> bool {
        self.groups <= GROUPS_MAX / 4 * quarters && self.bytes <= BYTES_MAX / 4 * quarters
    }
}

/// Returns the limit that a group, in place of an earlier one with its key, would exceed.
fn exceeded_limit(
    groups: &GroupMap,
    key: &GroupKey,
    new: &PushGroup,
    is_trusted: bool,
) -> Option<String> {
    let others = || groups.iter().filter(|(known, _)| *known != key);
    let all = GroupUsage::of(others().map(|(_, group)| group)).with(new);
    let own = others().filter(|((sender, _), _)| *sender == key.0);
    let own = GroupUsage::of(own.map(|(_, group)| group)).with(new);
    let (groups, bytes) = (GROUPS_MAX / 4, BYTES_MAX / 4);
    match is_trusted {
        false if !own.fits(1) => Some(format!(
            "more than {groups} groups, or more than {bytes} bytes in all groups of the user"
        )),
        false if !all.fits(3) => Some(format!(
            "more than {} groups, or more than {} bytes in all groups of all users",
            groups * 3,
            bytes * 3
        )),
        true if !all.fits(4) => Some(format!(
            "more than {GROUPS_MAX} groups, or more than {BYTES_MAX} bytes in all of them"
        )),
        _ => None,
    }
}

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
    /// Reads the groups that an earlier agent kept in `dir`.
    pub fn open(ingest: Arc<Ingest>, dir: &Path, supervisor: Supervisor) -> Arc<PushGroups> {
        let files = GroupFiles::new(dir);
        let groups = files.read();
        let has_groups = !groups.is_empty();
        let groups = Arc::new(PushGroups {
            ingest,
            files,
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
        let mut pushed = Families::new();
        let mut first_refusal = None;
        let account = self.ingest.sender(Input::Pushgateway, sender);
        let mut bytes = 0;
        for point in &batch.points {
            match point {
                Ok(point) if !point.value.is_finite() => {
                    self.ingest.count_refused(&account, DropReason::BadValue);
                    let refused = PointError::NotFinite;
                    first_refusal.get_or_insert(format!("{}: {refused}", point.name));
                }
                Ok(point) => {
                    let sample = PushedSample::new(point, batch, &labels);
                    // Stops early: a body can repeat a long help text many times.
                    bytes += sample.bytes();
                    if bytes > BYTES_MAX {
                        let message = format!("more than {BYTES_MAX} bytes in one group");
                        return Ok(PushOutcome::TooMuch(message));
                    }
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
        let new: Vec<PushedSample> = pushed.values().flatten().cloned().collect();
        let key = (sender.to_owned(), labels);
        let mut groups = self.groups.lock();
        let known = groups.get(&key);
        let mut families = match known {
            Some(known) if !replaces_all => known.families.clone(),
            _ => Families::new(),
        };
        families.extend(pushed);
        let last = groups.values().map(|group| group.file).max();
        let file = known.map_or_else(
            || last.map_or(1, |last| last.saturating_add(1)),
            |known| known.file,
        );
        let group = PushGroup::new(file, &key, families);
        if let Some(message) = exceeded_limit(&groups, &key, &group, account.is_trusted()) {
            return Ok(PushOutcome::TooMuch(message));
        }
        let text = group_files::to_text(&key, &group.families)?;
        if !account.try_charge(text.len() as u64) {
            return Ok(PushOutcome::TooOften);
        }
        self.files.write(file, &text)?;
        groups.insert(key.clone(), group);
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
        if let Some(group) = groups.get(&key) {
            self.files.remove(group.file)?;
            groups.remove(&key);
        }
        Ok(())
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
        for ((sender, labels), group) in &groups {
            let samples: Vec<PushedSample> = group.families.values().flatten().cloned().collect();
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
            help: match batch.help_of(point) {
                "" => HELP.to_owned(),
                help => cut_help(help).to_owned(),
            },
            value: point.value,
        }
    }

    /// Returns its approximate memory.
    fn bytes(&self) -> usize {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| LABEL_BYTES + key.len() + value.len());
        SAMPLE_BYTES + self.name.len() + self.help.len() + labels.sum::<usize>()
    }
}
