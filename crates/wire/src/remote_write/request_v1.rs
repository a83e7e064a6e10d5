//! Requests of version 1.0: `prometheus.WriteRequest`.

use std::borrow::Cow;

use super::RemoteMetricType;
use super::labels::{LabelsError, SentLabels};
use super::samples::{SAMPLES_FIELD, Samples};
use crate::protobuf_fields::{FieldReader, ProtobufError};

/// An iterator over the series and the metadata of a request. It ends after the first error.
#[derive(Debug, Clone)]
pub struct WriteRequestV1<'a> {
    fields: FieldReader<'a>,
}

/// A part of a request.
#[derive(Debug)]
pub enum WriteItem<'a> {
    Series(TimeSeriesV1<'a>),
    Metadata(MetadataV1<'a>),
}

/// The samples of one series.
#[derive(Debug, Clone)]
pub struct TimeSeriesV1<'a> {
    /// The encoded labels. Equal bytes are equal labels.
    labels: Cow<'a, [u8]>,
    pub samples: Samples<'a>,
    /// The number of samples that are native histograms.
    pub histograms: u64,
    pub exemplars: u64,
}

/// What a sender knows of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataV1<'a> {
    pub metric: &'a [u8],
    pub metric_type: RemoteMetricType,
    pub help: &'a [u8],
    pub unit: &'a [u8],
}

impl<'a> WriteRequestV1<'a> {
    pub fn new(message: &'a [u8]) -> WriteRequestV1<'a> {
        WriteRequestV1 {
            fields: FieldReader::new(message),
        }
    }

    fn next_item(&mut self) -> Result<Option<WriteItem<'a>>, ProtobufError> {
        while let Some(field) = self.fields.next_field()? {
            match field.number {
                1 => return Ok(Some(WriteItem::Series(TimeSeriesV1::read(field.bytes()?)?))),
                3 => {
                    let metadata = MetadataV1::read(field.bytes()?)?;
                    return Ok(Some(WriteItem::Metadata(metadata)));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for WriteRequestV1<'a> {
    type Item = Result<WriteItem<'a>, ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item()
            .inspect_err(|_| self.fields = FieldReader::new(&[]))
            .transpose()
    }
}

impl<'a> TimeSeriesV1<'a> {
    fn read(message: &'a [u8]) -> Result<TimeSeriesV1<'a>, ProtobufError> {
        let mut fields = FieldReader::new(message);
        fields.skip_leading_messages()?;
        let labels_end = fields.position();
        let samples = Samples::new(fields);
        let (mut histograms, mut exemplars) = (0, 0);
        let mut labels = Cow::Borrowed(&message[..labels_end]);
        loop {
            let start = fields.position();
            let Some(field) = fields.next_field()? else {
                break;
            };
            match field.number {
                // Labels after samples: no known sender does this, but protobuf permits it.
                1 => {
                    field.bytes()?;
                    let labels = labels.to_mut();
                    labels.extend_from_slice(&message[start..fields.position()]);
                }
                SAMPLES_FIELD => drop(field.bytes()?),
                3 => exemplars += 1,
                4 => histograms += 1,
                _ => {}
            }
        }
        Ok(TimeSeriesV1 {
            labels,
            samples,
            histograms,
            exemplars,
        })
    }

    /// Returns the labels as they were sent, encoded: a key for known series.
    pub fn label_bytes(&self) -> &[u8] {
        &self.labels
    }

    pub fn labels(&self) -> Result<SentLabels<'_>, LabelsError> {
        SentLabels::from_fields(&self.labels)
    }
}

impl<'a> MetadataV1<'a> {
    fn read(message: &'a [u8]) -> Result<MetadataV1<'a>, ProtobufError> {
        let mut metadata = MetadataV1 {
            metric: b"",
            metric_type: RemoteMetricType(0),
            help: b"",
            unit: b"",
        };
        let mut fields = FieldReader::new(message);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => metadata.metric_type = RemoteMetricType(field.number()?),
                2 => metadata.metric = field.bytes()?,
                4 => metadata.help = field.bytes()?,
                5 => metadata.unit = field.bytes()?,
                _ => {}
            }
        }
        Ok(metadata)
    }
}
