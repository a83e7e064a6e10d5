//! The BPF programs and their data.
//!
//! A watched task has a value in task storage: its current call and when that began, whether it is
//! counted, and the slot of its watcher. A new task inherits the slot of the task that created it.
//! Each slot has a table of counts per processor, so that programs count without locks or atomics;
//! readers add the tables up.
//!
//! A second part of the table has one word for each call, from which readers get the time of the
//! calls that are running, without looking at the tasks: the number of running calls and the sum of
//! their start times ([`RunningCalls`]). Both are in one word, which changes with one store: a
//! reader never sees one without the other. At the end of a call this word is changed before the
//! time is added, and it is behind the rows, so that a reader that copies the table upwards never
//! has a call both as running and as completed.

use std::os::fd::{AsRawFd, OwnedFd};

use super::CallTiming;
use super::assembler::{
    Assembler, JumpCondition, JumpLabel, KernelHelper, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10,
};
use crate::syscall_names;

/// The number of words of a task's value.
pub(super) const TASK_WORDS: usize = 4;
const SINCE: i16 = 0;
const NUMBER: i16 = 8;
const STATE: i16 = 16;
const SLOT: i16 = 24;

/// Whether the calls of a task are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum TaskState {
    Counted = 0,
    /// Counted from the next call on: the current one began earlier.
    FromNextCall = 1,
    /// Counted from its exec on.
    AwaitsExec = 2,
    /// No longer counted: it executed a privileged program.
    Excluded = 3,
}

impl TaskState {
    const fn number(self) -> i32 {
        self as i32
    }

    /// Returns the initial value of a task in a slot.
    pub(super) fn task_value(self, slot: u32) -> [u64; TASK_WORDS] {
        [0, 0, self as u64, u64::from(slot)]
    }
}

/// The maximum number of slots in use. A slot's number is never reused, because a task may outlive
/// its watcher.
pub(super) const SLOTS_MAX: u32 = 1024;

/// The number of rows of a table, one per system call number.
pub(super) const ROWS: usize = 512;
/// The row of all calls with larger numbers.
pub(super) const ROW_LARGE: usize = 510;
/// The row of all calls of 32-bit programs.
pub(super) const ROW_COMPAT: usize = 511;
/// The number of words of a row.
pub(super) const ROW_WORDS: usize = 4;
/// The number of words of a table, for each processor: the rows, then the words of running calls.
pub(super) const TABLE_WORDS: usize = ROWS * ROW_WORDS + ROWS;
/// The byte offset of the words of running calls.
const RUNNING: i16 = (ROWS * ROW_WORDS * 8) as i16;
/// Start times are in units of 2^22 ns (4.2 ms), so that the sum for 16,384 calls fits.
const START_UNIT_BITS: i32 = 22;
/// The number of running calls is above the sum of their start times.
const RUNNING_COUNT_BITS: i32 = 48;
const HITS: i16 = 0;
const BYTES: i16 = 8;
const NANOS: i16 = 16;
const ERRORS: i16 = 24;

/// The number of words of a slot, shared by all processors.
pub(super) const SLOT_WORDS: usize = 2;
/// Index: tasks created by watched tasks, minus watched tasks that exited.
pub(super) const LIVE_TASKS: usize = 0;
/// Index: whether the program has started.
pub(super) const STARTED: usize = 1;
/// Returns the byte offset of a word of a slot.
const fn byte_offset(word: usize) -> i16 {
    (8 * word) as i16
}

/// The running calls of one number: the sum of the words of all processors. A call may have been
/// started on one processor and completed on another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RunningCalls(u64);

impl RunningCalls {
    /// The largest plausible number of running calls; more means that the sum has overflowed.
    const CALLS_MAX: i64 = 1 << 14;

    pub(super) fn add_word(&mut self, word: u64) {
        self.0 = self.0.wrapping_add(word);
    }

    /// Returns the time since the start of all running calls, rounded down. `now` must have been
    /// read before the words: a call that is not among the running ones then counts as zero.
    pub(super) fn nanos(self, now: u64) -> u64 {
        let sum_bits = 64 - RUNNING_COUNT_BITS.cast_unsigned();
        // The sum is signed: the start of a call may be missing in a copy that has its end.
        let sum = (self.0 << sum_bits).cast_signed() >> sum_bits;
        let count = (self.0.wrapping_sub(sum.cast_unsigned())).cast_signed() >> RUNNING_COUNT_BITS;
        if !(1..=RunningCalls::CALLS_MAX).contains(&count) {
            return 0;
        }
        let now = (now >> START_UNIT_BITS).cast_signed();
        // One unit less for each: both times were rounded down.
        let units = count * (now - 1) - sum;
        u64::try_from(units).map_or(0, |units| units << START_UNIT_BITS)
    }
}

/// The position of `linux_binprm.secureexec`, which is set for a program that gains privileges.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecureBit {
    pub byte: i16,
    pub mask: i32,
}

/// The descriptors of the maps that the programs use.
#[derive(Debug)]
pub(super) struct BpfMaps {
    pub tasks: OwnedFd,
    /// Maps a slot to its per-processor table.
    pub tables: OwnedFd,
    pub slots: OwnedFd,
}

const END: JumpLabel = JumpLabel(0);
const COUNT: JumpLabel = JumpLabel(1);
const FAILED: JumpLabel = JumpLabel(2);
const ROW: JumpLabel = JumpLabel(3);
const LARGE: JumpLabel = JumpLabel(4);

impl BpfMaps {
    /// Loads the value of the current task into R7; jumps to `END` if it has none.
    fn current_task(&self, a: &mut Assembler) {
        a.call(KernelHelper::CurrentTask);
        a.load_map(R1, self.tasks.as_raw_fd());
        a.copy(R2, R0);
        a.set(R3, 0);
        a.set(R4, 0);
        a.call(KernelHelper::TaskStorageGet);
        a.jump(JumpCondition::Equal, R0, 0, END);
        a.copy(R7, R0);
    }

    /// Loads into R0 the address of the table, and limits the call number in R8 to its rows. Uses
    /// the label `ROW`.
    fn table(&self, a: &mut Assembler) {
        self.slot_key(a);
        a.load_map(R1, self.tables.as_raw_fd());
        a.call(KernelHelper::MapLookup);
        a.jump(JumpCondition::Equal, R0, 0, END);
        a.copy(R1, R0);
        a.store_number_32(R10, -4, 0);
        a.copy(R2, R10);
        a.add_number(R2, -4);
        a.call(KernelHelper::MapLookup);
        a.jump(JumpCondition::Equal, R0, 0, END);
        // This bound lets the verifier prove that the row is within the table.
        a.jump(JumpCondition::Below, R8, ROWS as i32, ROW);
        a.set(R8, ROW_LARGE as i32);
        a.bind_label(ROW);
    }

    /// Loads into R0 the address of the row of the call number in R8. Uses the label `ROW`.
    fn row(&self, a: &mut Assembler) {
        self.table(a);
        to_row(a);
    }

    /// Adds the call that the task began, at the time in its value, to the running ones.
    fn add_running(&self, a: &mut Assembler) {
        a.load(R8, R7, NUMBER);
        self.table(a);
        a.load(R9, R7, SINCE);
        change_running(a, Assembler::add);
    }

    /// Ends the call that began at the time in R9 and whose number is in R8: removes it from the
    /// running ones and adds its time. Then R0 is the address of its row.
    fn end_call(&self, a: &mut Assembler) {
        const NOW: i16 = -16;
        a.call(KernelHelper::Nanoseconds);
        a.store(R10, NOW, R0);
        self.table(a);
        change_running(a, Assembler::subtract);
        to_row(a);
        a.load(R2, R10, NOW);
        a.subtract(R2, R9);
        add_to_row(a, NANOS, Some(R2));
    }

    /// Loads the address of the current task's slot number into R2.
    fn slot_key(&self, a: &mut Assembler) {
        a.load(R1, R7, SLOT);
        a.store_32(R10, -4, R1);
        a.copy(R2, R10);
        a.add_number(R2, -4);
    }

    /// Loads the address of the current task's slot into R0; jumps to `END` if it has none.
    fn slot(&self, a: &mut Assembler) {
        self.slot_key(a);
        a.load_map(R1, self.slots.as_raw_fd());
        a.call(KernelHelper::MapLookup);
        a.jump(JumpCondition::Equal, R0, 0, END);
    }

    /// Program for `sys_enter(registers, number)`: stores the call's number and start time.
    pub(super) fn on_syscall_enter(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        skip_uncounted(&mut a);
        a.store_number(R7, STATE, TaskState::Counted.number());
        a.load(R8, R6, 8);
        self.clamp_number(&mut a);
        a.store(R7, NUMBER, R8);
        for name in ["exit", "exit_group"] {
            if let Some(number) = syscall_names::syscall_number(name) {
                a.jump(JumpCondition::Equal, R8, number.cast_signed(), COUNT);
            }
        }
        a.call(KernelHelper::Nanoseconds);
        a.store(R7, SINCE, R0);
        self.add_running(&mut a);
        a.jump_always(END);
        // Calls that do not return are counted at their start.
        a.bind_label(COUNT);
        a.store_number(R7, SINCE, 0);
        self.row(&mut a);
        add_to_row(&mut a, HITS, None);
        finish(a)
    }

    /// Replaces the number in R8 by that of a shared row if it is too large or belongs to a 32-bit
    /// program.
    fn clamp_number(&self, a: &mut Assembler) {
        a.jump(JumpCondition::Below, R8, ROW_LARGE as i32, LARGE);
        a.set(R8, ROW_LARGE as i32);
        a.bind_label(LARGE);
        if cfg!(target_arch = "x86_64") {
            const CODE_SEGMENT: i16 = 136;
            const CODE_SEGMENT_32: i32 = 0x23;
            const NATIVE: JumpLabel = JumpLabel(5);
            a.load(R1, R6, 0);
            a.load(R1, R1, CODE_SEGMENT);
            a.jump(JumpCondition::NotEqual, R1, CODE_SEGMENT_32, NATIVE);
            a.set(R8, ROW_COMPAT as i32);
            a.bind_label(NATIVE);
        }
    }

    /// Program for `sys_exit(registers, result)`: counts a call whose start was seen.
    pub(super) fn on_syscall_exit(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        // A new task exits a call that it did not enter.
        a.load(R9, R7, SINCE);
        a.jump(JumpCondition::Equal, R9, 0, END);
        a.store_number(R7, SINCE, 0);
        a.load(R8, R7, NUMBER);
        self.end_call(&mut a);
        self.count_result(a)
    }

    /// Program for `sys_exit` without times: reads the call's number from the registers, so that
    /// `sys_enter` needs no program, at half the cost.
    pub(super) fn on_syscall_exit_untimed(&self) -> Vec<u64> {
        const NUMBER_IN_REGISTERS: i16 = if cfg!(target_arch = "aarch64") {
            280
        } else {
            120
        };
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        skip_uncounted(&mut a);
        a.jump(JumpCondition::Equal, R1, TaskState::Counted.number(), COUNT);
        a.store_number(R7, STATE, TaskState::Counted.number());
        a.jump_always(END);
        a.bind_label(COUNT);
        a.load(R1, R6, 0);
        a.load_32(R8, R1, NUMBER_IN_REGISTERS);
        self.clamp_number(&mut a);
        self.row(&mut a);
        self.count_result(a)
    }

    /// Adds the result of the call to the row in R0, and finishes the program.
    fn count_result(&self, mut a: Assembler) -> Vec<u64> {
        add_to_row(&mut a, HITS, None);
        a.load(R2, R6, 8);
        a.jump(JumpCondition::AboveOrEqual, R2, -4095, FAILED);
        add_to_row(&mut a, BYTES, Some(R2));
        a.jump_always(END);
        a.bind_label(FAILED);
        add_to_row(&mut a, ERRORS, None);
        finish(a)
    }

    /// Program for `task_newtask(task, flags)`: a new task, before it runs, inherits the slot of
    /// its creator.
    pub(super) fn on_new_task(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.load(R6, R1, 0);
        self.current_task(&mut a);
        skip_uncounted(&mut a);
        a.load_map(R1, self.tasks.as_raw_fd());
        a.copy(R2, R6);
        a.set(R3, 0);
        // BPF_LOCAL_STORAGE_GET_F_CREATE.
        a.set(R4, 1);
        a.call(KernelHelper::TaskStorageGet);
        a.jump(JumpCondition::Equal, R0, 0, END);
        a.load(R1, R7, SLOT);
        a.store(R0, SLOT, R1);
        // It will exit a call that it did not enter.
        a.store_number(R0, STATE, TaskState::FromNextCall.number());
        self.slot(&mut a);
        a.set(R2, 1);
        a.add_atomically(R0, byte_offset(LIVE_TASKS), R2);
        finish(a)
    }

    /// Program for `sched_process_exec(task, pid, binprm)`: starts counting, with the exec as the
    /// first call. A program that gained privileges is excluded, because its caller may not observe
    /// it.
    pub(super) fn on_exec(&self, secure: SecureBit, time: CallTiming) -> Vec<u64> {
        const ORDINARY: JumpLabel = JumpLabel(6);
        let mut a = Assembler::default();
        a.load(R6, R1, 16);
        self.current_task(&mut a);
        a.load_8(R1, R6, secure.byte);
        a.and_number(R1, secure.mask);
        a.jump(JumpCondition::Equal, R1, 0, ORDINARY);
        a.store_number(R7, STATE, TaskState::Excluded.number());
        if time == CallTiming::Measured {
            self.end_unfinished(&mut a);
        }
        a.jump_always(END);
        a.bind_label(ORDINARY);
        a.load(R1, R7, STATE);
        a.jump(
            JumpCondition::NotEqual,
            R1,
            TaskState::AwaitsExec.number(),
            END,
        );
        a.store_number(R7, STATE, TaskState::Counted.number());
        self.slot(&mut a);
        a.store_number(R0, byte_offset(STARTED), 1);
        if time == CallTiming::Measured {
            let execve = syscall_names::syscall_number("execve").unwrap_or(0);
            a.store_number(R7, NUMBER, execve.cast_signed());
            a.call(KernelHelper::Nanoseconds);
            a.store(R7, SINCE, R0);
            self.add_running(&mut a);
        }
        finish(a)
    }

    /// Program for `sched_process_exit(task, …)`: counts down the live tasks, and adds the time of
    /// a call that the end of its task interrupted.
    pub(super) fn on_exit(&self, time: CallTiming) -> Vec<u64> {
        let mut a = Assembler::default();
        self.current_task(&mut a);
        if time == CallTiming::Measured {
            self.end_unfinished(&mut a);
        }
        self.slot(&mut a);
        a.set(R2, -1);
        a.add_atomically(R0, byte_offset(LIVE_TASKS), R2);
        finish(a)
    }

    /// Adds the time of the task's call, if it is in one, without counting it as a hit.
    fn end_unfinished(&self, a: &mut Assembler) {
        const NO_CALL: JumpLabel = JumpLabel(7);
        a.load(R9, R7, SINCE);
        a.jump(JumpCondition::Equal, R9, 0, NO_CALL);
        a.store_number(R7, SINCE, 0);
        a.load(R8, R7, NUMBER);
        self.end_call(a);
        a.bind_label(NO_CALL);
    }
}

/// Turns the address of the table in R0 into that of the row of the number in R8.
fn to_row(a: &mut Assembler) {
    a.shift_left(R8, 5);
    a.add(R0, R8);
}

/// Adds or removes a call that began at the time in R9 in the word of the number in R8, in the
/// table in R0. Keeps all three.
fn change_running(
    a: &mut Assembler,
    change: impl Fn(&mut Assembler, super::assembler::BpfRegister, super::assembler::BpfRegister),
) {
    a.copy(R2, R9);
    a.shift_right(R2, START_UNIT_BITS);
    a.set(R3, 1);
    a.shift_left(R3, RUNNING_COUNT_BITS);
    a.add(R2, R3);
    a.copy(R1, R8);
    a.shift_left(R1, 3);
    a.add(R1, R0);
    a.load(R3, R1, RUNNING);
    change(a, R3, R2);
    a.store(R1, RUNNING, R3);
}

/// Loads the state of the current task into R1; jumps to `END` if its calls are not counted.
fn skip_uncounted(a: &mut Assembler) {
    a.load(R1, R7, STATE);
    let first_uncounted = TaskState::AwaitsExec.number();
    a.jump(JumpCondition::AboveOrEqual, R1, first_uncounted, END);
}

/// Binds `END`, where the program returns 0, and returns the program.
fn finish(mut a: Assembler) -> Vec<u64> {
    a.bind_label(END);
    a.set(R0, 0);
    a.exit();
    a.finish()
}

/// Adds one, or a register, to a word of the row in R0. Not atomic: no other task of this processor
/// can interleave, and other processors have their own rows.
fn add_to_row(a: &mut Assembler, word: i16, amount: Option<super::assembler::BpfRegister>) {
    a.load(R1, R0, word);
    match amount {
        Some(amount) => a.add(R1, amount),
        None => a.add_number(R1, 1),
    }
    a.store(R0, word, R1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 1 << START_UNIT_BITS;

    /// Returns the word that the start of a call adds.
    fn start(since: u64) -> u64 {
        (1 << RUNNING_COUNT_BITS) + (since >> START_UNIT_BITS)
    }

    #[test]
    fn running_calls_are_those_that_began_and_did_not_end() {
        let now = 1000 * UNIT;
        let mut calls = RunningCalls::default();
        assert_eq!(calls.nanos(now), 0);
        calls.add_word(start(400 * UNIT));
        assert_eq!(calls.nanos(now), 599 * UNIT);
        calls.add_word(start(900 * UNIT));
        assert_eq!(calls.nanos(now), (599 + 99) * UNIT);
        // It ends on another processor.
        calls.add_word(0_u64.wrapping_sub(start(400 * UNIT)));
        assert_eq!(calls.nanos(now), 99 * UNIT);
        calls.add_word(0_u64.wrapping_sub(start(900 * UNIT)));
        assert_eq!(calls, RunningCalls::default());
    }

    #[test]
    fn a_call_of_which_only_the_end_was_read_adds_nothing() {
        let now = 1000 * UNIT;
        let mut calls = RunningCalls::default();
        calls.add_word(0_u64.wrapping_sub(start(1001 * UNIT)));
        assert_eq!(calls.nanos(now), 0);
        // Beside one that runs.
        calls.add_word(start(10 * UNIT));
        assert_eq!(calls.nanos(now), 0);
        calls.add_word(start(20 * UNIT));
        let nanos = calls.nanos(now);
        assert!(
            (970 * UNIT..=991 * UNIT).contains(&(nanos - 979 * UNIT)),
            "{nanos}"
        );
    }

    #[test]
    fn a_year_of_uptime_and_thousands_of_tasks_fit() {
        let year = 365 * 86_400 * 1_000_000_000_u64;
        let mut calls = RunningCalls::default();
        for _ in 0..10_000 {
            calls.add_word(start(year));
        }
        let nanos = calls.nanos(year + 100 * UNIT);
        assert_eq!(nanos, 10_000 * 99 * UNIT);
        // Overflow is not mistaken for time.
        for _ in 0..10_000 {
            calls.add_word(start(year));
        }
        assert_eq!(calls.nanos(year + 100 * UNIT), 0);
    }
}
