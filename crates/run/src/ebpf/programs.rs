//! The programs that run in the kernel, and what they keep.
//!
//! A task that is watched has a value of its own: since when and in which call it is, whether it is counted at the
//! moment, and the slot of whoever watches it. Tasks get theirs from the task that made them. Each slot has its counts in a table
//! of its own for each processor.

use std::os::fd::{AsRawFd, OwnedFd};

use super::assembler::{Assembler, Helper, If, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use crate::names;

/// Words of a task's value.
pub(super) const TASK_WORDS: usize = 4;
const SINCE: i16 = 0;
const NUMBER: i16 = 8;
const STATE: i16 = 16;
const SLOT: i16 = 24;

/// Whether calls of a task are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum State {
    Counted = 0,
    /// From the next call on: the one that it is in began before.
    Fresh = 1,
    /// From its exec on.
    Waits = 2,
    /// Not any more: it executed a program with rights of its own.
    LetGo = 3,
}

impl State {
    const fn number(self) -> i32 {
        self as i32
    }

    /// The value of a task that is put into a slot.
    pub(super) fn of_task(self, slot: u32) -> [u64; TASK_WORDS] {
        [0, 0, self as u64, u64::from(slot)]
    }
}

/// How many can watch at the same time. A slot's number is never used again: a task may outlive whoever watched it.
pub(super) const SLOTS: u32 = 1024;

/// Calls with numbers up to this have a row of their own in the table.
pub(super) const ROWS: usize = 512;
/// Where calls with larger numbers are counted, and those of programs of 32 bits.
pub(super) const ROW_LARGE: usize = 510;
pub(super) const ROW_COMPAT: usize = 511;
/// Words of a row.
pub(super) const ROW_WORDS: usize = 4;
const HITS: i16 = 0;
const BYTES: i16 = 8;
const NANOS: i16 = 16;
const ERRORS: i16 = 24;

/// Words that each slot has for all processors together.
pub(super) const SLOT_WORDS: usize = 2;
/// How many tasks were made by watched ones, less those that ended.
pub(super) const GROWTH: usize = 0;
/// Whether the program has started.
pub(super) const STARTED: usize = 1;
/// A word of a slot, for code.
const fn at(word: usize) -> i16 {
    (8 * word) as i16
}

/// Where the kernel says that a program gets rights which its caller has not: a bit of what it executes.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecureBit {
    pub byte: i16,
    pub mask: i32,
}

/// The descriptors of the maps that programs use.
#[derive(Debug)]
pub(super) struct Maps {
    pub tasks: OwnedFd,
    /// A map for each slot: its tables.
    pub tables: OwnedFd,
    pub slots: OwnedFd,
}

const END: Label = Label(0);
const COUNT: Label = Label(1);
const FAILED: Label = Label(2);
const ROW: Label = Label(3);
const LARGE: Label = Label(4);

impl Maps {
    /// The value of the current task into register 7, or the end.
    fn current_task(&self, a: &mut Assembler) {
        a.call(Helper::CurrentTask);
        a.map(R1, self.tasks.as_raw_fd());
        a.copy(R2, R0);
        a.set(R3, 0);
        a.set(R4, 0);
        a.call(Helper::TaskStorageGet);
        a.jump(If::Equal, R0, 0, END);
        a.copy(R7, R0);
    }

    /// The row of the call whose number is in register 8 into register 0; `ROW` must follow.
    fn row(&self, a: &mut Assembler) {
        self.slot_key(a);
        a.map(R1, self.tables.as_raw_fd());
        a.call(Helper::MapLookup);
        a.jump(If::Equal, R0, 0, END);
        a.copy(R1, R0);
        a.store_number_32(R10, -4, 0);
        a.copy(R2, R10);
        a.add_number(R2, -4);
        a.call(Helper::MapLookup);
        a.jump(If::Equal, R0, 0, END);
        // Here the kernel's check sees that the row is within the table.
        a.jump(If::Below, R8, ROWS as i32, ROW);
        a.set(R8, ROW_LARGE as i32);
        a.here(ROW);
        a.shift_left(R8, 5);
        a.add(R0, R8);
    }

    /// The address of the current task's slot number into register 2.
    fn slot_key(&self, a: &mut Assembler) {
        a.load(R1, R7, SLOT);
        a.store_32(R10, -4, R1);
        a.copy(R2, R10);
        a.add_number(R2, -4);
    }

    /// The words of the current task's slot into register 0, or the end.
    fn slot(&self, a: &mut Assembler) {
        self.slot_key(a);
        a.map(R1, self.slots.as_raw_fd());
        a.call(Helper::MapLookup);
        a.jump(If::Equal, R0, 0, END);
    }

    /// At the start of a call: `sys_enter(registers, number)`.
    pub(super) fn enter(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(If::AboveOrEqual, R1, State::Waits.number(), END);
        a.store_number(R7, STATE, State::Counted.number());
        a.load(R8, R6, 8);
        self.limit_number(&mut a);
        a.store(R7, NUMBER, R8);
        for name in ["exit", "exit_group"] {
            if let Some(number) = names::number(name) {
                a.jump(If::Equal, R8, number.cast_signed(), COUNT);
            }
        }
        a.call(Helper::Nanoseconds);
        a.store(R7, SINCE, R0);
        a.go(END);
        // Calls that do not return are counted where they begin.
        a.here(COUNT);
        a.store_number(R7, SINCE, 0);
        self.row(&mut a);
        add_to(&mut a, HITS, None);
        a.here(END);
        a.set(R0, 0);
        a.exit();
        a.code()
    }

    /// Numbers that have no row of their own share one. Those of programs of 32 bits mean something else.
    fn limit_number(&self, a: &mut Assembler) {
        a.jump(If::Below, R8, ROW_LARGE as i32, LARGE);
        a.set(R8, ROW_LARGE as i32);
        a.here(LARGE);
        if cfg!(target_arch = "x86_64") {
            const CODE_SEGMENT: i16 = 136;
            const CODE_SEGMENT_32: i32 = 0x23;
            const NATIVE: Label = Label(5);
            a.load(R1, R6, 0);
            a.load(R1, R1, CODE_SEGMENT);
            a.jump(If::NotEqual, R1, CODE_SEGMENT_32, NATIVE);
            a.set(R8, ROW_COMPAT as i32);
            a.here(NATIVE);
        }
    }

    /// At the end of a call whose start was seen: `sys_exit(registers, result)`.
    pub(super) fn leave(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        // A task that was made in a call leaves it without having entered.
        a.load(R9, R7, SINCE);
        a.jump(If::Equal, R9, 0, END);
        a.store_number(R7, SINCE, 0);
        a.load(R8, R7, NUMBER);
        a.call(Helper::Nanoseconds);
        a.subtract(R0, R9);
        a.copy(R9, R0);
        self.row(&mut a);
        add_to(&mut a, NANOS, Some(R9));
        self.count_result(a)
    }

    /// The same where starts are not seen, for half the price: the number is still among the registers.
    pub(super) fn leave_untimed(&self) -> Vec<u64> {
        const NUMBER_IN_REGISTERS: i16 = match cfg!(target_arch = "aarch64") {
            true => 280,
            false => 120,
        };
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(If::AboveOrEqual, R1, State::Waits.number(), END);
        a.jump(If::Equal, R1, State::Counted.number(), COUNT);
        a.store_number(R7, STATE, State::Counted.number());
        a.go(END);
        a.here(COUNT);
        a.load(R1, R6, 0);
        a.load_32(R8, R1, NUMBER_IN_REGISTERS);
        self.limit_number(&mut a);
        self.row(&mut a);
        self.count_result(a)
    }

    /// Counts the call whose row is in register 0 by its result, and is done.
    fn count_result(&self, mut a: Assembler) -> Vec<u64> {
        add_to(&mut a, HITS, None);
        a.load(R2, R6, 8);
        a.jump(If::AboveOrEqual, R2, -4095, FAILED);
        add_to(&mut a, BYTES, Some(R2));
        a.go(END);
        a.here(FAILED);
        add_to(&mut a, ERRORS, None);
        a.here(END);
        a.set(R0, 0);
        a.exit();
        a.code()
    }

    /// When a task was made, before it runs: `task_newtask(task, flags)`.
    pub(super) fn born(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.load(R6, R1, 0);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(If::AboveOrEqual, R1, State::Waits.number(), END);
        a.map(R1, self.tasks.as_raw_fd());
        a.copy(R2, R6);
        a.set(R3, 0);
        // Make it if it is not there.
        a.set(R4, 1);
        a.call(Helper::TaskStorageGet);
        a.jump(If::Equal, R0, 0, END);
        a.load(R1, R7, SLOT);
        a.store(R0, SLOT, R1);
        // It leaves a call that it did not make.
        a.store_number(R0, STATE, State::Fresh.number());
        self.slot(&mut a);
        a.set(R2, 1);
        a.add_atomically(R0, at(GROWTH), R2);
        a.here(END);
        a.set(R0, 0);
        a.exit();
        a.code()
    }

    /// When a program has taken the place of another: `sched_process_exec(task, number, what)`. The program's first call is
    /// this one. One with rights that its caller lacks is nothing for the caller to look into: it runs uncounted.
    pub(super) fn started(&self, secure: SecureBit) -> Vec<u64> {
        const ORDINARY: Label = Label(6);
        let mut a = Assembler::default();
        a.load(R6, R1, 16);
        self.current_task(&mut a);
        a.load_8(R1, R6, secure.byte);
        a.and_number(R1, secure.mask);
        a.jump(If::Equal, R1, 0, ORDINARY);
        a.store_number(R7, STATE, State::LetGo.number());
        a.store_number(R7, SINCE, 0);
        a.go(END);
        a.here(ORDINARY);
        a.load(R1, R7, STATE);
        a.jump(If::NotEqual, R1, State::Waits.number(), END);
        a.store_number(R7, STATE, State::Counted.number());
        self.slot(&mut a);
        a.store_number(R0, at(STARTED), 1);
        let execve = names::number("execve").unwrap_or(0);
        a.store_number(R7, NUMBER, execve.cast_signed());
        a.call(Helper::Nanoseconds);
        a.store(R7, SINCE, R0);
        a.here(END);
        a.set(R0, 0);
        a.exit();
        a.code()
    }

    /// When a task ends: `sched_process_exit(task, …)`.
    pub(super) fn ended(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        self.current_task(&mut a);
        self.slot(&mut a);
        a.set(R2, -1);
        a.add_atomically(R0, at(GROWTH), R2);
        a.here(END);
        a.set(R0, 0);
        a.exit();
        a.code()
    }
}

/// Adds one, or a register, to a word of the row in register 0. No other task of this processor comes between, and
/// other processors have rows of their own.
fn add_to(a: &mut Assembler, word: i16, amount: Option<super::assembler::Reg>) {
    a.load(R1, R0, word);
    match amount {
        Some(amount) => a.add(R1, amount),
        None => a.add_number(R1, 1),
    }
    a.store(R0, word, R1);
}
