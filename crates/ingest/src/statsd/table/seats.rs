//! The series of entries, and who pays for them.

use std::sync::Arc;

use pegel_metric::Series;

use super::hash::Secret;
use super::index::Index;
use super::slab::Slab;
use crate::gate::{Admitted, Pass};
use crate::senders::Sender;

/// A series of this table, by number. All series of one entry have numbers in a row.
pub(crate) type Handle = u32;

/// Who pays for the series of an entry.
pub(crate) type Payer = u16;

#[derive(Debug)]
pub(crate) struct Seats {
    seats: Vec<Option<Arc<Series>>>,
    /// The first numbers of rows that are free, by their length.
    free: Vec<Vec<Handle>>,
    /// Finds series by their text: no two entries may have the same one.
    texts: Index,
    secret: Secret,
    /// One for each sender: a pass for each series would take more than the series itself.
    payers: Slab<Pass>,
}

impl Seats {
    pub fn new(secret: Secret) -> Seats {
        Seats {
            seats: Vec::new(),
            free: Vec::new(),
            texts: Index::new(),
            secret,
            payers: Slab::default(),
        }
    }

    /// Finds the series with this text.
    pub fn find(&self, text: &str) -> Option<Handle> {
        let is_same = |at| self.text(at) == Some(text);
        self.texts.find(self.hash(text), is_same)
    }

    pub fn series(&self, at: Handle) -> Option<&Arc<Series>> {
        self.seats.get(at as usize)?.as_ref()
    }

    /// Iterates over all series and their numbers.
    pub fn all(&self) -> impl Iterator<Item = (Handle, &Arc<Series>)> {
        let numbered = (0..).zip(&self.seats);
        numbered.filter_map(|(at, series)| Some((at, series.as_ref()?)))
    }

    /// Returns the sender to which an entry's series are charged.
    pub fn sender(&self, payer: Payer) -> &Arc<Sender> {
        self.payers[u32::from(payer)].sender()
    }

    pub fn text(&self, at: Handle) -> Option<&str> {
        Some(self.series(at)?.text())
    }

    fn hash(&self, text: &str) -> u64 {
        self.secret.hash(text.as_bytes())
    }

    /// Seats a row of series of one sender; none of them is taken, and there is at least one.
    pub fn add(&mut self, row: Vec<Admitted>) -> (Handle, Payer) {
        let length = row.len();
        let free = self.free.get_mut(length).and_then(Vec::pop);
        let first = free.unwrap_or_else(|| {
            let first = self.seats.len();
            self.seats.resize(first + length, None);
            first as Handle
        });
        let mut payer = 0;
        for (at, one) in (first..).zip(row) {
            self.texts.insert(self.hash(one.series.text()), at);
            self.seats[at as usize] = Some(one.series);
            payer = self.charge(one.pass);
        }
        (first, payer)
    }

    fn charge(&mut self, pass: Pass) -> Payer {
        let is_same = |payer: &Pass| Arc::ptr_eq(payer.sender(), pass.sender());
        let payer = match self.payers.position(is_same) {
            Some(at) => {
                self.payers[at].join(pass);
                at
            }
            None => self.payers.add(pass.for_many()),
        };
        Payer::try_from(payer).expect("there are far fewer accounts of senders")
    }

    /// The numbers are not used again before [`Seats::reuse`].
    pub fn remove(&mut self, first: Handle, length: usize, payer: Payer) {
        let payer = u32::from(payer);
        for at in first..first + length as Handle {
            let Some(series) = self.seats[at as usize].take() else {
                continue;
            };
            self.texts.remove(self.hash(series.text()), at);
            if !self.payers[payer].give_back(&series) {
                self.payers.remove(payer);
            }
        }
    }

    pub fn reuse(&mut self, first: Handle, length: usize) {
        if self.free.len() <= length {
            self.free.resize_with(length + 1, Vec::new);
        }
        self.free[length].push(first);
    }
}
