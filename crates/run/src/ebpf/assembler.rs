//! A small assembler for BPF bytecode, limited to the instructions that `programs` uses.
//!
//! Register 0 holds results, 1 to 5 hold arguments, 6 to 9 survive calls, 10 is the frame pointer.

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BpfRegister(pub u8);

pub(super) const R0: BpfRegister = BpfRegister(0);
pub(super) const R1: BpfRegister = BpfRegister(1);
pub(super) const R2: BpfRegister = BpfRegister(2);
pub(super) const R3: BpfRegister = BpfRegister(3);
pub(super) const R4: BpfRegister = BpfRegister(4);
pub(super) const R6: BpfRegister = BpfRegister(6);
pub(super) const R7: BpfRegister = BpfRegister(7);
pub(super) const R8: BpfRegister = BpfRegister(8);
pub(super) const R9: BpfRegister = BpfRegister(9);
pub(super) const R10: BpfRegister = BpfRegister(10);

/// A BPF helper function, by its number.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum KernelHelper {
    MapLookup = 1,
    Nanoseconds = 5,
    TaskStorageGet = 156,
    CurrentTask = 158,
}

/// The condition of a jump; comparisons are unsigned.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum JumpCondition {
    Equal = 0x10,
    NotEqual = 0x50,
    AboveOrEqual = 0x30,
    Below = 0xa0,
}

/// The target of forward jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JumpLabel(pub u8);

#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u64>,
    jumps: Vec<(usize, JumpLabel)>,
}

const WIDE: u8 = 0x07;
const REGISTER: u8 = 0x08;
const MOVE: u8 = 0xb0;
const ADD: u8 = 0x00;
const SUBTRACT: u8 = 0x10;
const SHIFT_LEFT: u8 = 0x60;
const SHIFT_RIGHT: u8 = 0x70;
const AND: u8 = 0x50;
const LOAD: u8 = 0x79;
const LOAD_32: u8 = 0x61;
const LOAD_8: u8 = 0x71;
const STORE: u8 = 0x7b;
const STORE_32: u8 = 0x63;
const STORE_NUMBER: u8 = 0x7a;
const STORE_NUMBER_32: u8 = 0x62;
const ATOMIC: u8 = 0xdb;
const JUMP: u8 = 0x05;
const LOAD_ADDRESS: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAP_DESCRIPTOR: u8 = 1;

impl Assembler {
    fn push(&mut self, code: u8, to: BpfRegister, from: BpfRegister, offset: i16, number: i32) {
        let registers = (from.0 << 4) | to.0;
        let low = u16::from_le_bytes([code, registers]);
        let words = [u64::from(low), u64::from(offset.cast_unsigned())];
        let word = words[0] | words[1] << 16 | u64::from(number.cast_unsigned()) << 32;
        self.code.push(word);
    }

    pub(super) fn copy(&mut self, to: BpfRegister, from: BpfRegister) {
        self.push(WIDE | REGISTER | MOVE, to, from, 0, 0);
    }

    pub(super) fn set(&mut self, to: BpfRegister, number: i32) {
        self.push(WIDE | MOVE, to, R0, 0, number);
    }

    pub(super) fn add(&mut self, to: BpfRegister, from: BpfRegister) {
        self.push(WIDE | REGISTER | ADD, to, from, 0, 0);
    }

    pub(super) fn add_number(&mut self, to: BpfRegister, number: i32) {
        self.push(WIDE | ADD, to, R0, 0, number);
    }

    pub(super) fn subtract(&mut self, to: BpfRegister, from: BpfRegister) {
        self.push(WIDE | REGISTER | SUBTRACT, to, from, 0, 0);
    }

    pub(super) fn shift_left(&mut self, to: BpfRegister, bits: i32) {
        self.push(WIDE | SHIFT_LEFT, to, R0, 0, bits);
    }

    pub(super) fn shift_right(&mut self, to: BpfRegister, bits: i32) {
        self.push(WIDE | SHIFT_RIGHT, to, R0, 0, bits);
    }

    pub(super) fn and_number(&mut self, to: BpfRegister, number: i32) {
        self.push(WIDE | AND, to, R0, 0, number);
    }

    pub(super) fn load_8(&mut self, to: BpfRegister, from: BpfRegister, offset: i16) {
        self.push(LOAD_8, to, from, offset, 0);
    }

    pub(super) fn load_32(&mut self, to: BpfRegister, from: BpfRegister, offset: i16) {
        self.push(LOAD_32, to, from, offset, 0);
    }

    /// Loads 64 bits of memory.
    pub(super) fn load(&mut self, to: BpfRegister, from: BpfRegister, offset: i16) {
        self.push(LOAD, to, from, offset, 0);
    }

    pub(super) fn store(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(STORE, to, from, offset, 0);
    }

    pub(super) fn store_32(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(STORE_32, to, from, offset, 0);
    }

    pub(super) fn store_number(&mut self, to: BpfRegister, offset: i16, number: i32) {
        self.push(STORE_NUMBER, to, R0, offset, number);
    }

    pub(super) fn store_number_32(&mut self, to: BpfRegister, offset: i16, number: i32) {
        self.push(STORE_NUMBER_32, to, R0, offset, number);
    }

    /// Adds atomically to memory that other processors may modify.
    pub(super) fn add_atomically(&mut self, to: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(ATOMIC, to, from, offset, i32::from(ADD));
    }

    pub(super) fn jump(
        &mut self,
        when: JumpCondition,
        left: BpfRegister,
        right: i32,
        to: JumpLabel,
    ) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP | when as u8, left, R0, 0, right);
    }

    pub(super) fn jump_always(&mut self, to: JumpLabel) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, R0, R0, 0, 0);
    }

    /// Binds a label to this position and resolves the jumps to it.
    pub(super) fn bind_label(&mut self, label: JumpLabel) {
        let here = self.code.len();
        self.jumps.retain(|(at, to)| {
            if *to != label {
                return true;
            }
            let distance = (here - at - 1) as u64;
            self.code[*at] |= (distance & 0xffff) << 16;
            false
        });
    }

    pub(super) fn load_map(&mut self, to: BpfRegister, descriptor: i32) {
        self.push(LOAD_ADDRESS, to, BpfRegister(MAP_DESCRIPTOR), 0, descriptor);
        self.push(0, R0, R0, 0, 0);
    }

    pub(super) fn call(&mut self, helper: KernelHelper) {
        self.push(CALL, R0, R0, 0, helper as i32);
    }

    pub(super) fn exit(&mut self) {
        self.push(EXIT, R0, R0, 0, 0);
    }

    /// Returns the finished program. All labels must be bound.
    pub(super) fn finish(self) -> Vec<u64> {
        debug_assert!(self.jumps.is_empty(), "a label is missing");
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_kernels_form() {
        let mut a = Assembler::default();
        a.copy(R6, R1);
        a.set(R0, -1);
        a.load(R8, R6, 8);
        a.store(R10, -8, R7);
        a.add_atomically(R1, 16, R2);
        a.call(KernelHelper::Nanoseconds);
        a.exit();
        let bytes: Vec<[u8; 8]> = a.finish().iter().map(|word| word.to_le_bytes()).collect();
        let expected = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x79, 0x68, 8, 0, 0, 0, 0, 0],
            [0x7b, 0x7a, 0xf8, 0xff, 0, 0, 0, 0],
            [0xdb, 0x21, 16, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 5, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn jumps_lead_to_their_label() {
        let end = JumpLabel(0);
        let mut a = Assembler::default();
        a.jump(JumpCondition::Equal, R0, 7, end);
        a.set(R0, 0);
        a.jump_always(end);
        a.set(R0, 1);
        a.bind_label(end);
        a.exit();
        let code = a.finish();
        let distance = |at: usize| (code[at] >> 16) & 0xffff;
        assert_eq!((distance(0), distance(2)), (3, 1));
        assert_eq!(code[0].to_le_bytes(), [0x15, 0, 3, 0, 7, 0, 0, 0]);
    }
}
