//! Marks and phases: annotations that programs and scripts set, distinguished by the label `kind`
//! in `custom`. A mark has a time, a phase a start and, once it is over, an end.
//!
//! Programs set them without knowing of each other. So a mark never replaces another one: it gets
//! the next free millisecond. A change with the `id` of an existing mark changes that one, wherever
//! it was placed. Marks expire with the samples of the store, and where there is no room, the
//! oldest mark of the same sender is removed.

use std::sync::atomic::{AtomicU64, Ordering};

use pegel_metric::Millis;
use serde::Serialize;

use super::{
    Annotation, AnnotationEditor, AnnotationIndex, AnnotationUpdate, Annotations, may_change,
};
use crate::error::OpentsdbError;

/// The label that makes an annotation a mark or a phase.
pub const KIND_LABEL: &str = "kind";
/// The label by which a client finds its own mark again.
pub const ID_LABEL: &str = "id";

/// The range in which a free millisecond is searched.
const PLACES_MAX: Millis = 1_000;
/// Expired marks are removed at most once in this time.
const EXPIRY_INTERVAL: Millis = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    Mark,
    Phase,
}

impl MarkKind {
    pub const ALL: [MarkKind; 2] = [MarkKind::Mark, MarkKind::Phase];

    pub fn as_str(self) -> &'static str {
        match self {
            MarkKind::Mark => "mark",
            MarkKind::Phase => "phase",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<MarkKind> {
        MarkKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The number of marks and phases, since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MarkCounts {
    pub stored: u64,
    /// Removed because they were older than the samples of the store.
    pub expired: u64,
    /// Removed to make room for others of the same sender.
    pub evicted: u64,
}

/// The counters behind [`MarkCounts`]: the sampler reads them without a lock.
#[derive(Debug, Default)]
pub(super) struct AtomicMarkCounts {
    stored: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
}

impl AtomicMarkCounts {
    pub(super) fn add_stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_evicted(&self, count: usize) {
        self.evicted.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn add_expired(&self, count: usize) {
        self.expired.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn read(&self) -> MarkCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MarkCounts {
            stored: of(&self.stored),
            expired: of(&self.expired),
            evicted: of(&self.evicted),
        }
    }
}

/// Selects the running phases that an end without a start may refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhaseFilter<'a> {
    pub name: &'a str,
    pub id: Option<&'a str>,
    /// The label `jobid`: jobs of one user may have phases of the same name.
    pub job: Option<&'a str>,
    pub started_until: Millis,
}

impl PhaseFilter<'_> {
    fn matches(&self, note: &Annotation) -> bool {
        note.mark_kind() == Some(MarkKind::Phase)
            && note.end().is_none()
            && note.description == self.name
            && self.id.is_none_or(|id| note.label(ID_LABEL) == Some(id))
            && note.label("jobid") == self.job
    }
}

impl Annotations {
    pub fn mark_counts(&self) -> MarkCounts {
        self.counts.read()
    }

    /// Returns the global annotations, marks and phases that overlap a time range, oldest first: at
    /// most `max`, the newest of them, and the number of others.
    pub fn overlapping(&self, start: Millis, end: Millis, max: usize) -> (Vec<Annotation>, usize) {
        let index = self.index.read();
        let until = (String::new(), end);
        let earlier = index.by_key.range(..=until).rev();
        let overlaps = |note: &&Annotation| match (note.end(), note.mark_kind()) {
            (None, Some(MarkKind::Phase)) => true,
            (None, _) => note.start() >= start,
            (Some(note_end), _) => note_end >= start,
        };
        let mut found = earlier.map(|(_, note)| note).filter(overlaps);
        let mut newest: Vec<Annotation> = found.by_ref().take(max).cloned().collect();
        newest.reverse();
        (newest, found.count())
    }

    /// Sets how long marks and phases are kept: as long as the samples around them.
    pub fn with_retention(mut self, retention: Millis) -> Annotations {
        self.retention = retention;
        self
    }

    /// Removes marks and phases that ended, or began without an end, before the retention time.
    pub fn expire_marks(&self, now: Millis) -> Result<(), OpentsdbError> {
        let before = now.saturating_sub(self.retention);
        let mut writer = self.writer()?;
        if before < writer.expired_before.saturating_add(EXPIRY_INTERVAL) {
            return Ok(());
        }
        writer.expired_before = before;
        let is_old = |note: &Annotation| note.end().unwrap_or_else(|| note.start()) < before;
        let is_expired = |note: &Annotation| note.mark_kind().is_some() && is_old(note);
        let expired = self.index.read().keys(|_, note| is_expired(note));
        self.remove_all(&mut writer, &expired)?;
        self.counts.add_expired(expired.len());
        Ok(())
    }
}

impl AnnotationIndex {
    /// Sets the start of a mark or a phase: that of the one with its id, that of the phase which it
    /// ends, or the next free millisecond.
    pub(super) fn place_mark(
        &self,
        change: &mut AnnotationUpdate,
        editor: AnnotationEditor<'_>,
    ) -> Result<(), OpentsdbError> {
        if let Some(filter) = change.ended_phases() {
            let start = self.find_running_phase(&filter, editor)?;
            change.set_start(start);
            return Ok(());
        }
        let (_, start) = change.key()?;
        let end = start.saturating_add(PLACES_MAX);
        let range = (String::new(), start)..(String::new(), end);
        let is_same = |note: &Annotation| {
            let id = note.label(ID_LABEL);
            id.is_some() && id == change.mark_id() && may_change(editor, note)
        };
        let mut free = start;
        for ((_, time), note) in self.by_key.range(range) {
            if is_same(note) {
                if *time != start {
                    change.set_start(*time);
                }
                return Ok(());
            }
            if *time == free {
                free += 1;
            }
        }
        if free >= end {
            let error = OpentsdbError::new(429, "too many marks at this time");
            return Err(error.with_details(format!("at most {PLACES_MAX} in one second")));
        }
        if free != start {
            change.set_start(free);
        }
        Ok(())
    }

    /// Returns the start of the latest running phase that matches.
    fn find_running_phase(
        &self,
        filter: &PhaseFilter<'_>,
        editor: AnnotationEditor<'_>,
    ) -> Result<Millis, OpentsdbError> {
        let place = |time: Millis| (String::new(), time);
        let until = filter.started_until;
        let is_meant = |note: &&Annotation| filter.matches(note) && may_change(editor, note);
        let earlier = self.by_key.range(..=place(until)).rev();
        // A start that got a later millisecond than its own may lie behind its end.
        let later = place(until + 1)..place(until.saturating_add(PLACES_MAX));
        let notes = earlier.chain(self.by_key.range(later));
        let found = notes.map(|(_, note)| note).find(is_meant);
        found.map(Annotation::start).ok_or_else(|| {
            let message = format!("no running phase {:?}", filter.name);
            OpentsdbError::new(404, message).with_details("it has no start, or it ended already")
        })
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    const T: Millis = 1_713_379_493_000;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    fn mark(text: &str, start: Millis, id: &str) -> AnnotationUpdate {
        AnnotationUpdate::of_mark(text, "", start, labels(&[("kind", "mark"), ("id", id)]))
    }

    fn phase(text: &str, start: Millis, more: &[(&str, &str)]) -> AnnotationUpdate {
        let more = [&[("kind", "phase")], more].concat();
        AnnotationUpdate::of_mark(text, "", start, labels(&more))
    }

    fn phase_end(text: &str, end: Millis, more: &[(&str, &str)]) -> AnnotationUpdate {
        let more = [&[("kind", "phase")], more].concat();
        AnnotationUpdate::of_phase_end(text, end, labels(&more))
    }

    fn open() -> (TempDir, Annotations) {
        let dir = TempDir::new();
        let notes = Annotations::open(dir.path()).expect("opens");
        (dir, notes)
    }

    fn put(notes: &Annotations, change: AnnotationUpdate, editor: Option<&str>) -> Annotation {
        notes
            .put(change, false, editor)
            .expect("stored")
            .expect("new")
    }

    #[test]
    fn marks_of_one_millisecond_are_kept_apart_and_found_by_their_id() {
        let (dir, notes) = open();
        let starts = |count: usize| -> Vec<Millis> {
            let ids = (0..count).map(|number| mark("x", T, &number.to_string()));
            ids.map(|change| put(&notes, change, None).start_time)
                .collect()
        };
        assert_eq!(starts(3), [T, T + 1, T + 2]);
        // The one at T + 1 is changed, although the client does not know that it was moved.
        let changed = put(&notes, mark("changed", T, "1"), None);
        assert_eq!(
            (changed.start_time, &*changed.description),
            (T + 1, "changed")
        );
        // Without an id, and for another user, it is another mark.
        let plain = AnnotationUpdate::of_mark("x", "", T, labels(&[("kind", "mark")]));
        assert_eq!(put(&notes, plain, None).start_time, T + 3);
        let other = put(&notes, mark("x", T, "1"), Some("uid 1001"));
        assert_eq!(other.start_time, T + 4);
        assert_eq!(notes.mark_counts().stored, 5);
        drop(notes);
        let notes = Annotations::open(dir.path()).expect("opens again");
        assert_eq!(notes.overlapping(T, T + 10, 100).0.len(), 5);
        for number in 5..PLACES_MAX {
            put(&notes, mark("x", T, &number.to_string()), None);
        }
        let refused = notes.put(mark("x", T, "one more"), false, None);
        assert_eq!(refused.expect_err("no place").status(), 429);
    }

    #[test]
    fn a_phase_is_ended_by_its_name_and_keeps_its_labels() {
        let (_dir, notes) = open();
        put(&notes, phase("solve", T, &[("pid", "7")]), None);
        put(&notes, phase("solve", T + 50, &[("jobid", "12")]), None);
        put(&notes, phase("solve", T + 90, &[]), Some("uid 1001"));
        let ended = put(
            &notes,
            phase_end("solve", T + 100, &[("note", "x")]),
            Some("uid 1001"),
        );
        assert_eq!((ended.start_time, ended.end_time), (T + 90, T + 100));
        let ended = put(
            &notes,
            phase_end("solve", T + 100, &[("jobid", "12")]),
            None,
        );
        assert_eq!((ended.start_time, ended.end_time), (T + 50, T + 100));
        let ended = put(&notes, phase_end("solve", T + 110, &[("note", "x")]), None);
        assert_eq!((ended.start_time, ended.end_time), (T, T + 110));
        assert_eq!(
            (ended.label("pid"), ended.label("note")),
            (Some("7"), Some("x"))
        );
        for missing in ["solve", "other"] {
            let refused = notes.put(phase_end(missing, T + 120, &[]), false, None);
            let error = refused.expect_err("none runs");
            assert_eq!(
                (error.status(), error.to_string().contains(missing)),
                (404, true)
            );
        }
    }

    #[test]
    fn a_phase_that_starts_and_ends_in_a_taken_millisecond_ends() {
        let (_dir, notes) = open();
        put(&notes, mark("first", T, ""), None);
        let id = [("id", "7-1")];
        let begun = put(&notes, phase("solve", T, &id), None);
        assert_eq!(begun.start_time, T + 1, "the first one has its millisecond");
        let ended = put(&notes, phase_end("solve", T, &id), None);
        assert_eq!((ended.start_time, ended.end_time), (T + 1, T + 1));
        // The same of a client that sends its start again.
        let whole =
            format!(r#"{{"startTime":{T},"endTime":{T},"custom":{{"kind":"phase","id":"7-2"}}}}"#);
        let whole = AnnotationUpdate::from_json(whole.as_bytes()).expect("valid");
        let ended = put(&notes, whole, None);
        assert_eq!((ended.start_time, ended.end_time), (T + 2, T + 2));
        // Of two with the same name, the one that started before the end.
        put(&notes, phase("twice", T + 100, &[]), None);
        put(&notes, phase("twice", T + 300, &[]), None);
        let ended = put(&notes, phase_end("twice", T + 200, &[]), None);
        assert_eq!((ended.start_time, ended.end_time), (T + 100, T + 200));
    }

    #[test]
    fn an_overlap_includes_phases_that_began_earlier() {
        let (_dir, notes) = open();
        put(&notes, phase("running", T - 9_000, &[]), None);
        let over = put(&notes, phase("over", T - 8_000, &[]), None);
        put(&notes, phase_end("over", T - 7_000, &[]), None);
        put(&notes, mark("early", T - 1, ""), None);
        put(&notes, mark("inside", T, ""), None);
        put(&notes, mark("late", T + 11, ""), None);
        let texts = |start, end, max| {
            let (found, others) = notes.overlapping(start, end, max);
            let texts = found.into_iter().map(|note| note.description);
            (texts.collect::<Vec<_>>(), others)
        };
        assert_eq!(
            texts(T, T + 10, 9),
            (vec!["running".into(), "inside".into()], 0)
        );
        assert_eq!(texts(T, T + 10, 1), (vec!["inside".into()], 1));
        assert_eq!(
            texts(over.start_time + 500, T - 2, 9).0,
            ["running", "over"]
        );
    }

    #[test]
    fn old_marks_expire_and_other_annotations_do_not() {
        let (dir, notes) = open();
        let notes = notes.with_retention(1_000);
        put(&notes, mark("old", T - 100, ""), None);
        put(&notes, phase("long", T - 90, &[]), None);
        put(&notes, phase_end("long", T + 5, &[]), None);
        put(&notes, mark("new", T, ""), None);
        let plain = AnnotationUpdate::from_json(br#"{"startTime":5,"description":"plain"}"#);
        put(&notes, plain.expect("valid"), None);
        notes.expire_marks(T + 1_000).expect("written");
        assert_eq!(notes.mark_counts().expired, 1);
        drop(notes);
        let notes = Annotations::open(dir.path()).expect("opens again");
        let left = notes.overlapping(0, Millis::MAX, 9).0;
        let left: Vec<&str> = left.iter().map(|note| &*note.description).collect();
        assert_eq!(left, ["plain", "long", "new"]);
    }

    #[test]
    fn the_oldest_mark_of_the_same_sender_makes_room() {
        let (_dir, notes) = open();
        let text = "x".repeat(15_000);
        let put_long = |at: Millis, kind: &str, editor| {
            let change = AnnotationUpdate::of_mark(&text, "", T + at, labels(&[("kind", kind)]));
            notes.put(change, false, editor)
        };
        put_long(0, "mark", Some("uid 1002")).expect("stored");
        put_long(1, "plain", Some("uid 1001")).expect("stored");
        for at in 2..400 {
            put_long(at, "mark", Some("uid 1001")).expect("stored");
        }
        let counts = notes.mark_counts();
        assert!((100..300).contains(&counts.evicted), "{counts:?}");
        let left = notes.overlapping(0, Millis::MAX, 1_000).0;
        let starts: Vec<Millis> = left.iter().map(|note| note.start_time - T).collect();
        assert_eq!(starts[..2], [0, 1], "those of others and plain ones stay");
        assert!(starts[2] > 100 && *starts.last().expect("some") == 399);
        let refused = put_long(400, "mark", Some("uid 1003"));
        assert_eq!(refused.expect_err("has none to remove").status(), 413);
    }
}
