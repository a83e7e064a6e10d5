//! The slot of a watched program in a set, and the table with its counts.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::program_set::{self, ProgramSet};
use super::programs::{
    LIVE_TASKS, ROW_WORDS, ROWS, RunningCalls, SLOT_WORDS, STARTED, TABLE_WORDS, TaskState,
};
use super::{EbpfError, bpf_syscall, kernel_refused};
use crate::syscall_tally::CallCount;

/// A slot in use. Dropping it removes its entries from the kernel's maps.
#[derive(Debug)]
pub(super) struct WatchSlot {
    set: Arc<ProgramSet>,
    slot: u32,
    table: OwnedFd,
    processors: usize,
    /// The number of tasks added here; the kernel counts the tasks that they create.
    tasks_added: u64,
    /// The totals of the last reading.
    last_rows: Vec<CallCount>,
}

/// The progress of the tasks of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TaskProgress {
    /// The first task has executed the program.
    pub has_started: bool,
    /// Some task has not exited.
    pub is_alive: bool,
}

impl WatchSlot {
    /// Returns slot 0 of a set, whose table is installed already.
    pub(super) fn first(set: Arc<ProgramSet>, table: OwnedFd) -> Result<WatchSlot, EbpfError> {
        WatchSlot::with(set, 0, table)
    }

    /// Creates the table of another slot.
    pub(super) fn another(set: Arc<ProgramSet>, slot: u32) -> Result<WatchSlot, EbpfError> {
        let table = program_set::create_table().map_err(kernel_refused("maps"))?;
        bpf_syscall::update_map(&set.maps.tables, slot, &table)
            .map_err(kernel_refused("a table"))?;
        WatchSlot::with(set, slot, table)
    }

    fn with(set: Arc<ProgramSet>, slot: u32, table: OwnedFd) -> Result<WatchSlot, EbpfError> {
        // From here on, drop removes the slot's map entries on every path.
        let watch_slot = WatchSlot {
            set,
            slot,
            table,
            processors: possible_processors(),
            tasks_added: 0,
            last_rows: vec![CallCount::default(); ROWS],
        };
        let slots = &watch_slot.set.maps.slots;
        bpf_syscall::update(slots, slot, &[0; SLOT_WORDS]).map_err(kernel_refused("a value"))?;
        Ok(watch_slot)
    }

    pub(super) fn set(&self) -> &ProgramSet {
        &self.set
    }

    /// Starts counting a task. Returns false if it is counted already, because its creator is.
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
        // Cannot fail: the entry was inserted in `with`.
        let _ = bpf_syscall::lookup(&self.set.maps.slots, self.slot, &mut words);
        TaskProgress {
            has_started: words[STARTED] != 0,
            is_alive: words[LIVE_TASKS]
                .wrapping_add(self.tasks_added)
                .cast_signed()
                > 0,
        }
    }

    /// Returns the rows that changed since the last reading, with their totals. The time includes
    /// calls that are running, and never falls.
    pub(super) fn read(&mut self) -> Vec<(usize, CallCount)> {
        // Before the table is copied, see `RunningCalls::nanos`.
        let now = pegel_lane::monotonic_ns();
        let mut table = vec![0; TABLE_WORDS * self.processors];
        if bpf_syscall::lookup(&self.table, 0, &mut table).is_err() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for (row, before) in self.last_rows.iter_mut().enumerate() {
            let mut sum = [0_u64; ROW_WORDS];
            let mut running = RunningCalls::default();
            for processor in table.chunks_exact(TABLE_WORDS) {
                let words = processor.chunks_exact(ROW_WORDS).nth(row);
                for (sum, word) in sum.iter_mut().zip(words.unwrap_or_default()) {
                    *sum = sum.wrapping_add(*word);
                }
                running.add_word(processor[ROWS * ROW_WORDS + row]);
            }
            let [hits, bytes, nanos, errors] = sum;
            let total = CallCount {
                hits,
                bytes,
                nanos: before.nanos.max(nanos + running.nanos(now)),
                errors,
            };
            if total != *before {
                *before = total;
                changed.push((row, total));
            }
        }
        changed
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        // Tasks that outlive the watch find no entry and are not counted. An error means that the
        // entry is gone already.
        let _ = bpf_syscall::delete(&self.set.maps.tables, self.slot);
        let _ = bpf_syscall::delete(&self.set.maps.slots, self.slot);
    }
}

/// Returns the number of possible processors; the kernel keeps a table for each.
pub(super) fn possible_processors() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next();
    last.and_then(|number| number.parse::<usize>().ok())
        .map_or(4096, |last| last + 1)
}
