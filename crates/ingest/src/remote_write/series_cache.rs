//! Finds known series by a hash of their encoded labels.
//!
//! The hash has 128 bits and a random key, so that two different series never have the same one:
//! by chance it would take 10^15 series for a probability of one in a million, and a sender that
//! does not know the key cannot search for them. Texts are therefore not compared, and not kept
//! twice. The order of labels is that of the sender: two senders with different orders have two
//! entries for one series.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use pegel_metric::{Millis, Series};
use pegel_wire::remote_write::LabelsError;

use crate::admission::{AdmittedSeries, SeriesPermit};
use crate::keyed_hasher::KeyedHasher;

/// A series without samples for this long is released from its sender's account.
const UNUSED_MS: Millis = 10 * 60 * 1000;
/// Series that are loaded from memory together.
const SERIES_AHEAD: usize = 32;
/// The interval between searches for such series.
const SWEEP_MS: Millis = 60 * 1000;

/// The hash of the labels of a series, as they were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SeriesKey {
    low: u64,
    high: u64,
}

impl std::hash::Hash for SeriesKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low);
    }
}

/// Computes keys.
#[derive(Debug)]
pub(super) struct SeriesKeyHasher {
    low: KeyedHasher,
    high: KeyedHasher,
}

impl SeriesKeyHasher {
    pub(super) fn new() -> SeriesKeyHasher {
        SeriesKeyHasher {
            low: KeyedHasher::new(),
            high: KeyedHasher::new(),
        }
    }

    #[inline]
    pub(super) fn of_bytes(&self, labels: &[u8]) -> SeriesKey {
        SeriesKey {
            low: self.low.hash(labels),
            high: self.high.hash(labels),
        }
    }

    /// Returns the keys of the symbols of a request.
    pub(super) fn of_symbols(&self, symbols: &[&[u8]]) -> Vec<SeriesKey> {
        symbols.iter().map(|symbol| self.of_bytes(symbol)).collect()
    }

    /// Returns the key of labels that are references to symbols. Fails if a symbol does not exist.
    #[inline]
    pub(super) fn of_references(
        &self,
        references: &[u32],
        symbols: &[SeriesKey],
    ) -> Result<SeriesKey, LabelsError> {
        // Differs from every key of a text, even of one without references.
        let mut key = self.of_bytes(b"references");
        for reference in references {
            let symbol = symbols.get(*reference as usize);
            let symbol = symbol.ok_or(LabelsError::NoSymbol(*reference))?;
            key.low = self.low.combine(key.low, symbol.low);
            key.high = self.high.combine(key.high, symbol.high);
        }
        Ok(key)
    }
}

/// Passes on a key, which is a hash already.
#[derive(Debug, Default)]
pub(super) struct KeyPassthrough(u64);

impl Hasher for KeyPassthrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only for completeness: keys are written as numbers.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Admitted series, found by their keys.
///
/// Senders repeat their series in the same order, so that the next one is usually the neighbour of
/// the last: only otherwise the index, which is large and spread over memory, is searched.
#[derive(Debug, Default)]
pub(super) struct SeriesCache {
    index: HashMap<SeriesKey, usize, BuildHasherDefault<KeyPassthrough>>,
    entries: Vec<CachedSeries>,
    /// The place after that of the series that was found last.
    next: usize,
    last_swept: Millis,
}

#[derive(Debug)]
struct CachedSeries {
    key: SeriesKey,
    series: Arc<Series>,
    last_used: Millis,
    /// Boxed, because it is rarely used: entries that are looked up stay close together.
    _permit: Box<SeriesPermit>,
}

impl SeriesCache {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the place of a known series.
    #[inline]
    pub(super) fn find(&mut self, key: SeriesKey, now: Millis) -> Option<usize> {
        let is_next = |entry: &CachedSeries| entry.key == key;
        let place = if self.entries.get(self.next).is_some_and(is_next) {
            self.next
        } else {
            *self.index.get(&key)?
        };
        if place.is_multiple_of(SERIES_AHEAD) {
            self.load_series(place);
        }
        self.next = place + 1;
        self.entries[place].last_used = now;
        Some(place)
    }

    /// Reads the series at a place and those after it. The processor then loads them from memory at
    /// once, not one after the other when each is used.
    fn load_series(&self, place: usize) {
        let entries = self.entries[place..].iter().take(SERIES_AHEAD);
        let references = entries.map(|entry| Arc::strong_count(&entry.series));
        std::hint::black_box(references.sum::<usize>());
    }

    pub(super) fn series(&self, place: usize) -> &Arc<Series> {
        &self.entries[place].series
    }

    /// Adds a series; returns its place.
    pub(super) fn insert(
        &mut self,
        key: SeriesKey,
        admitted: AdmittedSeries,
        now: Millis,
    ) -> usize {
        let AdmittedSeries { series, permit, .. } = admitted;
        let place = self.entries.len();
        self.entries.push(CachedSeries {
            key,
            series,
            last_used: now,
            _permit: Box::new(permit),
        });
        self.index.insert(key, place);
        self.next = place + 1;
        place
    }

    pub(super) fn remove_unused(&mut self, now: Millis) {
        if (now - self.last_swept).abs() < SWEEP_MS {
            return;
        }
        self.last_swept = now;
        let before = self.entries.len();
        self.entries
            .retain(|entry| now - entry.last_used < UNUSED_MS);
        if self.entries.len() < before {
            self.index.clear();
            let places = self.entries.iter().zip(0..);
            self.index
                .extend(places.map(|(entry, place)| (entry.key, place)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_the_texts_and_their_order_not_on_their_numbers() {
        let hasher = SeriesKeyHasher::new();
        let symbols = hasher.of_symbols(&[b"", b"a", b"b", b"c"]);
        let other = hasher.of_symbols(&[b"", b"c", b"b", b"a"]);
        let key = |references: &[u32]| hasher.of_references(references, &symbols);
        assert_eq!(key(&[1, 2]), hasher.of_references(&[3, 2], &other));
        let keys = [&[][..], &[0], &[0, 0], &[1, 2], &[2, 1], &[1, 2, 0, 0]].map(key);
        for (at, key) in keys.iter().enumerate() {
            assert!(key.is_ok() && !keys[..at].contains(key), "{at}");
        }
        assert_eq!(key(&[1, 4]), Err(LabelsError::NoSymbol(4)));
        assert_ne!(key(&[]), Ok(hasher.of_bytes(b"")));
    }
}
