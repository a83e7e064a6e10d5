//! Little-endian numbers, LEB128 varints and texts, read from bytes that may be damaged.

use super::DecodeError;

/// Reads from the front of a slice. Every read is checked against the remaining bytes, so that a
/// damaged length can neither cause a panic nor an allocation larger than the input.
#[derive(Debug, Clone)]
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    /// Returns the bytes not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError("varint exceeds 64 bits"))
    }

    pub(crate) fn zigzag(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a text preceded by its length.
    pub(crate) fn str(&mut self) -> Result<&'a str, DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| DecodeError("invalid UTF-8 in a text"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*taken)
    }
}

const TRUNCATED: DecodeError = DecodeError("truncated data");

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number as a varint; small numbers of either sign are short: 0, -1, 1, -2, …
/// become 0, 1, 2, 3, …
pub(crate) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

pub(crate) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_read_back() {
        let numbers = [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ];
        let mut bytes = Vec::new();
        for number in numbers {
            put_varint(&mut bytes, number);
            put_zigzag(&mut bytes, number as i64);
            bytes.extend(number.to_le_bytes());
            bytes.extend((number as u32).to_le_bytes());
            put_str(&mut bytes, &number.to_string());
        }
        let mut reader = ByteReader::new(&bytes);
        for number in numbers {
            assert_eq!(reader.varint(), Ok(number));
            assert_eq!(reader.zigzag(), Ok(number as i64));
            assert_eq!(reader.u64(), Ok(number));
            assert_eq!(reader.u32(), Ok(number as u32));
            assert_eq!(reader.str(), Ok(number.to_string().as_str()));
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn small_numbers_of_either_sign_take_one_byte() {
        for number in -64..64 {
            let mut bytes = Vec::new();
            put_zigzag(&mut bytes, number);
            assert_eq!(bytes.len(), 1, "{number}");
        }
    }

    #[test]
    fn damaged_bytes_are_errors() {
        assert_eq!(ByteReader::new(&[0x80; 9]).varint(), Err(TRUNCATED));
        assert!(ByteReader::new(&[0x80; 20]).varint().is_err());
        let mut too_large = vec![0xff; 9];
        too_large.push(2);
        assert!(ByteReader::new(&too_large).varint().is_err());
        // One length beyond any memory, and one that merely exceeds the data.
        let mut text = Vec::new();
        put_varint(&mut text, u64::MAX);
        assert_eq!(ByteReader::new(&text).str(), Err(TRUNCATED));
        assert_eq!(ByteReader::new(&[3, b'a', b'b']).str(), Err(TRUNCATED));
        assert!(ByteReader::new(&[1, 0xff]).str().is_err());
        assert_eq!(ByteReader::new(&[1, 2, 3]).u32(), Err(TRUNCATED));
    }
}
