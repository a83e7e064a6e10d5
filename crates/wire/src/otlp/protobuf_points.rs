//! Data points in protobuf messages. The four kinds have different numbers for the same fields.

use super::protobuf_attributes::push_attribute;
use super::{BUCKETS_MAX, BucketRun, DataPoint, OtlpError, PointValue};
use crate::protobuf_fields::{Field, FieldReader, FieldValue, ProtobufError};

/// The message of a data point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointKind {
    Number,
    Histogram,
    Exponential,
    Summary,
}

impl PointKind {
    /// Returns the numbers of the fields for attributes, exemplars and flags.
    fn common_fields(self) -> (u32, u32, u32) {
        match self {
            PointKind::Number => (7, 5, 8),
            PointKind::Histogram => (9, 8, 10),
            PointKind::Exponential => (1, 11, 10),
            // No exemplars: 0 is not a valid field number.
            PointKind::Summary => (7, 0, 8),
        }
    }
}

/// Reads a data point into `point`, whose memory is used again.
pub(super) fn read_point<'a>(
    message: &'a [u8],
    kind: PointKind,
    point: &mut DataPoint<'a>,
) -> Result<(), OtlpError> {
    clear(point);
    let (attributes, exemplars, flags) = kind.common_fields();
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            2 => point.start_nanos = field.fixed64()?,
            3 => point.time_nanos = field.fixed64()?,
            number if number == attributes => {
                push_attribute(&mut point.attributes, field.bytes()?)?;
            }
            number if number == exemplars => {
                field.bytes()?;
                point.exemplars += 1;
            }
            number if number == flags => point.has_no_value = field.number()? & 1 != 0,
            _ => read_value(&field, kind, &mut point.value)?,
        }
    }
    Ok(())
}

fn clear(point: &mut DataPoint<'_>) {
    let DataPoint {
        attributes, value, ..
    } = std::mem::take(point);
    point.attributes = attributes;
    point.attributes.clear();
    point.value = value;
    point.value.clear();
}

impl PointValue {
    /// Removes everything and keeps the memory.
    pub(super) fn clear(&mut self) {
        let mut lists = std::mem::take(self);
        lists.bucket_counts.clear();
        lists.explicit_bounds.clear();
        lists.quantiles.clear();
        lists.exponential.positive.counts.clear();
        lists.exponential.negative.counts.clear();
        self.bucket_counts = lists.bucket_counts;
        self.explicit_bounds = lists.explicit_bounds;
        self.quantiles = lists.quantiles;
        self.exponential.positive.counts = lists.exponential.positive.counts;
        self.exponential.negative.counts = lists.exponential.negative.counts;
    }
}

fn read_value(field: &Field<'_>, kind: PointKind, value: &mut PointValue) -> Result<(), OtlpError> {
    match (kind, field.number) {
        (PointKind::Number, 4) => value.number = Some(field.double()?),
        (PointKind::Number, 6) => value.number = Some(field.fixed64()? as i64 as f64),
        (PointKind::Number, _) => {}
        (_, 4) => value.count = field.fixed64()?,
        (_, 5) => value.sum = Some(field.double()?),
        (PointKind::Histogram, 6) => push_fixed(field, &mut value.bucket_counts, |bits| bits)?,
        (PointKind::Histogram, 7) => {
            push_fixed(field, &mut value.explicit_bounds, f64::from_bits)?;
        }
        (PointKind::Exponential, 6) => value.exponential.scale = sint32(field.number()?),
        (PointKind::Exponential, 7) => value.exponential.zero_count = field.fixed64()?,
        (PointKind::Exponential, 8) => read_run(field, &mut value.exponential.positive)?,
        (PointKind::Exponential, 9) => read_run(field, &mut value.exponential.negative)?,
        (PointKind::Exponential, 14) => value.exponential.zero_threshold = field.double()?,
        (PointKind::Summary, 6) => {
            let quantile = read_quantile(field.bytes()?)?;
            push_bounded(&mut value.quantiles, quantile)?;
        }
        _ => {}
    }
    Ok(())
}

/// Reads a number in zigzag coding. Bits beyond 32 are dropped, as protobuf specifies.
fn sint32(number: u64) -> i32 {
    let number = number as u32;
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

fn push_bounded<T>(list: &mut Vec<T>, value: T) -> Result<(), OtlpError> {
    if list.len() == BUCKETS_MAX {
        return Err(OtlpError::TooMany("buckets in a data point", BUCKETS_MAX));
    }
    list.push(value);
    Ok(())
}

/// Reads a repeated number of eight bytes, packed or not.
fn push_fixed<T>(
    field: &Field<'_>,
    list: &mut Vec<T>,
    convert: impl Fn(u64) -> T,
) -> Result<(), OtlpError> {
    let FieldValue::Bytes(packed) = field.value else {
        return push_bounded(list, convert(field.fixed64()?));
    };
    let (numbers, rest) = packed.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(ProtobufError::Truncated.into());
    }
    for number in numbers {
        push_bounded(list, convert(u64::from_le_bytes(*number)))?;
    }
    Ok(())
}

/// Reads the buckets of one sign.
fn read_run(field: &Field<'_>, run: &mut BucketRun) -> Result<(), OtlpError> {
    let mut fields = FieldReader::new(field.bytes()?);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, _) => run.offset = sint32(field.number()?),
            (2, FieldValue::Bytes(packed)) => {
                let mut numbers = FieldReader::new(packed);
                while numbers.position() < packed.len() {
                    push_bounded(&mut run.counts, numbers.varint()?)?;
                }
            }
            (2, _) => push_bounded(&mut run.counts, field.number()?)?,
            _ => {}
        }
    }
    Ok(())
}

fn read_quantile(message: &[u8]) -> Result<(f64, f64), ProtobufError> {
    let mut quantile = (0.0, 0.0);
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => quantile.0 = field.double()?,
            2 => quantile.1 = field.double()?,
            _ => {}
        }
    }
    Ok(quantile)
}
