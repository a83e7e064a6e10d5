//! The labels of a series, decoded and checked as far as both versions require it.

use pegel_metric::{LABELS_MAX, SeriesError, TEXT_BYTES_MAX};

use crate::protobuf_fields::{FieldReader, ProtobufError};

/// The label that holds the name of a metric.
const NAME: &str = "__name__";

/// The name and the other labels of a series, in the order in which they were sent. Labels without
/// a value are left out: in Prometheus they are the same as absent ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SentLabels<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Why the labels of a series are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    #[error("malformed labels: {0}")]
    Malformed(#[from] ProtobufError),
    #[error("a label is not UTF-8")]
    Utf8,
    #[error("no label __name__")]
    NoName,
    #[error("a label refers to symbol {0}, which the request does not contain")]
    NoSymbol(u32),
    #[error("an odd number of references to names and values of labels")]
    OddReferences,
    #[error(transparent)]
    Series(#[from] SeriesError),
}

impl<'a> SentLabels<'a> {
    /// Decodes the fields `labels` of a series of version 1.0.
    pub(super) fn from_fields(fields: &'a [u8]) -> Result<SentLabels<'a>, LabelsError> {
        let mut collector = LabelCollector::default();
        let mut fields = FieldReader::new(fields);
        while let Some(field) = fields.next_field()? {
            let (mut key, mut value) = (&b""[..], &b""[..]);
            let mut label = FieldReader::new(field.bytes()?);
            while let Some(field) = label.next_field()? {
                match field.number {
                    1 => key = field.bytes()?,
                    2 => value = field.bytes()?,
                    _ => {}
                }
            }
            collector.add(key, value)?;
        }
        collector.finish()
    }

    /// Looks up the labels of a series of version 2.0: references to a name and a value in turn.
    pub(super) fn from_references(
        references: &[u32],
        symbols: &[&'a [u8]],
    ) -> Result<SentLabels<'a>, LabelsError> {
        let symbol = |reference: u32| {
            let symbol = symbols.get(reference as usize);
            symbol.copied().ok_or(LabelsError::NoSymbol(reference))
        };
        let mut collector = LabelCollector::default();
        let (pairs, rest) = references.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(LabelsError::OddReferences);
        }
        for &[key, value] in pairs {
            collector.add(symbol(key)?, symbol(value)?)?;
        }
        collector.finish()
    }
}

/// Collects labels; counts those beyond the limit without keeping them. Ends at the first label
/// that makes the series too long, before its characters are checked: in version 2.0 every series
/// of a request may refer to the same long text, many times.
#[derive(Default)]
struct LabelCollector<'a> {
    list: SentLabels<'a>,
    /// The length of the name, and of all keys and values that were sent.
    bytes: usize,
    has_name: bool,
    surplus: usize,
}

impl<'a> LabelCollector<'a> {
    fn add(&mut self, key: &'a [u8], value: &'a [u8]) -> Result<(), LabelsError> {
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map_err(|_| LabelsError::Utf8);
        let is_name = key == NAME.as_bytes();
        if !is_name && self.list.labels.len() == LABELS_MAX {
            self.surplus += 1;
            return Ok(());
        }
        self.bytes += value.len() + if is_name { 0 } else { key.len() };
        if self.bytes > TEXT_BYTES_MAX {
            return Err(SeriesError::TextTooLong(self.bytes).into());
        }
        let (key, value) = (text(key)?, text(value)?);
        if is_name {
            if self.has_name {
                return Err(SeriesError::DuplicateLabel(NAME.to_owned()).into());
            }
            (self.list.name, self.has_name) = (value, true);
        } else if !value.is_empty() || key.is_empty() {
            self.list.labels.push((key, value));
        }
        Ok(())
    }

    fn finish(self) -> Result<SentLabels<'a>, LabelsError> {
        if self.surplus > 0 {
            return Err(SeriesError::TooManyLabels(LABELS_MAX + self.surplus).into());
        }
        if self.list.name.is_empty() {
            return Err(LabelsError::NoName);
        }
        Ok(self.list)
    }
}
