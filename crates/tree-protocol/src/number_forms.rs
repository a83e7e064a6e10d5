//! The coding of one float after another of the same series. Most values of a node are whole
//! multiples of a unit (1, 1/100, 1/1000, … or 512): of those the difference of multiples is
//! written, otherwise the bits that differ. Every value reads back to the bit.

use crate::tick_bytes::{TickBytes, TickCodecError, put_zigzag};

/// Whole numbers up to this magnitude are exact in a float.
const MULTIPLE_MAX: i64 = 1 << 53;

/// A value becomes a multiple of [`BLOCK`] only from this magnitude on: smaller counters pass
/// through multiples by chance.
const BLOCK_VALUE_MIN: f64 = (1_u64 << 20) as f64;

/// The size of a disk sector: also divides pages and the kilobytes of `/proc/meminfo`.
const BLOCK: f64 = 512.0;

/// How a value is written. The numbers are those on the wire; 7 is left to the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum NumberForm {
    Whole = 0,
    Blocks = 1,
    Hundredths = 2,
    Thousandths = 3,
    Millionths = 4,
    Billionths = 5,
    /// Also the form of a sequence that has no value yet.
    #[default]
    Bits = 6,
}

const DECIMALS: [NumberForm; 4] = [
    NumberForm::Hundredths,
    NumberForm::Thousandths,
    NumberForm::Millionths,
    NumberForm::Billionths,
];

impl NumberForm {
    #[inline]
    pub(crate) fn from_code(code: u8) -> Result<NumberForm, TickCodecError> {
        Ok(match code {
            0 => NumberForm::Whole,
            1 => NumberForm::Blocks,
            2 => NumberForm::Hundredths,
            3 => NumberForm::Thousandths,
            4 => NumberForm::Millionths,
            5 => NumberForm::Billionths,
            6 => NumberForm::Bits,
            other => return Err(TickCodecError::Form(other)),
        })
    }

    /// The value of a multiple of the unit: one multiplication or division, which IEEE 754 rounds
    /// the same way everywhere.
    #[inline]
    fn value_of(self, multiple: i64) -> f64 {
        let multiple = multiple as f64;
        match self {
            NumberForm::Whole | NumberForm::Bits => multiple,
            NumberForm::Blocks => multiple * BLOCK,
            NumberForm::Hundredths => multiple / 1e2,
            NumberForm::Thousandths => multiple / 1e3,
            NumberForm::Millionths => multiple / 1e6,
            NumberForm::Billionths => multiple / 1e9,
        }
    }

    /// Returns the multiple of the unit that is exactly `value`.
    #[inline]
    fn multiple_of(self, value: f64) -> Option<i64> {
        let nearest = |scaled: f64| scaled + 0.5_f64.copysign(scaled);
        let scaled = match self {
            NumberForm::Whole => value,
            NumberForm::Blocks => value / BLOCK,
            NumberForm::Hundredths => nearest(value * 1e2),
            NumberForm::Thousandths => nearest(value * 1e3),
            NumberForm::Millionths => nearest(value * 1e6),
            NumberForm::Billionths => nearest(value * 1e9),
            NumberForm::Bits => return None,
        };
        // NaN becomes 0 and large values saturate, which the comparison finds.
        let multiple = scaled as i64;
        let is_exact = multiple.unsigned_abs() <= MULTIPLE_MAX.unsigned_abs()
            && self.value_of(multiple).to_bits() == value.to_bits();
        is_exact.then_some(multiple)
    }
}

/// A value and the way it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FormedNumber {
    value: f64,
    multiple: i64,
    pub(crate) form: NumberForm,
}

/// The last value of a sequence, as both sides know it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NumberState {
    pub(crate) value: f64,
    /// 0 with [`NumberForm::Bits`].
    multiple: i64,
    form: NumberForm,
}

impl NumberState {
    #[inline]
    pub(crate) fn is_same(&self, value: f64) -> bool {
        self.value.to_bits() == value.to_bits()
    }

    pub(crate) fn form(&self) -> NumberForm {
        self.form
    }

    /// Chooses the form of the next value: the present one as long as it is exact, else the
    /// coarsest unit that is.
    #[inline]
    pub(crate) fn choose(&self, value: f64) -> FormedNumber {
        let formed = |form, multiple| FormedNumber {
            value,
            multiple,
            form,
        };
        match self.form.multiple_of(value) {
            Some(multiple) => formed(self.form, multiple),
            None => Self::choose_new(value),
        }
    }

    fn choose_new(value: f64) -> FormedNumber {
        let formed = |form, multiple| FormedNumber {
            value,
            multiple,
            form,
        };
        if value.abs() >= BLOCK_VALUE_MIN
            && let Some(multiple) = NumberForm::Blocks.multiple_of(value)
        {
            return formed(NumberForm::Blocks, multiple);
        }
        if let Some(multiple) = NumberForm::Whole.multiple_of(value) {
            return formed(NumberForm::Whole, multiple);
        }
        for form in DECIMALS {
            if let Some(multiple) = form.multiple_of(value) {
                return formed(form, multiple);
            }
        }
        formed(NumberForm::Bits, 0)
    }

    /// Appends a value without its form.
    #[inline]
    pub(crate) fn write(&mut self, number: FormedNumber, out: &mut Vec<u8>) {
        if number.form == NumberForm::Bits {
            put_bits(out, self.value.to_bits() ^ number.value.to_bits());
        } else {
            put_zigzag(out, number.multiple - self.base(number.form));
        }
        self.value = number.value;
        self.multiple = number.multiple;
        self.form = number.form;
    }

    /// Reads the next value, which was written in `form`.
    #[inline]
    pub(crate) fn read(
        &mut self,
        form: NumberForm,
        bytes: &mut TickBytes<'_>,
    ) -> Result<(), TickCodecError> {
        if form == NumberForm::Bits {
            self.value = f64::from_bits(self.value.to_bits() ^ read_bits(bytes)?);
            self.multiple = 0;
        } else {
            let multiple = self.base(form).checked_add(bytes.zigzag()?);
            let is_valid = |multiple: &i64| multiple.unsigned_abs() <= MULTIPLE_MAX.unsigned_abs();
            self.multiple = multiple.filter(is_valid).ok_or(TickCodecError::Range)?;
            self.value = form.value_of(self.multiple);
        }
        self.form = form;
        Ok(())
    }

    #[inline]
    fn base(&self, form: NumberForm) -> i64 {
        if self.form == form { self.multiple } else { 0 }
    }
}

/// Writes bits without their leading and trailing zero bytes: a byte with the number of leading
/// zero bytes (upper half) and of bytes that follow (lower half), then these. 0 is one zero byte.
fn put_bits(out: &mut Vec<u8>, bits: u64) {
    if bits == 0 {
        return out.push(0);
    }
    let leading = bits.leading_zeros() / 8;
    let trailing = bits.trailing_zeros() / 8;
    let count = 8 - leading - trailing;
    out.push((leading << 4 | count) as u8);
    out.extend_from_slice(&(bits >> (8 * trailing)).to_le_bytes()[..count as usize]);
}

fn read_bits(bytes: &mut TickBytes<'_>) -> Result<u64, TickCodecError> {
    let lengths = bytes.u8()?;
    if lengths == 0 {
        return Ok(0);
    }
    let (leading, count) = (lengths >> 4, lengths & 15);
    if count == 0 || leading + count > 8 {
        return Err(TickCodecError::Range);
    }
    let taken = bytes.take(usize::from(count))?;
    let mut middle = [0; 8];
    middle[..taken.len()].copy_from_slice(taken);
    Ok(u64::from_le_bytes(middle) << (8 * (8 - leading - count)))
}
