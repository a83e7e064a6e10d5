//! Decodes structured values from the bytes of an input. After the end of the input all values are
//! zero.

/// Consumes values from the front of an input.
#[derive(Debug)]
pub(crate) struct InputReader<'a> {
    rest: &'a [u8],
}

impl<'a> InputReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> InputReader<'a> {
        InputReader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns a number in `0..=max`.
    pub(crate) fn up_to(&mut self, max: usize) -> usize {
        usize::from(self.u16()) % (max + 1)
    }

    /// Returns a float of one of the kinds that occur in practice: whole, decimal, small steps,
    /// arbitrary bits.
    pub(crate) fn float(&mut self) -> f64 {
        match self.u8() {
            0..=63 => f64::from(self.u16()),
            64..=127 => f64::from(self.u16()) / 100.0,
            128..=159 => self.u64() as i64 as f64,
            160..=191 => f64::from_bits(self.u64()),
            192..=223 => f64::from(self.u8()) / 3.0,
            224..=239 => -f64::from(self.u16()) / 1e6,
            240..=247 => [0.0, -0.0, f64::NAN, f64::INFINITY][usize::from(self.u8() % 4)],
            _ => 0.0,
        }
    }
}
