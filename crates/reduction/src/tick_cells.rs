//! The cells of one child at one tick, as columns: a gauge takes 12 bytes and a counter 20.
//!
//! A parent fills and keeps one for each child and tick, so that it consists of a few allocations,
//! whatever the number of series.

use crate::{Partial, SERIES_KEYS_MAX};

/// What a child contributes to a tick, by series key.
///
/// Keys are those of a [`crate::ReducedSeriesTable`]; others, from `SERIES_KEYS_MAX` on, are
/// ignored. Of two cells of the same kind for one series the last counts.
#[derive(Debug, Default)]
pub struct TickCells {
    gauges: CellColumn<f64>,
    /// The rate (NaN: none) and the total of each counter.
    counters: CellColumn<(f64, f64)>,
    partials: CellColumn<Partial>,
    /// The memory of the sketches.
    sketch_bytes: usize,
}

#[derive(Debug)]
struct CellColumn<T> {
    keys: Vec<u32>,
    cells: Vec<T>,
}

impl<T> Default for CellColumn<T> {
    fn default() -> CellColumn<T> {
        CellColumn::with_capacity(0)
    }
}

impl<T> CellColumn<T> {
    fn with_capacity(capacity: usize) -> CellColumn<T> {
        CellColumn {
            keys: Vec::with_capacity(capacity),
            cells: Vec::with_capacity(capacity),
        }
    }

    #[inline]
    fn push(&mut self, key: u32, cell: T) {
        if (key as usize) < SERIES_KEYS_MAX {
            self.keys.push(key);
            self.cells.push(cell);
        }
    }

    /// Sorts the cells by key and removes all but the last of each. Callers mostly add them in
    /// this order.
    fn sort(&mut self) {
        if self.keys.is_sorted_by(|a, b| a < b) {
            return;
        }
        let keys = std::mem::take(&mut self.keys).into_iter();
        let mut cells: Vec<(u32, T)> = keys.zip(std::mem::take(&mut self.cells)).collect();
        // The stable sort of the reversed cells puts the last of equal keys first.
        cells.reverse();
        cells.sort_by_key(|(key, _)| *key);
        cells.dedup_by_key(|(key, _)| *key);
        (self.keys, self.cells) = cells.into_iter().unzip();
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.keys.iter().copied().zip(&self.cells)
    }
}

impl TickCells {
    /// Reserves memory for so many gauges and counters.
    pub fn with_capacity(gauges: usize, counters: usize) -> TickCells {
        TickCells {
            gauges: CellColumn::with_capacity(gauges),
            counters: CellColumn::with_capacity(counters),
            partials: CellColumn::default(),
            sketch_bytes: 0,
        }
    }

    #[inline]
    pub fn add_gauge(&mut self, key: u32, value: f64) {
        self.gauges.push(key, value);
    }

    #[inline]
    pub fn add_counter(&mut self, key: u32, rate: Option<f64>, total: f64) {
        self.counters.push(key, (rate.unwrap_or(f64::NAN), total));
    }

    pub fn add_partial(&mut self, key: u32, partial: Partial) {
        self.sketch_bytes += partial.sketch.heap_bytes();
        self.partials.push(key, partial);
    }

    /// Returns the memory of the sketches.
    pub fn sketch_bytes(&self) -> usize {
        self.sketch_bytes
    }

    /// Returns the numbers of gauges and counters.
    pub fn counts(&self) -> (usize, usize) {
        (self.gauges.keys.len(), self.counters.keys.len())
    }

    pub(crate) fn sort(&mut self) {
        self.gauges.sort();
        self.counters.sort();
        self.partials.sort();
    }

    pub(crate) fn gauges(&self) -> impl Iterator<Item = (u32, &f64)> {
        self.gauges.iter()
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = (u32, &(f64, f64))> {
        self.counters.iter()
    }

    pub(crate) fn partials(&self) -> impl Iterator<Item = (u32, &Partial)> {
        self.partials.iter()
    }
}
