//! Responses of remote read: `prometheus.ReadResponse`, whose series have the form of version 1.0.

use super::request_v1::{TimeSeriesV1, WriteItem, WriteRequestV1};
use crate::protobuf_fields::{FieldReader, ProtobufError};

/// An iterator over the series of all results of a response. It ends after the first error.
#[derive(Debug, Clone)]
pub struct ReadResponseSeries<'a> {
    results: FieldReader<'a>,
    /// The series of one result: field 1, as in a request of remote write.
    series: WriteRequestV1<'a>,
}

impl<'a> ReadResponseSeries<'a> {
    pub fn new(message: &'a [u8]) -> ReadResponseSeries<'a> {
        ReadResponseSeries {
            results: FieldReader::new(message),
            series: WriteRequestV1::new(&[]),
        }
    }

    fn next_series(&mut self) -> Result<Option<TimeSeriesV1<'a>>, ProtobufError> {
        loop {
            match self.series.next().transpose()? {
                Some(WriteItem::Series(series)) => return Ok(Some(series)),
                // A result has no metadata.
                Some(WriteItem::Metadata(_)) => continue,
                None => {}
            }
            match self.results.next_field()? {
                Some(field) if field.number == 1 => {
                    self.series = WriteRequestV1::new(field.bytes()?);
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

impl<'a> Iterator for ReadResponseSeries<'a> {
    type Item = Result<TimeSeriesV1<'a>, ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_series()
            .inspect_err(|_| *self = ReadResponseSeries::new(&[]))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompb::{Label, Message, QueryResult, ReadResponse, Sample, TimeSeries};

    #[test]
    fn series_of_all_results_are_read() {
        let series = |name: &str, value: f64| TimeSeries {
            labels: vec![Label {
                name: "__name__".into(),
                value: name.into(),
            }],
            samples: vec![Sample {
                value,
                timestamp: 7,
            }],
            ..TimeSeries::default()
        };
        let result = |names: &[&str]| QueryResult {
            timeseries: names.iter().map(|name| series(name, 1.5)).collect(),
        };
        let response = ReadResponse {
            results: vec![result(&["a", "b"]), result(&[]), result(&["c"])],
        };
        let message = response.encode_to_vec();
        let names = ReadResponseSeries::new(&message).map(|series| {
            let series = series.expect("valid");
            let samples: Result<Vec<_>, _> = series.samples.collect();
            assert_eq!(samples.expect("valid").len(), 1);
            series.labels().expect("valid").name.to_owned()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c"]);
        let truncated = ReadResponseSeries::new(&message[..message.len() - 1]);
        let count = truncated.clone().count();
        assert!(truncated.last().expect("an error").is_err() && count <= 3);
    }
}
