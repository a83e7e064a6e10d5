//! The programs that run in the kernel, and what they keep.
//!
//! A task that is watched has a value of its own: since when and in which call it is, whether it is counted at the
//! moment, and the slot of whoever watches it. Tasks get theirs from the task that made them. Each slot has its counts in a table
//! of its own for each processor.

use std::os::fd::{AsRawFd, OwnedFd};

use super::assembler::{
    Assembler, JumpCondition, JumpLabel, KernelHelper, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10,
};
use crate::syscall_names;

/// Words of a task's value.
pub(super) const TASK_WORDS: usize = 4;
const SINCE: i16 = 0;
const NUMBER: i16 = 8;
const STATE: i16 = 16;
const SLOT: i16 = 24;

/// Whether calls of a task are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum TaskState {
    Counted = 0,
    /// From the next call on: the one that it is in began before.
    FromNextCall = 1,
    /// From its exec on.
    AwaitsExec = 2,
    /// Not any more: it executed a program with rights of its own.
    Excluded = 3,
}

impl TaskState {
    const fn number(self) -> i32 {
        self as i32
    }

    /// The value of a task that is put into a slot.
    pub(super) fn task_value(self, slot: u32) -> [u64; TASK_WORDS] {
        [0, 0, self as u64, u64::from(slot)]
    }
}

/// How many can watch at the same time. A slot's number is never used again: a task may outlive whoever watched it.
pub(super) const SLOTS_MAX: u32 = 1024;

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
pub(super) const LIVE_TASKS: usize = 0;
/// Whether the program has started.
pub(super) const STARTED: usize = 1;
/// A word of a slot, for code.
const fn byte_offset(word: usize) -> i16 {
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
pub(super) struct BpfMaps {
    pub tasks: OwnedFd,
    /// A map for each slot: its tables.
    pub tables: OwnedFd,
    pub slots: OwnedFd,
}

const END: JumpLabel = JumpLabel(0);
const COUNT: JumpLabel = JumpLabel(1);
const FAILED: JumpLabel = JumpLabel(2);
const ROW: JumpLabel = JumpLabel(3);
const LARGE: JumpLabel = JumpLabel(4);

impl BpfMaps {
    /// The value of the current task into register 7, or the end.
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

    /// The row of the call whose number is in register 8 into register 0; `ROW` must follow.
    fn row(&self, a: &mut Assembler) {
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
        // Here the kernel's check sees that the row is within the table.
        a.jump(JumpCondition::Below, R8, ROWS as i32, ROW);
        a.set(R8, ROW_LARGE as i32);
        a.bind_label(ROW);
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
        a.load_map(R1, self.slots.as_raw_fd());
        a.call(KernelHelper::MapLookup);
        a.jump(JumpCondition::Equal, R0, 0, END);
    }

    /// At the start of a call: `sys_enter(registers, number)`.
    pub(super) fn on_syscall_enter(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(
            JumpCondition::AboveOrEqual,
            R1,
            TaskState::AwaitsExec.number(),
            END,
        );
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
        a.jump_always(END);
        // Calls that do not return are counted where they begin.
        a.bind_label(COUNT);
        a.store_number(R7, SINCE, 0);
        self.row(&mut a);
        add_to_row(&mut a, HITS, None);
        a.bind_label(END);
        a.set(R0, 0);
        a.exit();
        a.finish()
    }

    /// Numbers that have no row of their own share one. Those of programs of 32 bits mean something else.
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

    /// At the end of a call whose start was seen: `sys_exit(registers, result)`.
    pub(super) fn on_syscall_exit(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        // A task that was made in a call leaves it without having entered.
        a.load(R9, R7, SINCE);
        a.jump(JumpCondition::Equal, R9, 0, END);
        a.store_number(R7, SINCE, 0);
        a.load(R8, R7, NUMBER);
        a.call(KernelHelper::Nanoseconds);
        a.subtract(R0, R9);
        a.copy(R9, R0);
        self.row(&mut a);
        add_to_row(&mut a, NANOS, Some(R9));
        self.count_result(a)
    }

    /// The same where starts are not seen, for half the price: the number is still among the registers.
    pub(super) fn on_syscall_exit_untimed(&self) -> Vec<u64> {
        const NUMBER_IN_REGISTERS: i16 = match cfg!(target_arch = "aarch64") {
            true => 280,
            false => 120,
        };
        let mut a = Assembler::default();
        a.copy(R6, R1);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(
            JumpCondition::AboveOrEqual,
            R1,
            TaskState::AwaitsExec.number(),
            END,
        );
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

    /// Counts the call whose row is in register 0 by its result, and is done.
    fn count_result(&self, mut a: Assembler) -> Vec<u64> {
        add_to_row(&mut a, HITS, None);
        a.load(R2, R6, 8);
        a.jump(JumpCondition::AboveOrEqual, R2, -4095, FAILED);
        add_to_row(&mut a, BYTES, Some(R2));
        a.jump_always(END);
        a.bind_label(FAILED);
        add_to_row(&mut a, ERRORS, None);
        a.bind_label(END);
        a.set(R0, 0);
        a.exit();
        a.finish()
    }

    /// When a task was made, before it runs: `task_newtask(task, flags)`.
    pub(super) fn on_new_task(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        a.load(R6, R1, 0);
        self.current_task(&mut a);
        a.load(R1, R7, STATE);
        a.jump(
            JumpCondition::AboveOrEqual,
            R1,
            TaskState::AwaitsExec.number(),
            END,
        );
        a.load_map(R1, self.tasks.as_raw_fd());
        a.copy(R2, R6);
        a.set(R3, 0);
        // Make it if it is not there.
        a.set(R4, 1);
        a.call(KernelHelper::TaskStorageGet);
        a.jump(JumpCondition::Equal, R0, 0, END);
        a.load(R1, R7, SLOT);
        a.store(R0, SLOT, R1);
        // It leaves a call that it did not make.
        a.store_number(R0, STATE, TaskState::FromNextCall.number());
        self.slot(&mut a);
        a.set(R2, 1);
        a.add_atomically(R0, byte_offset(LIVE_TASKS), R2);
        a.bind_label(END);
        a.set(R0, 0);
        a.exit();
        a.finish()
    }

    /// When a program has taken the place of another: `sched_process_exec(task, number, what)`. The program's first call is
    /// this one. One with rights that its caller lacks is nothing for the caller to look into: it runs uncounted.
    pub(super) fn on_exec(&self, secure: SecureBit) -> Vec<u64> {
        const ORDINARY: JumpLabel = JumpLabel(6);
        let mut a = Assembler::default();
        a.load(R6, R1, 16);
        self.current_task(&mut a);
        a.load_8(R1, R6, secure.byte);
        a.and_number(R1, secure.mask);
        a.jump(JumpCondition::Equal, R1, 0, ORDINARY);
        a.store_number(R7, STATE, TaskState::Excluded.number());
        a.store_number(R7, SINCE, 0);
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
        let execve = syscall_names::syscall_number("execve").unwrap_or(0);
        a.store_number(R7, NUMBER, execve.cast_signed());
        a.call(KernelHelper::Nanoseconds);
        a.store(R7, SINCE, R0);
        a.bind_label(END);
        a.set(R0, 0);
        a.exit();
        a.finish()
    }

    /// When a task ends: `sched_process_exit(task, …)`.
    pub(super) fn on_exit(&self) -> Vec<u64> {
        let mut a = Assembler::default();
        self.current_task(&mut a);
        self.slot(&mut a);
        a.set(R2, -1);
        a.add_atomically(R0, byte_offset(LIVE_TASKS), R2);
        a.bind_label(END);
        a.set(R0, 0);
        a.exit();
        a.finish()
    }
}

/// Adds one, or a register, to a word of the row in register 0. No other task of this processor comes between, and
/// other processors have rows of their own.
fn add_to_row(a: &mut Assembler, word: i16, amount: Option<super::assembler::BpfRegister>) {
    a.load(R1, R0, word);
    match amount {
        Some(amount) => a.add(R1, amount),
        None => a.add_number(R1, 1),
    }
    a.store(R0, word, R1);
}
