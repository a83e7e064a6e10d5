//! The samples of a series, which have the same form in both versions.

use crate::protobuf_fields::{FieldReader, ProtobufError};

/// The number of the field `samples` in a series.
pub(super) const SAMPLES_FIELD: u32 = 2;

/// A sample: its time in milliseconds since 1970, and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SentSample {
    pub time: i64,
    pub value: f64,
}

/// An iterator over the samples of a series.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a> {
    fields: FieldReader<'a>,
}

impl<'a> Samples<'a> {
    /// `series` is read from its current position.
    pub(super) fn new(series: FieldReader<'a>) -> Samples<'a> {
        Samples { fields: series }
    }
}

impl Iterator for Samples<'_> {
    type Item = Result<SentSample, ProtobufError>;

    #[inline]
    fn next(&mut self) -> Option<Result<SentSample, ProtobufError>> {
        loop {
            match self.fields.next_field() {
                Ok(Some(field)) if field.number == SAMPLES_FIELD => {
                    return Some(field.bytes().and_then(sample));
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.fields = FieldReader::new(&[]);
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Reads a sample. Fields that are missing have the value 0.
#[inline]
fn sample(message: &[u8]) -> Result<SentSample, ProtobufError> {
    let mut sample = SentSample {
        time: 0,
        value: 0.0,
    };
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => sample.value = field.double()?,
            2 => sample.time = field.number()? as i64,
            _ => {}
        }
    }
    Ok(sample)
}
