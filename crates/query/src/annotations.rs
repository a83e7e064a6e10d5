//! Annotations: notes about a time, for one series or for all, kept in memory and in a small file
//! beside the store. A change is synced to the file before it is acknowledged. The agent's user and
//! root change all annotations; other users create annotations and change their own.
//!
//! Marks and phases of programs (`mark.rs`) are annotations too, with rules of their own: they
//! never replace each other, they expire with the store's samples, and the oldest ones make room.
//!
//! The index is locked only while memory is read or changed, never while the file is: readers do
//! not wait for the disk. Changes are serialized by a lock of their own, which is held until the
//! change is synced; then readers see it.

mod annotation;
mod annotation_file;
mod mark;
mod read_only;
mod update;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use pegel_metric::Millis;

pub use annotation::Annotation;
use annotation_file::{AnnotationFile, lines_of};
use mark::AtomicMarkCounts;
pub use mark::{ID_LABEL, KIND_LABEL, MarkCounts, MarkKind};
pub use update::{AnnotationBulkDelete, AnnotationUpdate};

use crate::error::OpentsdbError;

/// The maximum number of annotations, and their maximum total size.
const ANNOTATIONS_MAX: usize = 10_000;
const ANNOTATIONS_BYTES_MAX: usize = 4 << 20;
/// How long a change waits for those before it. A disk that hangs for longer refuses it.
const CHANGE_WAIT_MAX: Duration = Duration::from_secs(3);

/// The client that changes annotations: a sender, or `None` for the agent's user and root.
pub type AnnotationEditor<'a> = Option<&'a str>;

/// Series and time; the series is empty for global annotations.
type AnnotationKey = (String, Millis);

/// All annotations of a store.
#[derive(Debug)]
pub struct Annotations {
    /// Readers lock it. Changed only while `writer` is locked.
    index: RwLock<AnnotationIndex>,
    /// Locked during a change, while the file is written and synced.
    writer: Mutex<AnnotationWriter>,
    counts: AtomicMarkCounts,
    /// How long marks and phases are kept.
    retention: Millis,
}

#[derive(Debug, Default)]
struct AnnotationIndex {
    by_key: BTreeMap<AnnotationKey, Annotation>,
    /// Their approximate size in the file.
    bytes: usize,
}

#[derive(Debug)]
struct AnnotationWriter {
    /// `None` if the file could not be read; it is never overwritten then.
    file: Option<AnnotationFile>,
    /// Marks before this time were removed.
    expired_before: Millis,
}

/// A change that is permitted and within the limits.
struct PlannedChange {
    key: AnnotationKey,
    new: Annotation,
    /// Marks that make room for it.
    evicted: Vec<AnnotationKey>,
}

impl Annotations {
    /// Reads the annotations in the directory of the store.
    pub fn open(dir: &Path) -> io::Result<Annotations> {
        let (file, notes) = AnnotationFile::open(dir)?;
        Ok(Annotations::new(Some(file), notes))
    }

    /// Like [`open`](Annotations::open); if reading fails, the result is empty and rejects new
    /// annotations.
    pub fn open_or_empty(dir: &Path) -> Annotations {
        Annotations::open(dir).unwrap_or_else(|error| {
            tracing::error!(dir = %dir.display(), %error, "cannot read the annotations");
            Annotations::new(None, BTreeMap::new())
        })
    }

    fn new(
        file: Option<AnnotationFile>,
        by_key: BTreeMap<AnnotationKey, Annotation>,
    ) -> Annotations {
        let bytes = by_key.values().map(Annotation::bytes).sum();
        Annotations {
            index: RwLock::new(AnnotationIndex { by_key, bytes }),
            writer: Mutex::new(AnnotationWriter {
                file,
                expired_before: 0,
            }),
            counts: AtomicMarkCounts::default(),
            retention: Millis::MAX,
        }
    }

    /// Waits until no other change is in progress.
    fn writer(&self) -> Result<MutexGuard<'_, AnnotationWriter>, OpentsdbError> {
        self.writer.try_lock_for(CHANGE_WAIT_MAX).ok_or_else(|| {
            OpentsdbError::new(503, "cannot store the annotation")
                .with_details("the disk does not respond; retry later")
        })
    }

    pub fn is_empty(&self) -> bool {
        self.index.read().by_key.is_empty()
    }

    pub fn get(&self, tsuid: &str, start: Millis) -> Option<Annotation> {
        let key = (tsuid.to_owned(), start);
        self.index.read().by_key.get(&key).cloned()
    }

    /// Returns the annotations of one series, or the global ones if `tsuid` is empty, that start
    /// between two times.
    pub fn for_series(&self, tsuid: &str, start: Millis, end: Millis) -> Vec<Annotation> {
        if start > end {
            return Vec::new();
        }
        let key = |time| (tsuid.to_owned(), time);
        let index = self.index.read();
        let found = index.by_key.range(key(start)..=key(end));
        found.map(|(_, note)| note.clone()).collect()
    }

    /// Returns the annotations of several series, in the order of their times.
    pub fn for_several_series(
        &self,
        tsuids: &[String],
        start: Millis,
        end: Millis,
    ) -> Vec<Annotation> {
        if self.is_empty() {
            return Vec::new();
        }
        let found = tsuids.iter().flat_map(|id| self.for_series(id, start, end));
        let mut found: Vec<Annotation> = found.collect();
        found.sort_by_key(Annotation::start);
        found
    }

    /// Creates or changes an annotation. With `replaces`, fields missing in the change are reset.
    /// Returns `None` if nothing changed.
    pub fn put(
        &self,
        change: AnnotationUpdate,
        replaces: bool,
        editor: AnnotationEditor<'_>,
    ) -> Result<Option<Annotation>, OpentsdbError> {
        let mut writer = self.writer()?;
        let planned = self.index.read().plan(change, replaces, editor)?;
        let Some(PlannedChange { key, new, evicted }) = planned else {
            return Ok(None);
        };
        let written = writer.file()?.change(&evicted, Some(&new));
        written.map_err(write_error)?;
        let mut index = self.index.write();
        index.remove_all(&evicted);
        let is_new = index.insert(key, new.clone());
        drop(index);
        self.counts.add_evicted(evicted.len());
        if is_new && new.mark_kind().is_some() {
            self.counts.add_stored();
        }
        self.compact(&mut writer);
        Ok(Some(new))
    }

    /// Deletes an annotation; returns false if there was none.
    pub fn delete(
        &self,
        tsuid: &str,
        start: Millis,
        editor: AnnotationEditor<'_>,
    ) -> Result<bool, OpentsdbError> {
        let key = (tsuid.to_owned(), start);
        let mut writer = self.writer()?;
        match self.index.read().by_key.get(&key) {
            None => return Ok(false),
            Some(old) if !may_change(editor, old) => return Err(not_permitted()),
            Some(_) => {}
        }
        self.remove_all(&mut writer, &[key])?;
        Ok(true)
    }

    /// Deletes the annotations of some series that start between two times and that the editor may
    /// change, and returns their number.
    pub fn delete_range(
        &self,
        bulk: &AnnotationBulkDelete,
        editor: AnnotationEditor<'_>,
    ) -> Result<usize, OpentsdbError> {
        let tsuids: HashSet<&str> = bulk.tsuids.iter().map(String::as_str).collect();
        let is_meant = |(tsuid, start): &AnnotationKey| {
            let of_series = tsuids.contains(tsuid.as_str());
            let of_all = bulk.global && tsuid.is_empty();
            (of_series || of_all) && (bulk.start..=bulk.end).contains(start)
        };
        let mut writer = self.writer()?;
        let is_deleted =
            |key: &AnnotationKey, note: &Annotation| is_meant(key) && may_change(editor, note);
        let keys = self.index.read().keys(is_deleted);
        self.remove_all(&mut writer, &keys)?;
        Ok(keys.len())
    }

    /// Removes annotations from the file, with one write, and then from the index.
    fn remove_all(
        &self,
        writer: &mut AnnotationWriter,
        keys: &[AnnotationKey],
    ) -> Result<(), OpentsdbError> {
        if keys.is_empty() {
            return Ok(());
        }
        writer.file()?.change(keys, None).map_err(write_error)?;
        self.index.write().remove_all(keys);
        self.compact(writer);
        Ok(())
    }

    /// Rewrites the file if most of it is obsolete. If that fails, the old file stays valid.
    fn compact(&self, writer: &mut AnnotationWriter) {
        let Some(file) = &mut writer.file else {
            return;
        };
        let index = self.index.read();
        if !file.needs_compaction(index.bytes) {
            return;
        }
        let lines = lines_of(index.by_key.values());
        drop(index);
        if let Err(error) = lines.and_then(|lines| file.rewrite(&lines)) {
            tracing::warn!(%error, "cannot compact the annotation file");
        }
    }
}

impl AnnotationIndex {
    /// Returns the result of a change; `None` if it changes nothing.
    fn plan(
        &self,
        mut change: AnnotationUpdate,
        replaces: bool,
        editor: AnnotationEditor<'_>,
    ) -> Result<Option<PlannedChange>, OpentsdbError> {
        if change.mark_kind().is_some() {
            self.place_mark(&mut change, editor)?;
        }
        let key = change.key()?;
        let old = self.by_key.get(&key);
        if old.is_some_and(|old| !may_change(editor, old)) {
            return Err(not_permitted());
        }
        let mut new = change.apply(old.filter(|_| !replaces))?;
        new.writer = match old {
            Some(old) => old.writer.clone(),
            None => editor.map(str::to_owned),
        };
        if old == Some(&new) {
            return Ok(None);
        }
        let evicted = self.marks_to_evict(&key, &new, editor)?;
        Ok(Some(PlannedChange { key, new, evicted }))
    }

    /// Returns the marks that make room for an annotation, in place of the one that has its key:
    /// for a mark, the oldest ones of its sender. Fails if they do not suffice.
    fn marks_to_evict(
        &self,
        key: &AnnotationKey,
        new: &Annotation,
        editor: AnnotationEditor<'_>,
    ) -> Result<Vec<AnnotationKey>, OpentsdbError> {
        // A quarter is reserved for the agent's user and root.
        let share = |max: usize| if editor.is_some() { max - max / 4 } else { max };
        let old = self.by_key.get(key);
        let mut bytes = self.bytes - old.map_or(0, Annotation::bytes) + new.bytes();
        let is_mark = new.mark_kind().is_some();
        let mut candidates = { self.by_key.iter() }.filter(|(other, note)| {
            is_mark && note.mark_kind().is_some() && note.writer == new.writer && *other != key
        });
        let mut evicted = Vec::new();
        while bytes > share(ANNOTATIONS_BYTES_MAX)
            || old.is_none() && self.by_key.len() >= share(ANNOTATIONS_MAX) + evicted.len()
        {
            let Some((key, note)) = candidates.next() else {
                let error = OpentsdbError::too_large("the limit on annotations is reached");
                return Err(error.with_details("delete old ones: DELETE /api/annotation/bulk"));
            };
            bytes -= note.bytes();
            evicted.push(key.clone());
        }
        Ok(evicted)
    }

    /// Returns the keys of the annotations that match.
    fn keys(&self, matches: impl Fn(&AnnotationKey, &Annotation) -> bool) -> Vec<AnnotationKey> {
        let found = self.by_key.iter().filter(|(key, note)| matches(key, note));
        found.map(|(key, _)| key.clone()).collect()
    }

    /// Returns whether no annotation had this key.
    fn insert(&mut self, key: AnnotationKey, new: Annotation) -> bool {
        self.bytes += new.bytes();
        let old = self.by_key.insert(key, new);
        self.bytes -= old.as_ref().map_or(0, Annotation::bytes);
        old.is_none()
    }

    fn remove_all(&mut self, keys: &[AnnotationKey]) {
        for key in keys {
            if let Some(old) = self.by_key.remove(key) {
                self.bytes -= old.bytes();
            }
        }
    }
}

impl AnnotationWriter {
    fn file(&mut self) -> Result<&mut AnnotationFile, OpentsdbError> {
        self.file.as_mut().ok_or_else(|| {
            OpentsdbError::new(503, "cannot store the annotation")
                .with_details("the existing annotations cannot be read; see the agent's log")
        })
    }
}

fn may_change(editor: AnnotationEditor<'_>, note: &Annotation) -> bool {
    editor.is_none_or(|editor| note.writer.as_deref() == Some(editor))
}

fn not_permitted() -> OpentsdbError {
    OpentsdbError::new(403, "the annotation was created by another user")
        .with_details("only that user, the agent's user and root may change it")
}

fn write_error(error: io::Error) -> OpentsdbError {
    tracing::error!(%error, "cannot write an annotation");
    OpentsdbError::new(503, "cannot store the annotation").with_details(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;
    use pegel_testkit::{BlockedFile, TempDir, eventually};

    fn change(json: &str) -> AnnotationUpdate {
        AnnotationUpdate::from_json(json.as_bytes()).expect("valid")
    }

    #[test]
    fn they_are_made_changed_and_deleted_and_survive_a_restart() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        let made = change(
            r#"{"startTime":"1369141261","tsuid":"0a","description":"d","notes":"n","custom":{"owner":"jdoe"}}"#,
        );
        let note = notes
            .put(made.clone(), false, None)
            .expect("stored")
            .expect("new");
        assert_eq!(
            serde_json::to_string(&note).expect("JSON"),
            r#"{"tsuid":"0A","description":"d","notes":"n","custom":{"owner":"jdoe"},"endTime":0,"startTime":1369141261}"#
        );
        assert_eq!(
            notes.put(made, false, None).expect("read"),
            None,
            "nothing changes"
        );
        let more = notes
            .put(
                change(r#"{"startTime":1369141261,"tsuid":"0A","endTime":1369141300}"#),
                false,
                None,
            )
            .expect("stored")
            .expect("changed");
        assert_eq!(
            (&*more.description, more.end_time),
            ("d", 1_369_141_300),
            "merged"
        );
        notes
            .put(
                change(r#"{"startTime":1369141262,"description":"all"}"#),
                false,
                None,
            )
            .expect("stored");
        drop(notes);

        let notes = Annotations::open(dir.path()).expect("opens again");
        assert_eq!(notes.get("0A", 1_369_141_261_000), Some(more));
        assert_eq!(notes.for_series("", 0, Millis::MAX).len(), 1);
        assert_eq!(notes.for_series("", 1_369_141_262_001, Millis::MAX), []);
        assert_eq!(notes.for_series("0A", 5, 4), []);
        let replaced = notes
            .put(
                change(r#"{"startTime":1369141261,"tsuid":"0A","notes":"only"}"#),
                true,
                None,
            )
            .expect("stored")
            .expect("changed");
        assert_eq!(
            (&*replaced.description, replaced.custom),
            ("", None),
            "replaced"
        );
        assert!(
            notes
                .delete("0A", 1_369_141_261_000, None)
                .expect("deleted")
        );
        assert!(!notes.delete("0A", 1_369_141_261_000, None).expect("gone"));
        drop(notes);
        let notes = Annotations::open(dir.path()).expect("opens again");
        assert_eq!(notes.get("0A", 1_369_141_261_000), None);
        assert!(!notes.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_written_over() {
        let dir = TempDir::new();
        std::fs::create_dir(dir.join("annotations.jsonl")).expect("in its place");
        let notes = Annotations::open_or_empty(dir.path());
        assert!(notes.is_empty());
        let problem = notes
            .put(change(r#"{"startTime":1}"#), false, None)
            .expect_err("no file");
        assert_eq!(problem.status(), 503);
    }

    #[test]
    fn many_are_deleted_at_once() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        for second in 1..=10 {
            for id in ["", "0A", "0B"] {
                let json = format!(r#"{{"startTime":{second},"tsuid":"{id}","description":"x"}}"#);
                notes.put(change(&json), false, None).expect("stored");
            }
        }
        let bulk = |tsuids: &[&str], global, start, end| AnnotationBulkDelete {
            tsuids: tsuids.iter().map(|id| (*id).to_owned()).collect(),
            global,
            start,
            end,
        };
        assert_eq!(
            notes
                .delete_range(&bulk(&["0A"], false, 2_000, 4_000), None)
                .expect("done"),
            3
        );
        assert_eq!(
            notes
                .delete_range(&bulk(&[], true, 0, 5_000), None)
                .expect("done"),
            5
        );
        assert_eq!(
            notes
                .delete_range(&bulk(&[], false, 0, 5_000), None)
                .expect("done"),
            0
        );
        let left = ["", "0A", "0B"].map(|id| notes.for_series(id, 0, Millis::MAX).len());
        assert_eq!(left, [5, 7, 10]);
    }

    #[test]
    fn room_is_bounded_and_the_file_does_not_grow_with_changes() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        let long = "x".repeat(15_000);
        let put = |second: usize, text: &str| {
            let json = format!(r#"{{"startTime":{second},"description":"{text}"}}"#);
            notes.put(change(&json), false, None)
        };
        let mut stored = 0;
        while put(stored + 1, &long).is_ok() {
            stored += 1;
        }
        assert!((200..400).contains(&stored), "{stored}");
        for round in 0..300 {
            put(1, &format!("{round}{}", &long[..14_000])).expect("in place of the old one");
        }
        let bytes = std::fs::metadata(dir.join("annotations.jsonl"))
            .expect("a file")
            .len();
        assert!(bytes < 3 * ANNOTATIONS_BYTES_MAX as u64, "{bytes}");
    }

    #[test]
    fn a_user_changes_only_annotations_of_its_own() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        let at = |second: u32| change(&format!(r#"{{"startTime":{second},"notes":"x"}}"#));
        let (ann, eve) = (Some("uid 1001"), Some("uid 1002"));
        notes.put(at(1), false, None).expect("stored");
        notes.put(at(2), false, ann).expect("stored");
        notes.put(at(3), false, eve).expect("stored");
        drop(notes);
        let notes = Annotations::open(dir.path()).expect("opens again");
        let all = AnnotationBulkDelete {
            tsuids: Vec::new(),
            global: true,
            start: 0,
            end: Millis::MAX,
        };
        for second in [1, 2] {
            let status = |result: Result<_, OpentsdbError>| result.map_err(|error| error.status());
            let new = change(&format!(r#"{{"startTime":{second},"notes":"y"}}"#));
            for replaces in [false, true] {
                let put = notes.put(new.clone(), replaces, eve).map(drop);
                assert_eq!(status(put), Err(403));
            }
            let deleted = notes.delete("", i64::from(second) * 1000, eve).map(drop);
            assert_eq!(status(deleted), Err(403));
        }
        assert_eq!(notes.delete_range(&all, eve).expect("done"), 1);
        let json = r#"{"startTime":2,"notes":"of the owner"}"#;
        notes.put(change(json), true, None).expect("stored");
        assert!(notes.delete("", 2_000, ann).expect("still its own"));
        assert_eq!(notes.delete_range(&all, None).expect("done"), 1);
    }

    #[test]
    fn users_leave_room_to_the_agents_user() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        let put = |second: usize, editor| {
            let text = "x".repeat(15_000);
            let json = format!(r#"{{"startTime":{second},"description":"{text}"}}"#);
            notes.put(change(&json), false, editor)
        };
        let full = (1..).find(|second| put(*second, Some("uid 1001")).is_err());
        put(full.expect("a limit"), None).expect("the rest");
    }

    #[test]
    fn readers_and_the_sampler_do_not_wait_while_the_file_hangs() {
        let dir = TempDir::new();
        let notes = Arc::new(Annotations::open(dir.path()).expect("opens"));
        let mut file = BlockedFile::replace(dir.join("annotations.jsonl"));
        let put = |notes: &Annotations, second: u32| {
            let json = format!(r#"{{"startTime":{second},"description":"x"}}"#);
            notes.put(change(&json), false, None).map(drop)
        };
        let writer = {
            let notes = notes.clone();
            thread::spawn(move || put(&notes, 1))
        };
        eventually("a change is written", || {
            notes.writer.is_locked().then_some(()).ok_or("not yet")
        });
        let (read, answered) = mpsc::channel();
        let reader = {
            let notes = notes.clone();
            thread::spawn(move || {
                let counts = notes.mark_counts();
                let lists = [
                    notes.for_series("", 0, Millis::MAX),
                    notes.in_range(0, Millis::MAX),
                    notes.overlapping(0, Millis::MAX, 9).0,
                ];
                let _ = read.send((counts, notes.get("", 1_000), lists.concat()));
            })
        };
        let seen = answered.recv_timeout(Duration::from_secs(20));
        let refused = put(&notes, 2);
        file.resume();
        let written = writer.join().expect("no panic");
        reader.join().expect("no panic");
        let nothing = (MarkCounts::default(), None, Vec::new());
        assert_eq!(seen, Ok(nothing), "a reader waited, or saw too much");
        let refused = refused.expect_err("another change is in progress");
        assert_eq!(refused.status(), 503);
        let details = refused.details().unwrap_or_default();
        assert!(details.contains("does not respond"), "{details}");
        // The sync of a pipe fails: what was not acknowledged is not shown.
        assert_eq!(written.map_err(|error| error.status()), Err(503));
        assert!(notes.is_empty());
    }

    #[test]
    fn a_bulk_deletion_is_one_write() {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        for second in 1..=3 {
            let json = format!(r#"{{"startTime":{second},"description":"x"}}"#);
            notes.put(change(&json), false, None).expect("stored");
        }
        drop(notes);
        let notes = Annotations::open(dir.path()).expect("opens again");
        let mut file = BlockedFile::replace(dir.join("annotations.jsonl"));
        let all = AnnotationBulkDelete {
            tsuids: Vec::new(),
            global: true,
            start: 0,
            end: Millis::MAX,
        };
        let deleting = thread::spawn(move || {
            // Fails with the first sync.
            let deleted = notes
                .delete_range(&all, None)
                .map_err(|error| error.status());
            (deleted, notes.for_series("", 0, Millis::MAX).len())
        });
        file.resume();
        let (deleted, left) = deleting.join().expect("no panic");
        assert_eq!((deleted, left), (Err(503), 3), "all or nothing");
        let written = file.written();
        let lines = written
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        assert_eq!(lines.count(), 3, "before the first sync");
    }
}
