//! The series of entries: who pays for them, and which of them the pulse has not seen yet.

use std::collections::HashSet;

use crate::gate::Pass;

/// A series of this table, by number. All series of one entry have numbers in a row.
pub(crate) type Handle = u32;

#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Option<Seat>>,
    /// The first numbers of rows that are free, by their length.
    free: Vec<Vec<Handle>>,
    /// Hashes of the texts of all series: no two entries may have the same series.
    texts: HashSet<u64>,
}

#[derive(Debug)]
pub(crate) struct Seat {
    /// On its sender's account as long as it is here.
    pub _pass: Pass,
    pub text: u64,
}

impl Seats {
    pub fn is_taken(&self, text: u64) -> bool {
        self.texts.contains(&text)
    }

    pub fn add(&mut self, row: Vec<Seat>) -> Handle {
        let length = row.len();
        self.texts.extend(row.iter().map(|seat| seat.text));
        let free = self.free.get_mut(length).and_then(Vec::pop);
        let first = free.unwrap_or_else(|| {
            let first = self.seats.len();
            self.seats.resize_with(first + length, || None);
            first as Handle
        });
        for (at, seat) in row.into_iter().enumerate() {
            self.seats[first as usize + at] = Some(seat);
        }
        first
    }

    /// The numbers are not used again before [`Seats::reuse`].
    pub fn remove(&mut self, first: Handle, length: usize) {
        let first = first as usize;
        for seat in &mut self.seats[first..first + length] {
            if let Some(seat) = seat.take() {
                self.texts.remove(&seat.text);
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
