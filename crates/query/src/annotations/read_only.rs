//! Annotations of several nodes, for reading.

use std::collections::BTreeMap;

use pegel_metric::Millis;

use super::{Annotation, Annotations, MarkKind};

impl Annotations {
    /// Returns annotations that cannot be changed. Of several with one series and time, the later
    /// ones are found at the next milliseconds.
    pub fn read_only(list: impl IntoIterator<Item = Annotation>) -> Annotations {
        let mut by_key = BTreeMap::new();
        for note in list {
            let mut key = (note.tsuid.clone(), note.start());
            while by_key.contains_key(&key) {
                key.1 += 1;
            }
            by_key.insert(key, note);
        }
        Annotations::new(None, by_key)
    }

    /// Returns all annotations, of series and global ones, that overlap a range of time.
    pub fn in_range(&self, start: Millis, end: Millis) -> Vec<Annotation> {
        let overlaps = |note: &&Annotation| {
            let is_open = note.end_time <= 0 && note.mark_kind() == Some(MarkKind::Phase);
            let last = note.end().unwrap_or_else(|| note.start());
            note.start() <= end && (is_open || last >= start)
        };
        let index = self.index.read();
        index.by_key.values().filter(overlaps).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(tsuid: &str, start_time: i64, end_time: i64, description: &str) -> Annotation {
        let json = serde_json::json!({
            "tsuid": tsuid, "startTime": start_time, "endTime": end_time, "description": description,
        });
        serde_json::from_value(json).expect("an annotation")
    }

    #[test]
    fn annotations_of_one_time_are_all_kept() {
        let notes = Annotations::read_only([
            note("", 100, 0, "a"),
            note("", 100, 0, "b"),
            note("AB", 200, 300, "c"),
        ]);
        assert_eq!(notes.for_series("", 100_000, 100_001).len(), 2);
        let texts = |start, end| -> Vec<String> {
            let found = notes.in_range(start, end).into_iter();
            found.map(|note| note.description).collect()
        };
        assert_eq!(texts(0, 150_000), ["a", "b"]);
        assert_eq!(texts(250_000, 400_000), ["c"]);
        let change = crate::AnnotationUpdate::from_json(br#"{"startTime":5}"#).expect("valid");
        assert!(notes.put(change, true, None).is_err());
    }
}
