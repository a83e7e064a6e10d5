//! Requests of version 2.0: `io.prometheus.write.v2.Request`. Texts are in a table of symbols, to
//! which labels and metadata refer.

use super::RemoteMetricType;
use super::labels::{LabelsError, SentLabels};
use super::samples::{SAMPLES_FIELD, Samples};
use crate::protobuf_fields::{FieldReader, FieldValue, ProtobufError};

/// The most symbols of a request, and references of a series: more are malformed. Bounds the
/// memory of tables whose entries are larger than their encoding.
const SYMBOLS_MAX: usize = 1 << 18;
const REFERENCES_MAX: usize = 1 << 16;

/// A request.
#[derive(Debug)]
pub struct WriteRequestV2<'a> {
    /// The texts to which labels and metadata refer; not checked to be UTF-8.
    pub symbols: Vec<&'a [u8]>,
    message: &'a [u8],
}

/// The samples of one series.
#[derive(Debug, Clone)]
pub struct TimeSeriesV2<'a> {
    pub samples: Samples<'a>,
    /// The number of samples that are native histograms.
    pub histograms: u64,
    pub exemplars: u64,
    pub metadata: MetadataV2,
}

/// What a sender knows of the metric of a series: its type, and references to help and unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataV2 {
    pub metric_type: RemoteMetricType,
    pub help: u32,
    pub unit: u32,
}

impl<'a> WriteRequestV2<'a> {
    /// Reads the symbols, which may be anywhere in the request.
    pub fn new(message: &'a [u8]) -> Result<WriteRequestV2<'a>, ProtobufError> {
        let mut symbols = Vec::new();
        let mut fields = FieldReader::new(message);
        while let Some(field) = fields.next_field()? {
            if field.number == 4 {
                if symbols.len() == SYMBOLS_MAX {
                    return Err(ProtobufError::TooMany("symbols", SYMBOLS_MAX));
                }
                symbols.push(field.bytes()?);
            }
        }
        Ok(WriteRequestV2 { symbols, message })
    }

    /// Visits the series with the references of their labels: a name and a value in turn. An error
    /// of `visit` ends it and is returned.
    pub fn visit_series(
        &self,
        mut visit: impl FnMut(TimeSeriesV2<'a>, &[u32]) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        let mut references = Vec::new();
        let mut fields = FieldReader::new(self.message);
        while let Some(field) = fields.next_field()? {
            if field.number == 5 {
                references.clear();
                let series = TimeSeriesV2::read(field.bytes()?, &mut references)?;
                visit(series, &references)?;
            }
        }
        Ok(())
    }

    /// Returns the labels to which a series refers.
    pub fn labels(&self, references: &[u32]) -> Result<SentLabels<'a>, LabelsError> {
        SentLabels::from_references(references, &self.symbols)
    }

    /// Returns the beginning of a symbol that is text; empty if it does not exist. Reads no more
    /// than that: many series may refer to one long symbol.
    pub fn text(&self, symbol: u32, bytes_max: usize) -> &'a str {
        let bytes = self.symbols.get(symbol as usize).copied();
        text_start(bytes.unwrap_or_default(), bytes_max)
    }
}

impl<'a> TimeSeriesV2<'a> {
    fn read(
        message: &'a [u8],
        references: &mut Vec<u32>,
    ) -> Result<TimeSeriesV2<'a>, ProtobufError> {
        let mut fields = FieldReader::new(message);
        let mut series = TimeSeriesV2 {
            samples: Samples::new(fields),
            histograms: 0,
            exemplars: 0,
            metadata: MetadataV2 {
                metric_type: RemoteMetricType(0),
                help: 0,
                unit: 0,
            },
        };
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, FieldValue::Bytes(packed)) => read_packed(packed, references)?,
                (1, FieldValue::Number(reference)) => add_reference(reference, references)?,
                (1, _) => return Err(ProtobufError::FieldType(1)),
                (SAMPLES_FIELD, _) => drop(field.bytes()?),
                (3, _) => series.histograms += 1,
                (4, _) => series.exemplars += 1,
                (5, _) => series.metadata.read(field.bytes()?)?,
                _ => {}
            }
        }
        Ok(series)
    }
}

impl MetadataV2 {
    fn read(&mut self, message: &[u8]) -> Result<(), ProtobufError> {
        let mut fields = FieldReader::new(message);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => self.metric_type = RemoteMetricType(field.number()?),
                3 => self.help = field.number()? as u32,
                4 => self.unit = field.number()? as u32,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns as much of the first `bytes_max` bytes as is UTF-8.
pub fn text_start(bytes: &[u8], bytes_max: usize) -> &str {
    let start = &bytes[..bytes.len().min(bytes_max)];
    let mut chunks = start.utf8_chunks();
    chunks.next().map_or("", |chunk| chunk.valid())
}

fn read_packed(packed: &[u8], references: &mut Vec<u32>) -> Result<(), ProtobufError> {
    let mut numbers = FieldReader::new(packed);
    while numbers.position() < packed.len() {
        add_reference(numbers.varint()?, references)?;
    }
    Ok(())
}

/// Adds a reference. Bits beyond 32 are dropped, as protobuf specifies.
#[inline]
fn add_reference(reference: u64, references: &mut Vec<u32>) -> Result<(), ProtobufError> {
    if references.len() == REFERENCES_MAX {
        return Err(ProtobufError::TooMany("label references", REFERENCES_MAX));
    }
    references.push(reference as u32);
    Ok(())
}
