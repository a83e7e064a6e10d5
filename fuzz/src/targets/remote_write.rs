//! The messages of Prometheus' remote write, compared with a second decoder.

use pegel_wire::prompb::{self, Message, write_v2};
use pegel_wire::remote_write::{
    LabelsError, ProtobufError, Samples, SentLabels, WriteItem, WriteRequestV1, WriteRequestV2,
};

use super::Target;
use crate::memory::bounded;

const DICTIONARY: &[&[u8]] = &[
    b"\x0a\x0d\x0a\x08__name__\x12\x01m",
    b"\x0a\x06\x0a\x01a\x12\x01b",
    b"\x12\x10\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x80\x80\x80\x80\x80\x32",
    b"\x12\x09\x09\x02\x00\x00\x00\x00\x00\xf0\x7f",
    b"\x0a\x04\x01\x02\x03\x04",
    b"\x08\x01",
    b"\x22\x00",
    b"\x22\x08__name__",
    b"\x2a\x06\x08\x01\x18\x02\x20\x03",
    b"\x1a\x02\x08\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];

pub(super) const V1: Target = Target {
    name: "remote_write_v1",
    run: version_1,
    dictionary: DICTIONARY,
    seeds: seeds_v1,
};

pub(super) const V2: Target = Target {
    name: "remote_write_v2",
    run: version_2,
    dictionary: DICTIONARY,
    seeds: seeds_v2,
};

fn bytes_max(input: &[u8]) -> usize {
    // The smallest symbol has two bytes, and sixteen in the table.
    64 * input.len() + (1 << 16)
}

fn seeds_v1() -> Vec<Vec<u8>> {
    let label = |name: &str, value: &str| prompb::Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let sample = |timestamp: i64, value: f64| prompb::Sample { timestamp, value };
    let request = prompb::WriteRequest {
        timeseries: vec![
            prompb::TimeSeries {
                labels: vec![
                    label("__name__", "up"),
                    label("job", "ü"),
                    label("empty", ""),
                ],
                samples: vec![sample(1_713_379_493_250, 1.0), sample(0, f64::NAN)],
                exemplars: vec![prompb::Exemplar::default()],
                histograms: vec![vec![8, 1]],
            },
            prompb::TimeSeries {
                labels: vec![label("a", "1"), label("a", "2"), label("__name__", "m")],
                samples: vec![sample(-1, f64::NEG_INFINITY)],
                ..prompb::TimeSeries::default()
            },
        ],
        metadata: vec![prompb::MetricMetadata {
            r#type: 1,
            metric_family_name: "up".to_owned(),
            help: "Help.".to_owned(),
            unit: "seconds".to_owned(),
        }],
    };
    vec![request.encode_to_vec()]
}

fn seeds_v2() -> Vec<Vec<u8>> {
    let series = write_v2::TimeSeries {
        labels_refs: vec![1, 2, 3, 0],
        samples: vec![write_v2::Sample {
            timestamp: 1_713_379_493_250,
            value: 1.5,
        }],
        histograms: vec![vec![8, 1]],
        exemplars: vec![write_v2::Exemplar::default()],
        metadata: Some(write_v2::Metadata {
            r#type: 3,
            help_ref: 4,
            unit_ref: 300,
        }),
    };
    let request = write_v2::Request {
        symbols: ["", "__name__", "m", "ä", "Help."]
            .map(str::to_owned)
            .to_vec(),
        timeseries: vec![series.clone(), series],
    };
    vec![request.encode_to_vec()]
}

/// The two decoders agree on every message that both accept. Ours refuses groups, which proto3 does
/// not have.
fn version_1(input: &[u8]) {
    let ours: Result<Vec<WriteItem<'_>>, ProtobufError> =
        bounded(bytes_max(input), || WriteRequestV1::new(input).collect());
    let Ok(theirs) = prompb::WriteRequest::decode(input) else {
        if let Ok(ours) = ours {
            use_all(&ours);
        }
        return;
    };
    let ours = match ours {
        Ok(ours) => ours,
        Err(error) => return assert_eq!(error, ProtobufError::Tag),
    };
    let mut series = theirs.timeseries.iter();
    let mut metadata = theirs.metadata.iter();
    for item in &ours {
        match item {
            WriteItem::Series(ours) => {
                let theirs = series.next().expect("as many");
                let labels = theirs.labels.iter();
                let labels = labels.map(|label| (&*label.name, &*label.value));
                compare_labels(ours.labels(), labels.collect());
                let samples = theirs.samples.iter();
                let samples = samples.map(|sample| (sample.timestamp, sample.value));
                compare_samples(ours.samples, samples.collect());
                assert_eq!(ours.histograms, theirs.histograms.len() as u64);
                assert_eq!(ours.exemplars, theirs.exemplars.len() as u64);
            }
            WriteItem::Metadata(ours) => {
                let theirs = metadata.next().expect("as many");
                assert_eq!(ours.metric, theirs.metric_family_name.as_bytes());
                assert_eq!(ours.help, theirs.help.as_bytes());
                assert_eq!(ours.unit, theirs.unit.as_bytes());
                assert_eq!(ours.metric_type.0 as i32, theirs.r#type);
            }
        }
    }
    assert!(series.next().is_none() && metadata.next().is_none());
}

fn use_all(items: &[WriteItem<'_>]) {
    for item in items {
        if let WriteItem::Series(series) = item {
            let _ = series.labels();
            let _ = series.samples.count();
        }
    }
}

fn version_2(input: &[u8]) {
    let ours = bounded(bytes_max(input), || WriteRequestV2::new(input));
    let theirs = write_v2::Request::decode(input);
    let ours = match (ours, &theirs) {
        (Ok(ours), _) => ours,
        (Err(error), Ok(_)) => return assert_eq!(error, ProtobufError::Tag),
        (Err(_), Err(_)) => return,
    };
    let mut series = theirs.as_ref().ok().map(|theirs| theirs.timeseries.iter());
    let visited = ours.visit_series(|ours_of_one, references| {
        let labels = ours.labels(references);
        let _ = ours_of_one.samples.count();
        let Some(series) = &mut series else {
            return Ok(());
        };
        let theirs = series.next().expect("as many");
        assert_eq!(references, theirs.labels_refs);
        if let Ok(labels) = labels {
            let texts = references.as_chunks::<2>().0.iter();
            let text = |symbol| ours.text(symbol, usize::MAX);
            let texts = texts.map(|&[name, value]| (text(name), text(value)));
            compare_labels(Ok(labels), texts.collect());
        }
        let samples = theirs.samples.iter();
        let samples = samples.map(|sample| (sample.timestamp, sample.value));
        compare_samples(ours_of_one.samples, samples.collect());
        assert_eq!(ours_of_one.histograms, theirs.histograms.len() as u64);
        assert_eq!(ours_of_one.exemplars, theirs.exemplars.len() as u64);
        let metadata = theirs.metadata.unwrap_or_default();
        assert_eq!(ours_of_one.metadata.metric_type.0 as i32, metadata.r#type);
        Ok(())
    });
    match visited {
        Ok(()) => assert!(series.is_none_or(|mut series| series.next().is_none())),
        Err(error) if theirs.is_ok() => assert_eq!(error, ProtobufError::Tag),
        Err(_) => {}
    }
}

fn compare_labels(ours: Result<SentLabels<'_>, LabelsError>, theirs: Vec<(&str, &str)>) {
    let Ok(ours) = ours else {
        return;
    };
    let mut names = theirs.iter().filter(|(name, _)| *name == "__name__");
    assert_eq!(names.next(), Some(&("__name__", ours.name)));
    let others = theirs.into_iter();
    let others = others
        .filter(|(name, value)| *name != "__name__" && (!value.is_empty() || name.is_empty()));
    assert_eq!(ours.labels, others.collect::<Vec<_>>());
}

fn compare_samples(ours: Samples<'_>, theirs: Vec<(i64, f64)>) {
    let ours: Result<Vec<(i64, u64)>, ProtobufError> = ours
        .map(|sample| sample.map(|sample| (sample.time, sample.value.to_bits())))
        .collect();
    let theirs: Vec<(i64, u64)> = theirs
        .into_iter()
        .map(|(time, value)| (time, value.to_bits()))
        .collect();
    match ours {
        Ok(ours) => assert_eq!(ours, theirs),
        Err(error) => assert_eq!(error, ProtobufError::Tag),
    }
}
