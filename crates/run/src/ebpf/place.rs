//! One watched program in the kernel: its slot in a set, and the table with its counts.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::programs::{GROWTH, ROW_WORDS, ROWS, SLOT_WORDS, STARTED, State};
use super::set::{self, Set};
use super::{EbpfError, kernel, refused};

/// All that was counted of one call: hits, bytes, nanoseconds, errors.
pub(super) type Row = [u64; ROW_WORDS];

#[derive(Debug)]
pub(super) struct Place {
    set: Arc<Set>,
    slot: u32,
    table: OwnedFd,
    processors: usize,
    /// How many tasks were put here; the kernel counts what they make.
    put: u64,
    /// What was in the table at the last reading.
    before: Vec<Row>,
}

/// How far the tasks of a place are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// The first one has become the program.
    pub has_started: bool,
    /// Tasks are left.
    pub is_alive: bool,
}

impl Place {
    /// The first slot of a set, whose table is in it already.
    pub(super) fn first(set: Arc<Set>, table: OwnedFd) -> Result<Place, EbpfError> {
        Place::with(set, 0, table)
    }

    /// Another slot.
    pub(super) fn another(set: Arc<Set>, slot: u32) -> Result<Place, EbpfError> {
        let table = set::create_table().map_err(refused("maps"))?;
        kernel::update_map(&set.maps.tables, slot, &table).map_err(refused("a table"))?;
        Place::with(set, slot, table)
    }

    fn with(set: Arc<Set>, slot: u32, table: OwnedFd) -> Result<Place, EbpfError> {
        // From here on, what was put under the number is removed again, whatever happens.
        let place = Place {
            set,
            slot,
            table,
            processors: possible_processors(),
            put: 0,
            before: vec![[0; ROW_WORDS]; ROWS],
        };
        let slots = &place.set.maps.slots;
        kernel::update(slots, slot, &[0; SLOT_WORDS]).map_err(refused("a value"))?;
        Ok(place)
    }

    pub(super) fn set(&self) -> &Set {
        &self.set
    }

    /// Counts a task from here on. False if it is counted already, because its maker is.
    pub(super) fn put(&mut self, task: BorrowedFd<'_>, state: State) -> io::Result<bool> {
        let value = state.of_task(self.slot);
        match kernel::insert_task(&self.set.maps.tasks, task, &value) {
            Ok(()) => {
                self.put += 1;
                Ok(true)
            }
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let mut words = [0; SLOT_WORDS];
        // A map of our own can be read.
        let _ = kernel::lookup(&self.set.maps.slots, self.slot, &mut words);
        Progress {
            has_started: words[STARTED] != 0,
            is_alive: words[GROWTH].wrapping_add(self.put).cast_signed() > 0,
        }
    }

    /// The rows that changed since the last reading, with all that is in them.
    pub(super) fn read(&mut self) -> Vec<(usize, Row)> {
        let mut table = vec![0; ROWS * ROW_WORDS * self.processors];
        if kernel::lookup(&self.table, 0, &mut table).is_err() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for (row, before) in self.before.iter_mut().enumerate() {
            let mut sum = [0_u64; ROW_WORDS];
            for processor in table.chunks_exact(ROWS * ROW_WORDS) {
                let words = processor.chunks_exact(ROW_WORDS).nth(row);
                for (sum, word) in sum.iter_mut().zip(words.unwrap_or_default()) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            if sum != *before {
                *before = sum;
                changed.push((row, sum));
            }
        }
        changed
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Tasks that outlive their watch find nothing under their number. An error means that it is gone already.
        let _ = kernel::delete(&self.set.maps.tables, self.slot);
        let _ = kernel::delete(&self.set.maps.slots, self.slot);
    }
}

/// How many processors there can be: the kernel keeps a table for each.
pub(super) fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next();
    last.and_then(|number| number.parse::<usize>().ok())
        .map_or(4096, |last| last + 1)
}
