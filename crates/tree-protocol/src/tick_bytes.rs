//! Reads and writes the varints of ticks and columns. Numbers have exactly one coding: a varint
//! with superfluous bytes is refused.

/// Why a tick or a column was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TickCodecError {
    #[error("truncated data")]
    Truncated,
    #[error("varint is longer than necessary or exceeds 64 bits")]
    Varint,
    #[error("{0} bytes after the end")]
    TrailingBytes(usize),
    #[error("series id {id} exceeds the limit; {limit} series are defined")]
    SeriesId { id: u64, limit: usize },
    #[error("series {0} becomes absent without having been present")]
    AbsentBefore(u32),
    #[error("{count} elements exceed the limit of {limit}")]
    TooMany { count: u64, limit: usize },
    #[error("unknown form {0} of a value")]
    Form(u8),
    #[error("a value exceeds the range of its form")]
    Range,
    #[error("times do not rise")]
    TimeOrder,
    #[error("a sketch of {length} bytes exceeds the limit of {limit}")]
    SketchSize { length: u64, limit: usize },
    #[error("the sketches of all series exceed {limit} bytes")]
    SketchesSize { limit: usize },
    #[error("an earlier tick of this stream was malformed")]
    Failed,
}

/// Reads from the front of a slice. Every read is checked against the remaining bytes.
#[derive(Debug, Clone)]
pub(crate) struct TickBytes<'a> {
    rest: &'a [u8],
}

impl<'a> TickBytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> TickBytes<'a> {
        TickBytes { rest: bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that all bytes were read.
    pub(crate) fn end(&self) -> Result<(), TickCodecError> {
        match self.rest.len() {
            0 => Ok(()),
            length => Err(TickCodecError::TrailingBytes(length)),
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], TickCodecError> {
        let split = self.rest.split_at_checked(count);
        let (taken, rest) = split.ok_or(TickCodecError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, TickCodecError> {
        let (&byte, rest) = self.rest.split_first().ok_or(TickCodecError::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, TickCodecError> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if byte == 0 || (shift == 63 && byte > 1) {
                return Err(TickCodecError::Varint);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(TickCodecError::Varint)
    }

    #[inline]
    pub(crate) fn zigzag(&mut self) -> Result<i64, TickCodecError> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads a number of elements, at most `limit`.
    pub(crate) fn count(&mut self, limit: usize) -> Result<usize, TickCodecError> {
        let count = self.varint()?;
        match usize::try_from(count) {
            Ok(fitting) if fitting <= limit => Ok(fitting),
            _ => Err(TickCodecError::TooMany { count, limit }),
        }
    }
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number: 0, -1, 1, -2, … become 0, 1, 2, 3, …
#[inline]
pub(crate) fn put_zigzag(out: &mut Vec<u8>, number: i64) {
    put_varint(out, (number << 1 ^ number >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_have_one_coding() {
        for number in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            1 << 56,
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            put_zigzag(&mut bytes, number as i64);
            let mut reader = TickBytes::new(&bytes);
            assert_eq!(reader.varint(), Ok(number));
            assert_eq!(reader.zigzag(), Ok(number as i64));
            assert_eq!(reader.end(), Ok(()));
        }
        let varint = |bytes: &[u8]| TickBytes::new(bytes).varint();
        assert_eq!(varint(&[0x80, 0]), Err(TickCodecError::Varint));
        assert_eq!(varint(&[0xff, 0x80, 0]), Err(TickCodecError::Varint));
        assert_eq!(varint(&[0x80; 20]), Err(TickCodecError::Varint));
        assert_eq!(varint(&[0xff; 9]), Err(TickCodecError::Truncated));
        let too_large = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(varint(&too_large), Err(TickCodecError::Varint));
    }
}
