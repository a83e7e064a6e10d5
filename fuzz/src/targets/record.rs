//! Records of tasks: the frames of blocks, their bodies, and the way from samples and back.

use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};
use pegel_record::fuzzing::frame_body;
use pegel_record::{
    BlockContent, RecordBlockKind, RecordEvent, RecordReader, RecordSamples, RecordWriter,
};

use super::Target;
use crate::memory::bounded;
use crate::source::InputReader;

/// The memory limit of reading one block at a time: its samples, its text, the models of its
/// series.
const READ_BYTES_MAX: usize = 256 << 20;

/// The size of a header in front of a body.
const HEADER_BYTES: usize = 44;

pub(super) const RECORD: Target = Target {
    name: "record",
    run: record,
    dictionary: &[
        b"PGLR\x01\x01\0\0",
        b"PGLR\x01\x02\0\0",
        b"PGLR\x01\x03\0\0",
    ],
    seeds: || (0..6).map(|shape| written_record(shape).concat()).collect(),
};

pub(super) const RECORD_BODIES: Target = Target {
    name: "record_bodies",
    run: record_bodies,
    dictionary: &[],
    seeds: || {
        (0..6)
            .map(|shape| bodies_of(&written_record(shape)))
            .collect()
    },
};

pub(super) const RECORD_ROUND_TRIP: Target = Target {
    name: "record_round_trip",
    run: record_round_trip,
    dictionary: &[],
    seeds: || {
        let inputs = (1..7_u8).map(|step| {
            let bytes = (0..500_u32).map(|at| (at * at / 3) as u8 / step);
            bytes.collect()
        });
        inputs.collect()
    },
};

/// The blocks of a small record.
fn written_record(shape: i64) -> Vec<Vec<u8>> {
    let mut writer = RecordWriter::default();
    let mut blocks = vec![writer.document(0, "{\"node\":\"n1\"}")];
    for flush in 0..5 {
        let start = flush * 100_000 * (1 + shape % 2);
        let times: Arc<[Millis]> = (0..8).map(|tick| start + tick * 1000).collect();
        let samples = (0..=shape).map(|number| RecordSamples {
            series: format!("series_{number}{{a=\"b\"}}").into(),
            kind: MetricKind::ALL[number as usize % 3],
            times: times.clone(),
            values: times
                .iter()
                .map(|time| (time * (number + 1) % 977) as f64 / (number + 1) as f64)
                .collect(),
        });
        blocks.extend(writer.samples(&samples.collect::<Vec<_>>()));
    }
    blocks.push(writer.autopsy(9, "{}"));
    blocks.push(writer.end(10, "{}"));
    blocks.into_iter().map(|block| block.bytes).collect()
}

/// The bodies of blocks, each after its kind and length: the form that `record_bodies` reads.
fn bodies_of(blocks: &[Vec<u8>]) -> Vec<u8> {
    let bodies = blocks.iter().flat_map(|block| {
        let body = &block[HEADER_BYTES..];
        let length = (body.len() as u16).to_le_bytes();
        [&[block[5] - 1][..], &length, body].concat()
    });
    bodies.collect()
}

fn record(input: &[u8]) {
    let mut next = 0;
    let mut accounted = 0;
    let mut reader = RecordReader::new(input);
    while let Some(event) = bounded(READ_BYTES_MAX, || reader.next()) {
        let (position, bytes) = match event {
            RecordEvent::Missing { first, last } => {
                assert!(first <= last);
                continue;
            }
            RecordEvent::Damaged {
                position, bytes, ..
            } => (position, bytes),
            RecordEvent::Block {
                header, position, ..
            }
            | RecordEvent::Repeated { header, position }
            | RecordEvent::Malformed {
                header, position, ..
            } => (position, header.block_bytes()),
        };
        // Every byte is reported once, in order.
        assert_eq!(position, next);
        assert!(bytes > 0);
        next += bytes;
        accounted += bytes;
    }
    assert_eq!(accounted, input.len());
}

fn record_bodies(input: &[u8]) {
    let mut source = InputReader::new(input);
    let mut record = Vec::new();
    let mut count = 0;
    while !source.is_empty() {
        let kind = match source.u8() % 5 {
            0 => RecordBlockKind::Document,
            1 => RecordBlockKind::Key,
            2 => RecordBlockKind::Samples,
            3 => RecordBlockKind::Autopsy,
            _ => RecordBlockKind::End,
        };
        let length = usize::from(source.u16());
        record.extend(frame_body(kind, count, source.take(length)));
        count += 1;
    }
    let mut reader = RecordReader::new(&record);
    let mut read = 0;
    while let Some(event) = bounded(READ_BYTES_MAX, || reader.next()) {
        match event {
            RecordEvent::Block { content, .. } => {
                if let BlockContent::Samples(samples) = content {
                    let is_matched = |one: &RecordSamples| one.times.len() == one.values.len();
                    assert!(samples.iter().all(is_matched));
                }
            }
            RecordEvent::Malformed { .. } => {}
            other => panic!("{other:?}"),
        }
        read += 1;
    }
    assert_eq!(read, count);
}

fn record_round_trip(input: &[u8]) {
    let mut source = InputReader::new(input);
    let mut writer = RecordWriter::default();
    let mut written = Vec::new();
    let mut record = Vec::new();
    let mut time = source.u64() as i64 >> 8;
    while !source.is_empty() {
        let mut flush = Vec::new();
        for number in 0..=source.up_to(5) {
            time += i64::from(source.u16()) << source.up_to(10);
            let count = source.up_to(12);
            let times: Arc<[Millis]> = (0..count).map(|tick| time + tick as i64 * 500).collect();
            flush.push(RecordSamples {
                series: format!("s{}", number + source.up_to(2)).into(),
                kind: MetricKind::ALL[source.up_to(2)],
                values: times.iter().map(|_| source.float()).collect(),
                times,
            });
        }
        let blocks = writer.samples(&flush);
        record.extend(blocks.into_iter().flat_map(|block| block.bytes));
        written.extend(flush.into_iter().filter(|one| !one.values.is_empty()));
    }
    let mut read = Vec::new();
    for event in RecordReader::new(&record) {
        let RecordEvent::Block {
            content: BlockContent::Samples(samples),
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        read.extend(samples);
    }
    // Within a block, series are in the order of their first occurrence.
    let key = |one: &RecordSamples| {
        let bits: Vec<u64> = one.values.iter().map(|value| value.to_bits()).collect();
        (one.series.clone(), one.kind, one.times.clone(), bits)
    };
    let mut written: Vec<_> = written.iter().map(key).collect();
    let mut read: Vec<_> = read.iter().map(key).collect();
    written.sort();
    read.sort();
    assert_eq!(read, written);
}
