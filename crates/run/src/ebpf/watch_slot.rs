//! One watched program in the kernel: its slot in a set, and the table with its counts.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::program_set::{self, ProgramSet};
use super::programs::{LIVE_TASKS, ROW_WORDS, ROWS, SLOT_WORDS, STARTED, TaskState};
use super::{EbpfError, bpf_syscall, kernel_refused};

/// All that was counted of one call: hits, bytes, nanoseconds, errors.
pub(super) type CallRow = [u64; ROW_WORDS];

#[derive(Debug)]
pub(super) struct WatchSlot {
    set: Arc<ProgramSet>,
    slot: u32,
    table: OwnedFd,
    processors: usize,
    /// How many tasks were put here; the kernel counts what they make.
    tasks_added: u64,
    /// What was in the table at the last reading.
    last_rows: Vec<CallRow>,
}

/// How far the tasks of a place are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TaskProgress {
    /// The first one has become the program.
    pub has_started: bool,
    /// Tasks are left.
    pub is_alive: bool,
}

impl WatchSlot {
    /// The first slot of a set, whose table is in it already.
    pub(super) fn first(set: Arc<ProgramSet>, table: OwnedFd) -> Result<WatchSlot, EbpfError> {
        WatchSlot::with(set, 0, table)
    }

    /// Another slot.
    pub(super) fn another(set: Arc<ProgramSet>, slot: u32) -> Result<WatchSlot, EbpfError> {
        let table = program_set::create_table().map_err(kernel_refused("maps"))?;
        bpf_syscall::update_map(&set.maps.tables, slot, &table)
            .map_err(kernel_refused("a table"))?;
        WatchSlot::with(set, slot, table)
    }

    fn with(set: Arc<ProgramSet>, slot: u32, table: OwnedFd) -> Result<WatchSlot, EbpfError> {
        // From here on, what was put under the number is removed again, whatever happens.
        let place = WatchSlot {
            set,
            slot,
            table,
            processors: possible_processors(),
            tasks_added: 0,
            last_rows: vec![[0; ROW_WORDS]; ROWS],
        };
        let slots = &place.set.maps.slots;
        bpf_syscall::update(slots, slot, &[0; SLOT_WORDS]).map_err(kernel_refused("a value"))?;
        Ok(place)
    }

    pub(super) fn set(&self) -> &ProgramSet {
        &self.set
    }

    /// Counts a task from here on. False if it is counted already, because its maker is.
    pub(super) fn add_task(&mut self, task: BorrowedFd<'_>, state: TaskState) -> io::Result<bool> {
        let value = state.task_value(self.slot);
        match bpf_syscall::insert_task(&self.set.maps.tasks, task, &value) {
            Ok(()) => {
                self.tasks_added += 1;
                Ok(true)
            }
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn progress(&self) -> TaskProgress {
        let mut words = [0; SLOT_WORDS];
        // A map of our own can be read.
        let _ = bpf_syscall::lookup(&self.set.maps.slots, self.slot, &mut words);
        TaskProgress {
            has_started: words[STARTED] != 0,
            is_alive: words[LIVE_TASKS]
                .wrapping_add(self.tasks_added)
                .cast_signed()
                > 0,
        }
    }

    /// The rows that changed since the last reading, with all that is in them.
    pub(super) fn read(&mut self) -> Vec<(usize, CallRow)> {
        let mut table = vec![0; ROWS * ROW_WORDS * self.processors];
        if bpf_syscall::lookup(&self.table, 0, &mut table).is_err() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for (row, before) in self.last_rows.iter_mut().enumerate() {
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

impl Drop for WatchSlot {
    fn drop(&mut self) {
        // Tasks that outlive their watch find nothing under their number. An error means that it is gone already.
        let _ = bpf_syscall::delete(&self.set.maps.tables, self.slot);
        let _ = bpf_syscall::delete(&self.set.maps.slots, self.slot);
    }
}

/// How many processors there can be: the kernel keeps a table for each.
pub(super) fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next();
    last.and_then(|number| number.parse::<usize>().ok())
        .map_or(4096, |last| last + 1)
}
