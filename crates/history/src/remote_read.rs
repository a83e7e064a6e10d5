//! Responses of Prometheus' remote read. Stale markers are part of them, bit for bit.

use pegel_query::promql::LabelSet;
use pegel_wire::remote_write::ReadResponseSeries;

use crate::answer::{AnswerBuilder, AnswerError};

/// Reads a compressed response. `bytes_max` bounds it uncompressed.
pub(crate) fn read_response(
    body: &[u8],
    bytes_max: usize,
    builder: &mut AnswerBuilder<'_>,
) -> Result<(), AnswerError> {
    let malformed = |problem: &dyn std::fmt::Display| {
        AnswerError::malformed(format!("not a response of remote read: {problem}"))
    };
    let len = snap::raw::decompress_len(body).map_err(|error| malformed(&error))?;
    if len > bytes_max {
        return Err(AnswerError::TooLarge);
    }
    let message = snap::raw::Decoder::new().decompress_vec(body);
    let message = message.map_err(|error| malformed(&error))?;
    for series in ReadResponseSeries::new(&message) {
        let series = series.map_err(|error| malformed(&error))?;
        if series.histograms > 0 {
            let message = "native histograms are not supported";
            return Err(AnswerError::malformed(message));
        }
        for sample in series.samples {
            let sample = sample.map_err(|error| malformed(&error))?;
            builder.sample(sample.time, sample.value)?;
        }
        let labels = series.labels().map_err(|error| malformed(&error))?;
        let name = [("__name__", labels.name)];
        let labels = name.into_iter().chain(labels.labels.iter().copied());
        builder.end_series(LabelSet::new(labels))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pegel_query::promql::STALE_NAN;
    use pegel_wire::prompb::{Label, Message, QueryResult, ReadResponse, Sample, TimeSeries};

    use super::*;
    use crate::answer::tests::{labels, with_builder};

    fn response(samples: &[(i64, f64)]) -> Vec<u8> {
        let label = |(name, value): (&str, &str)| Label {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let sample = |(timestamp, value): &(i64, f64)| Sample {
            timestamp: *timestamp,
            value: *value,
        };
        let series = TimeSeries {
            labels: labels(&[]).iter().map(label).collect(),
            samples: samples.iter().map(sample).collect(),
            ..TimeSeries::default()
        };
        let result = QueryResult {
            timeseries: vec![series],
        };
        let message = ReadResponse {
            results: vec![result],
        };
        let packed = snap::raw::Encoder::new().compress_vec(&message.encode_to_vec());
        packed.expect("compressed")
    }

    #[test]
    fn values_are_kept_bit_for_bit() {
        let body = response(&[(1_000, 0.1), (1_500, STALE_NAN), (2_000, f64::INFINITY)]);
        let (_, series) =
            with_builder(10_000, |builder| read_response(&body, 10_000, builder)).expect("valid");
        let bits: Vec<u64> = series[0]
            .values
            .iter()
            .map(|value| value.to_bits())
            .collect();
        let expected = [0.1, STALE_NAN, f64::INFINITY].map(f64::to_bits);
        assert_eq!(bits, expected);
    }

    #[test]
    fn malformed_and_large_responses_are_refused() {
        let body = response(&[(1_000, 1.)]);
        let read = |body: &[u8], bytes_max| {
            with_builder(10_000, |builder| read_response(body, bytes_max, builder)).map(drop)
        };
        assert_eq!(read(&body, 10), Err(AnswerError::TooLarge));
        assert!(matches!(read(b"", 10_000), Err(AnswerError::Malformed(_))));
        let truncated = &body[..body.len() - 3];
        assert!(matches!(
            read(truncated, 10_000),
            Err(AnswerError::Malformed(_))
        ));
    }
}
