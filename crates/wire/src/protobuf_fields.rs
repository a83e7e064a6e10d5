//! Reads the fields of protobuf messages without copying them. Only what our formats need: fields
//! are visited in their order, and groups, which proto3 does not have, are refused.

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("the message is truncated")]
    Truncated,
    #[error("a number has more than ten bytes")]
    LongNumber,
    #[error("invalid field number or wire type")]
    Tag,
    #[error("field {0} has another type than expected")]
    FieldType(u32),
    #[error("more than {1} {0}")]
    TooMany(&'static str, usize),
}

/// The value of a field, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Number(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// A field: its number and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: FieldValue<'a>,
}

impl<'a> Field<'a> {
    /// Returns the bytes of a message, a text or packed numbers.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], ProtobufError> {
        match self.value {
            FieldValue::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::FieldType(self.number)),
        }
    }

    pub(crate) fn number(&self) -> Result<u64, ProtobufError> {
        match self.value {
            FieldValue::Number(number) => Ok(number),
            _ => Err(ProtobufError::FieldType(self.number)),
        }
    }

    /// Returns the bits of a `fixed64`, which protobuf also uses for `sfixed64` and `double`.
    pub(crate) fn fixed64(&self) -> Result<u64, ProtobufError> {
        match self.value {
            FieldValue::Fixed64(bits) => Ok(bits),
            _ => Err(ProtobufError::FieldType(self.number)),
        }
    }

    pub(crate) fn double(&self) -> Result<f64, ProtobufError> {
        self.fixed64().map(f64::from_bits)
    }
}

/// Reads the fields of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> FieldReader<'a> {
        FieldReader { message, at: 0 }
    }

    /// Returns the position in the message: the start of the next field.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Skips the fields of number 1 that contain bytes, from the current position to the first
    /// other field. Faster than [`FieldReader::next_field`]: a series has ten of them and a sample.
    #[inline]
    pub(crate) fn skip_leading_messages(&mut self) -> Result<(), ProtobufError> {
        const TAG: u8 = 1 << 3 | 2;
        while self.message.get(self.at) == Some(&TAG) {
            self.at += 1;
            self.take_bytes()?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn next_field(&mut self) -> Result<Option<Field<'a>>, ProtobufError> {
        if self.at == self.message.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Tag)?;
        if number == 0 || number >= 1 << 29 {
            return Err(ProtobufError::Tag);
        }
        let value = match tag & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => FieldValue::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => FieldValue::Bytes(self.take_bytes()?),
            5 => FieldValue::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtobufError::Tag),
        };
        Ok(Some(Field { number, value }))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, ProtobufError> {
        match self.message.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Reads a number of up to ten bytes. Bits beyond 64 are dropped, as protobuf specifies.
    fn long_varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for (count, &byte) in self.message[self.at..].iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * count);
            if byte < 0x80 {
                self.at += count + 1;
                return Ok(number);
            }
        }
        Err(match self.message.len() - self.at {
            10.. => ProtobufError::LongNumber,
            _ => ProtobufError::Truncated,
        })
    }

    #[inline]
    fn take_bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let len = self.varint()?;
        let rest = &self.message[self.at..];
        let len = usize::try_from(len).map_err(|_| ProtobufError::Truncated)?;
        let bytes = rest.get(..len).ok_or(ProtobufError::Truncated)?;
        self.at += len;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let bytes = self.message[self.at..].first_chunk();
        self.at += N;
        bytes.copied().ok_or_else(|| {
            self.at -= N;
            ProtobufError::Truncated
        })
    }
}
