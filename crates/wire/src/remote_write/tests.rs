//! Messages that both versions must read in the same way as senders write them, and malformed ones.

use pegel_metric::{SeriesError, TEXT_BYTES_MAX};

use super::*;
use crate::prompb::{self, Message, write_v2};

fn label(name: &str, value: &str) -> prompb::Label {
    prompb::Label {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn series_v1(labels: Vec<prompb::Label>, samples: &[(i64, f64)]) -> prompb::TimeSeries {
    let sample = |&(timestamp, value): &(i64, f64)| prompb::Sample { timestamp, value };
    prompb::TimeSeries {
        labels,
        samples: samples.iter().map(sample).collect(),
        ..prompb::TimeSeries::default()
    }
}

fn request_v1(timeseries: Vec<prompb::TimeSeries>) -> Vec<u8> {
    let metadata = Vec::new();
    prompb::WriteRequest {
        timeseries,
        metadata,
    }
    .encode_to_vec()
}

fn times(samples: Samples<'_>) -> Vec<i64> {
    samples.map(|sample| sample.expect("valid").time).collect()
}

#[test]
fn labels_and_samples_of_version_1_are_read() {
    let labels = vec![
        label("__name__", "m"),
        label("b", "ü"),
        label("a", ""),
        label("c", "1"),
    ];
    let message = request_v1(vec![series_v1(
        labels,
        &[(5, 1.5), (0, 0.0), (-7, f64::NAN)],
    )]);
    let items: Vec<_> = WriteRequestV1::new(&message).collect();
    let [Ok(WriteItem::Series(series))] = &items[..] else {
        panic!("{items:?}");
    };
    let labels = series.labels().expect("valid");
    assert_eq!(
        (labels.name, labels.labels),
        ("m", vec![("b", "ü"), ("c", "1")])
    );
    assert_eq!(times(series.samples), [5, 0, -7]);
}

#[test]
fn labels_after_samples_belong_to_their_series() {
    let front = series_v1(vec![label("__name__", "m")], &[(1, 1.0)]).encode_to_vec();
    let back = series_v1(vec![label("a", "1")], &[(2, 1.0)]).encode_to_vec();
    let mut message = vec![1 << 3 | 2, (front.len() + back.len()) as u8];
    message.extend(front.iter().chain(&back));
    let Some(Ok(WriteItem::Series(series))) = WriteRequestV1::new(&message).next() else {
        panic!("a series");
    };
    let labels = series.labels().expect("valid");
    assert_eq!((labels.name, labels.labels), ("m", vec![("a", "1")]));
    assert_eq!(times(series.samples), [1, 2]);
    let whole = series_v1(vec![label("__name__", "m"), label("a", "1")], &[]);
    let whole = request_v1(vec![whole]);
    let Some(Ok(WriteItem::Series(whole))) = WriteRequestV1::new(&whole).next() else {
        panic!("a series");
    };
    assert_eq!(series.label_bytes(), whole.label_bytes(), "the same key");
}

#[test]
fn labels_that_no_series_can_have_are_refused() {
    let labels = |labels: Vec<prompb::Label>| {
        let message = request_v1(vec![series_v1(labels, &[])]);
        let Some(Ok(WriteItem::Series(series))) = WriteRequestV1::new(&message).next() else {
            panic!("a series");
        };
        series.labels().map(|labels| labels.labels.len())
    };
    let many = |count: usize| {
        let many = (0..count).map(|number| label(&format!("l{number}"), "v"));
        many.chain([label("__name__", "m")]).collect()
    };
    assert_eq!(labels(vec![label("a", "1")]), Err(LabelsError::NoName));
    assert_eq!(
        labels(vec![label("__name__", "")]),
        Err(LabelsError::NoName)
    );
    assert_eq!(labels(many(64)), Ok(64));
    let too_many = LabelsError::Series(SeriesError::TooManyLabels(10_000));
    assert_eq!(labels(many(10_000)), Err(too_many));
}

#[test]
fn version_2_refers_to_symbols() {
    let message = write_v2::Request {
        symbols: ["", "__name__", "m", "a", "1"].map(str::to_owned).to_vec(),
        timeseries: vec![write_v2::TimeSeries {
            labels_refs: vec![1, 2, 3, 4],
            samples: vec![write_v2::Sample {
                timestamp: 5,
                value: 1.0,
            }],
            histograms: vec![Vec::new(), Vec::new()],
            ..write_v2::TimeSeries::default()
        }],
    }
    .encode_to_vec();
    let request = WriteRequestV2::new(&message).expect("valid");
    let mut visited = 0;
    let result = request.visit_series(|series, references| {
        visited += 1;
        let labels = request.labels(references).expect("valid");
        assert_eq!((labels.name, labels.labels), ("m", vec![("a", "1")]));
        assert_eq!((times(series.samples), series.histograms), (vec![5], 2));
        Ok(())
    });
    assert_eq!((result, visited), (Ok(()), 1));
    assert_eq!(request.labels(&[1, 2, 3]), Err(LabelsError::OddReferences));
    assert_eq!(request.labels(&[1, 9]), Err(LabelsError::NoSymbol(9)));
    assert_eq!(request.text(2, 10), "m");
    assert_eq!(request.text(9, 10), "");
}

#[test]
fn long_symbols_are_refused_by_their_lengths_alone() {
    // Not UTF-8: reading it would be another error.
    let long = [0xff; TEXT_BYTES_MAX + 1];
    let mut message = Vec::new();
    for symbol in [&b""[..], b"__name__", &long, b"m", b"key"] {
        message.push(4 << 3 | 2);
        prost::encoding::encode_varint(symbol.len() as u64, &mut message);
        message.extend(symbol);
    }
    let request = WriteRequestV2::new(&message).expect("valid");
    let too_long = |bytes| Err(LabelsError::Series(SeriesError::TextTooLong(bytes)));
    let (name, rest) = ([1, 3], long.len());
    assert_eq!(request.labels(&[1, 2]), too_long(rest));
    for label in [[4, 2], [2, 4], [2, 0]] {
        let labels = request.labels(&[name, label].concat());
        let bytes = 1 + rest + if label[1] == 0 { 0 } else { 3 };
        assert_eq!(labels, too_long(bytes), "{label:?}");
    }
    // Nor are labels read that are beyond the limit of their number.
    let many = [name, [4, 3]].concat();
    let many = [many, [4, 3].repeat(63), [2, 2].repeat(1000)].concat();
    let too_many = Err(LabelsError::Series(SeriesError::TooManyLabels(1064)));
    assert_eq!(request.labels(&many), too_many);
    assert_eq!(text_start("aü".as_bytes(), 2), "a");
    assert_eq!(text_start("aü".as_bytes(), 3), "aü");
}

#[test]
fn long_labels_of_version_1_are_refused_by_their_lengths_alone() {
    let labels = |value: usize| {
        let labels = vec![label("__name__", "m"), label("k", &"v".repeat(value))];
        let message = request_v1(vec![series_v1(labels, &[])]);
        let Some(Ok(WriteItem::Series(series))) = WriteRequestV1::new(&message).next() else {
            panic!("a series");
        };
        series.labels().map(|labels| labels.labels.len())
    };
    assert_eq!(labels(TEXT_BYTES_MAX - 2), Ok(1));
    let too_long = LabelsError::Series(SeriesError::TextTooLong(TEXT_BYTES_MAX + 1));
    assert_eq!(labels(TEXT_BYTES_MAX - 1), Err(too_long));
}

#[test]
fn messages_that_end_too_early_are_malformed() {
    let message = request_v1(vec![series_v1(vec![label("__name__", "m")], &[(1, 1.0)])]);
    for end in 1..message.len() {
        let items: Result<Vec<_>, _> = WriteRequestV1::new(&message[..end]).collect();
        assert_eq!(
            items.map(|items| items.len()),
            Err(ProtobufError::Truncated),
            "{end}"
        );
    }
    for (message, expected) in [
        (&[0x80; 11][..], ProtobufError::LongNumber),
        (&[0x07], ProtobufError::Tag),
        (&[0x02, 0], ProtobufError::Tag),
        (&[0x08, 1], ProtobufError::FieldType(1)),
        (&[0x0a, 2, 0x08, 1], ProtobufError::FieldType(1)),
        (
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
            ],
            ProtobufError::Truncated,
        ),
    ] {
        let items: Result<Vec<_>, _> = WriteRequestV1::new(message).collect();
        assert_eq!(items.map(|items| items.len()), Err(expected), "{message:?}");
    }
}
