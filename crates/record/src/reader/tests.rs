use std::sync::Arc;

use pegel_metric::{MetricKind, Millis};

use super::*;
use crate::{KEY_INTERVAL, RecordBlock, RecordWriter};

fn one_sample(series: &str, time: Millis, value: f64) -> RecordSamples {
    RecordSamples {
        series: series.into(),
        kind: MetricKind::Gauge,
        times: [time].into(),
        values: vec![value],
    }
}

/// A document, `ticks` blocks of samples 10 s apart, and the end.
fn blocks(ticks: i64) -> Vec<RecordBlock> {
    let mut writer = RecordWriter::default();
    let mut blocks = vec![writer.document(0, r#"{"node":"n1"}"#)];
    for tick in 0..ticks {
        let series = ["load", "memory{device=\"x\"}"];
        let samples = series.map(|series| one_sample(series, tick * 10_000, tick as f64 * 1.5));
        blocks.extend(writer.samples(&samples));
    }
    blocks.push(writer.end(ticks * 10_000, "{}"));
    blocks
}

fn concat(blocks: &[RecordBlock]) -> Vec<u8> {
    let bytes: Vec<&[u8]> = blocks.iter().map(|block| block.bytes.as_slice()).collect();
    bytes.concat()
}

/// Returns the numbers of the blocks whose content was read.
fn read_numbers(record: &[u8]) -> Vec<u64> {
    let events = RecordReader::new(record);
    let read = events.filter_map(|event| match event {
        RecordEvent::Block {
            content: BlockContent::Undecodable,
            ..
        } => None,
        RecordEvent::Block { header, .. } => Some(header.sequence),
        _ => None,
    });
    read.collect()
}

#[test]
fn every_prefix_is_read_up_to_its_last_whole_block() {
    let blocks = blocks(4);
    let record = concat(&blocks);
    for length in 0..=record.len() {
        let mut whole = 0;
        let mut bytes = 0;
        while whole < blocks.len() && bytes + blocks[whole].bytes.len() <= length {
            bytes += blocks[whole].bytes.len();
            whole += 1;
        }
        let events: Vec<RecordEvent> = RecordReader::new(&record[..length]).collect();
        assert_eq!(read_numbers(&record[..length]).len(), whole);
        let rest: Vec<&RecordEvent> = events.iter().skip(whole).collect();
        match rest[..] {
            [] => assert_eq!(length, bytes),
            [
                RecordEvent::Damaged {
                    damage: BlockDamage::Truncated,
                    position,
                    bytes: damaged,
                    ..
                },
            ] => assert_eq!((*position, *damaged), (bytes, length - bytes)),
            _ => panic!("{rest:?}"),
        }
    }
}

#[test]
fn damage_of_any_byte_costs_the_samples_up_to_the_next_key_block() {
    let blocks = blocks(60);
    let record = concat(&blocks);
    let next_key = (2..)
        .find(|at| blocks[*at].header.kind == RecordBlockKind::Key)
        .expect("two key blocks");
    let mut start = 0;
    for (number, block) in blocks.iter().enumerate() {
        for position in [0, 5, 20, 43, 44, block.bytes.len() - 1] {
            let Some(position) = (position < block.bytes.len()).then_some(start + position) else {
                continue;
            };
            let mut damaged = record.clone();
            damaged[position] ^= 1;
            let is_whole_header = position >= start + HEADER_BYTES;
            let lost_until = match block.header.kind {
                // The kind of a block with a damaged header is unknown.
                RecordBlockKind::Document | RecordBlockKind::End => number + 1,
                _ if number < next_key => next_key,
                _ => blocks.len() - 1,
            };
            let lost = number..lost_until.max(number + 1);
            let expected: Vec<u64> = (0..blocks.len())
                .filter(|at| !lost.contains(at))
                .map(|at| at as u64)
                .collect();
            assert_eq!(read_numbers(&damaged), expected, "block {number}");
            let reports: Vec<RecordEvent> = RecordReader::new(&damaged)
                .filter(|event| !matches!(event, RecordEvent::Block { .. }))
                .collect();
            let number = number as u64;
            match &reports[..] {
                [RecordEvent::Damaged { sequence, .. }] if is_whole_header => {
                    assert_eq!(*sequence, Some(number));
                }
                // The last block has no successor from whose number it could be missed.
                [RecordEvent::Damaged { .. }] if number as usize == blocks.len() - 1 => {}
                [
                    RecordEvent::Damaged { sequence: None, .. },
                    RecordEvent::Missing { first, last },
                ] => assert_eq!((*first, *last), (number, number)),
                _ => panic!("{reports:?}"),
            }
        }
        start += block.bytes.len();
    }
}

#[test]
fn lost_inserted_and_repeated_bytes_cost_only_their_blocks() {
    let blocks = blocks(5);
    let starts: Vec<usize> = blocks
        .iter()
        .scan(0, |at, block| {
            Some(std::mem::replace(at, *at + block.bytes.len()))
        })
        .collect();
    let record = concat(&blocks);
    // Bytes are missing within the document: the samples are read.
    let shorter = [&record[..50], &record[53..]].concat();
    assert_eq!(read_numbers(&shorter), [1, 2, 3, 4, 5, 6]);
    let foreign = [
        &record[..starts[2]],
        &b"PGLR and more"[..],
        &record[starts[2]..],
    ]
    .concat();
    assert_eq!(read_numbers(&foreign), [0, 1, 2, 3, 4, 5, 6]);
    let repeated = [&record[..starts[3]], &record[starts[1]..]].concat();
    assert_eq!(read_numbers(&repeated), [0, 1, 2, 3, 4, 5, 6]);
    let count = RecordReader::new(&repeated)
        .filter(|event| matches!(event, RecordEvent::Repeated { .. }))
        .count();
    assert_eq!(count, 2);
}

#[test]
fn a_writer_that_continues_starts_with_a_key_block() {
    let mut writer = RecordWriter::default();
    let first = writer.samples(&[one_sample("a", 0, 1.0)]);
    writer.continue_at(1);
    let second = writer.samples(&[one_sample("a", 1000, 2.0)]);
    assert_eq!(second[0].header.kind, RecordBlockKind::Key);
    assert_eq!(read_numbers(&concat(&[first, second].concat())), [0, 1]);
}

#[test]
fn key_blocks_follow_each_other_at_the_interval_and_after_a_step_back() {
    let mut writer = RecordWriter::default();
    let times = [0, KEY_INTERVAL - 1, KEY_INTERVAL, 1, 2];
    let kinds = times.map(|time| writer.samples(&[one_sample("a", time, 1.0)])[0].header.kind);
    use RecordBlockKind::{Key, Samples};
    assert_eq!(kinds, [Key, Samples, Key, Key, Samples]);
}

#[test]
fn series_that_come_and_go_keep_kind_times_and_values() {
    let fast: Arc<[Millis]> = (0..10).map(|tick| tick * 1000).collect();
    let slow: Arc<[Millis]> = [500, 5500].into();
    let of = |series: &str, kind, times: &Arc<[Millis]>, offset: f64| RecordSamples {
        series: series.into(),
        kind,
        times: times.clone(),
        values: times.iter().map(|time| *time as f64 + offset).collect(),
    };
    let flushes = [
        vec![
            of("a", MetricKind::Counter, &fast, 0.1),
            of("b", MetricKind::Gauge, &slow, f64::NAN),
        ],
        vec![of("c", MetricKind::Unknown, &fast, 1e17)],
        vec![
            of("a", MetricKind::Counter, &slow, 7.0),
            of("c", MetricKind::Gauge, &fast, 0.0),
        ],
    ];
    let mut writer = RecordWriter::default();
    let blocks: Vec<RecordBlock> = flushes
        .iter()
        .flat_map(|flush| writer.samples(flush))
        .collect();
    let record = concat(&blocks);
    let read = RecordReader::new(&record).map(|event| match event {
        RecordEvent::Block {
            content: BlockContent::Samples(samples),
            ..
        } => samples,
        other => panic!("{other:?}"),
    });
    for (read, written) in read.zip(&flushes) {
        assert_eq!(read.len(), written.len());
        for (read, written) in read.iter().zip(written) {
            assert_eq!((&read.series, read.kind), (&written.series, written.kind));
            assert_eq!(read.times, written.times);
            let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
            assert_eq!(bits(&read.values), bits(&written.values));
        }
    }
}

#[test]
fn samples_that_exceed_a_block_are_split_and_none_is_lost() {
    let count = 1_500_000;
    let long = RecordSamples {
        series: "long".into(),
        kind: MetricKind::Counter,
        times: (0..count).collect(),
        values: vec![1.0; count as usize],
    };
    let empty = RecordSamples {
        times: [].into(),
        values: Vec::new(),
        ..long.clone()
    };
    let twice = [
        long.clone(),
        empty,
        one_sample("short", 5, 2.0),
        one_sample("short", 6, 3.0),
    ];
    let mut writer = RecordWriter::default();
    let blocks = writer.samples(&twice);
    assert!(blocks.len() > 2, "{}", blocks.len());
    let record = concat(&blocks);
    let mut counts = [0, 0];
    for event in RecordReader::new(&record) {
        let RecordEvent::Block {
            content: BlockContent::Samples(samples),
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        for one in samples {
            counts[usize::from(&*one.series == "short")] += one.values.len();
        }
    }
    assert_eq!(counts, [count as usize, 2]);
    assert!(writer.samples(&[]).is_empty());
}

#[test]
fn overlapping_headers_are_not_searched_without_end() {
    // Headers with right checksums, each of which claims the whole rest as its damaged body.
    let count = 2000;
    let mut bytes = Vec::new();
    for number in 0..count {
        let rest = vec![0; (count - number - 1) * HEADER_BYTES];
        let kind = RecordBlockKind::Document;
        let header = RecordBlockHeader::new(kind, number as u64, (0, 0), &rest);
        header.write(&[], &mut bytes);
    }
    let mut reader = RecordReader::new(&bytes);
    let events = reader.by_ref().count();
    assert!(events < 10, "{events}");
    assert_eq!(reader.search_bytes_left, 0);
}
