//! The series of all entries, and the permits that charge them to senders.

use std::sync::Arc;

use pegel_metric::Series;

use super::key_index::KeyIndex;
use crate::admission::{AdmittedSeries, SeriesPermit};
use crate::keyed_hasher::KeyedHasher;
use crate::senders::Sender;
use crate::slab::Slab;

/// The number of a series of this table. The series of one entry have consecutive numbers.
pub(crate) type SeriesHandle = u32;

/// The index of the permit that charges an entry's series to its sender.
pub(crate) type PermitIndex = u16;

#[derive(Debug)]
pub(crate) struct SeriesSlots {
    slots: Vec<Option<Arc<Series>>>,
    /// The first numbers of free rows, by their length.
    free: Vec<Vec<SeriesHandle>>,
    /// Finds series by their text: no two entries may have the same one.
    texts: KeyIndex,
    hasher: KeyedHasher,
    /// One for each sender: a permit for each series would be larger than the series itself.
    permits: Slab<SeriesPermit>,
}

impl SeriesSlots {
    pub(super) fn new(hasher: KeyedHasher) -> SeriesSlots {
        SeriesSlots {
            slots: Vec::new(),
            free: Vec::new(),
            texts: KeyIndex::new(),
            hasher,
            permits: Slab::default(),
        }
    }

    /// Finds the series with this text.
    pub(super) fn find(&self, text: &str) -> Option<SeriesHandle> {
        let is_same = |at| self.text(at) == Some(text);
        self.texts.find(self.hash(text), is_same)
    }

    pub(super) fn series(&self, at: SeriesHandle) -> Option<&Arc<Series>> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// Iterates over all series and their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (SeriesHandle, &Arc<Series>)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter_map(|(at, series)| Some((at, series.as_ref()?)))
    }

    /// Returns the sender to which an entry's series are charged.
    pub(super) fn sender(&self, permit: PermitIndex) -> &Arc<Sender> {
        self.permits[u32::from(permit)].sender()
    }

    pub(super) fn text(&self, at: SeriesHandle) -> Option<&str> {
        Some(self.series(at)?.text())
    }

    fn hash(&self, text: &str) -> u64 {
        self.hasher.hash(text.as_bytes())
    }

    /// Adds a row of series of one sender; none of them is present yet, and there is at least one.
    pub(super) fn add(&mut self, row: Vec<AdmittedSeries>) -> (SeriesHandle, PermitIndex) {
        let length = row.len();
        let free = self.free.get_mut(length).and_then(Vec::pop);
        let first = free.unwrap_or_else(|| {
            let first = self.slots.len();
            self.slots.resize(first + length, None);
            first as SeriesHandle
        });
        let mut permit = 0;
        for (at, one) in (first..).zip(row) {
            self.texts.insert(self.hash(one.series.text()), at);
            self.slots[at as usize] = Some(one.series);
            permit = self.add_permit(one.permit);
        }
        (first, permit)
    }

    fn add_permit(&mut self, permit: SeriesPermit) -> PermitIndex {
        let is_same = |known: &SeriesPermit| Arc::ptr_eq(known.sender(), permit.sender());
        let index = match self.permits.position(is_same) {
            Some(at) => {
                self.permits[at].merge(permit);
                at
            }
            None => self.permits.add(permit.into_shared()),
        };
        PermitIndex::try_from(index).expect("there are far fewer than 2^16 senders")
    }

    /// Removes a row. The numbers are not reused before [`SeriesSlots::reuse`].
    pub(super) fn remove(&mut self, first: SeriesHandle, length: usize, permit: PermitIndex) {
        let permit = u32::from(permit);
        for at in first..first + length as SeriesHandle {
            let Some(series) = self.slots[at as usize].take() else {
                continue;
            };
            self.texts.remove(self.hash(series.text()), at);
            if !self.permits[permit].release(&series) {
                self.permits.remove(permit);
            }
        }
    }

    /// Releases what was charged for the key of an entry.
    pub(super) fn release_key(&mut self, permit: PermitIndex, bytes: u64) {
        self.permits[u32::from(permit)].release_key(bytes);
    }

    pub(super) fn reuse(&mut self, first: SeriesHandle, length: usize) {
        if self.free.len() <= length {
            self.free.resize_with(length + 1, Vec::new);
        }
        self.free[length].push(first);
    }
}
