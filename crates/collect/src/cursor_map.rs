//! A map for entries that a file lists by name in nearly the same order each time.
//!
//! Entries are kept in file order with a cursor. In the usual case the next line belongs to the
//! entry at the cursor, so a lookup is one comparison; only when the list changed are all entries
//! searched.

use crate::proc_parse::ProcParseError;

/// More names than any node has. Inserting a new one scans all others, so an unbounded list would
/// stall the sampler.
const NAMES_MAX: usize = 16_384;

/// Finds the entry of each line without hashing: tries the next entry first and searches the others
/// only if the list changed.
#[derive(Debug)]
pub(crate) struct CursorMap<T> {
    entries: Vec<CursorMapEntry<T>>,
    cursor: usize,
    pass: u64,
}

#[derive(Debug)]
struct CursorMapEntry<T> {
    key: Box<[u8]>,
    /// The pass in which it was last seen.
    last_pass: u64,
    value: T,
}

impl<T> Default for CursorMap<T> {
    fn default() -> CursorMap<T> {
        CursorMap::new()
    }
}

impl<T> CursorMap<T> {
    pub(crate) fn new() -> CursorMap<T> {
        CursorMap {
            entries: Vec::new(),
            cursor: 0,
            pass: 0,
        }
    }

    /// Starts a pass over the file.
    pub(crate) fn begin_pass(&mut self) {
        self.cursor = 0;
        self.pass += 1;
    }

    /// Returns the entry of `key`, created by `make` if it is new.
    #[inline]
    pub(crate) fn entry(
        &mut self,
        key: &[u8],
        make: impl FnOnce() -> Result<T, ProcParseError>,
    ) -> Result<&mut T, ProcParseError> {
        let is_next = self
            .entries
            .get(self.cursor)
            .is_some_and(|entry| *entry.key == *key);
        if !is_next {
            match self.entries.iter().position(|entry| *entry.key == *key) {
                Some(position) => self.cursor = position,
                None if self.entries.len() >= NAMES_MAX => {
                    return Err(ProcParseError::TooManyNames(NAMES_MAX));
                }
                // Inserted in file order, so that it is the next one from now on.
                None => {
                    let entry = CursorMapEntry {
                        key: key.into(),
                        last_pass: 0,
                        value: make()?,
                    };
                    self.entries
                        .insert(self.cursor.min(self.entries.len()), entry);
                }
            }
        }
        let entry = &mut self.entries[self.cursor];
        self.cursor += 1;
        entry.last_pass = self.pass;
        Ok(&mut entry.value)
    }

    /// Removes the entries that this pass did not see and passes them to `removed`.
    pub(crate) fn sweep(&mut self, mut removed: impl FnMut(T)) {
        let pass = self.pass;
        for entry in self.entries.extract_if(.., |entry| entry.last_pass != pass) {
            removed(entry.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(map: &mut CursorMap<String>, keys: &[&str]) -> (Vec<String>, Vec<String>) {
        let (mut made, mut gone) = (Vec::new(), Vec::new());
        map.begin_pass();
        for key in keys {
            let make = || {
                made.push((*key).to_owned());
                Ok((*key).to_owned())
            };
            let value = map.entry(key.as_bytes(), make).expect("room");
            assert_eq!(value, key, "each key leads to its own value");
        }
        map.sweep(|value| gone.push(value));
        (made, gone)
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn entries_come_go_and_move() {
        let mut map = CursorMap::new();
        assert_eq!(
            pass(&mut map, &["a", "b", "c"]),
            (texts(&["a", "b", "c"]), vec![])
        );
        assert_eq!(pass(&mut map, &["a", "b", "c"]), (vec![], vec![]));
        assert_eq!(
            pass(&mut map, &["a", "x", "c"]),
            (texts(&["x"]), texts(&["b"]))
        );
        assert_eq!(pass(&mut map, &["c", "a", "x"]), (vec![], vec![]));
        assert_eq!(pass(&mut map, &["x", "x"]), (vec![], texts(&["a", "c"])));
        assert_eq!(pass(&mut map, &[]), (vec![], texts(&["x"])));
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let mut map = CursorMap::new();
        map.begin_pass();
        let mut fill = |number: usize| {
            let name = number.to_string();
            map.entry(name.as_bytes(), || Ok(())).map(|_| ())
        };
        assert!((0..NAMES_MAX).all(|number| fill(number).is_ok()));
        assert_eq!(
            fill(NAMES_MAX),
            Err(ProcParseError::TooManyNames(NAMES_MAX))
        );
        assert_eq!(fill(7), Ok(()), "what is known stays known");
    }
}
