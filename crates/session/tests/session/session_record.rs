use std::fs;

use pegel_record::{BlockContent, RecordEvent, RecordReader};
use pegel_session::{SessionRecord, SessionRecordError, SpoolError};
use pegel_testkit::{SmallDisk, TempDir};

use crate::samples;

/// Returns all blocks in a spool, in order.
fn spooled(dir: &std::path::Path) -> Vec<u8> {
    let entries = fs::read_dir(dir).expect("a spool").flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_stem().is_some_and(|stem| stem.len() == 33))
        .collect();
    paths.sort();
    let blocks = paths
        .iter()
        .flat_map(|path| fs::read(path).expect("readable"));
    blocks.collect()
}

#[test]
fn a_spool_that_is_never_emptied_keeps_the_first_document_and_the_latest_samples() {
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), 2_000).expect("a spool");
    record.write_document(0, "{\"node\":\"n1\"}").expect("room");
    for tick in 0..500 {
        record.write_samples(&samples(tick * 1000)).expect("room");
        assert!(record.spool().lock().waiting_bytes() <= 2_000);
    }
    let bytes = spooled(dir.path());
    let events: Vec<RecordEvent> = RecordReader::new(&bytes).collect();
    let RecordEvent::Block {
        content: BlockContent::Text(text),
        ..
    } = &events[0]
    else {
        panic!("{:?}", events[0]);
    };
    assert_eq!(text, "{\"node\":\"n1\"}");
    let RecordEvent::Missing { first: 1, last } = events[1] else {
        panic!("{:?}", events[1]);
    };
    assert_eq!(record.spool().lock().dropped_blocks(), last);
    // Everything after the gap is decoded.
    let times = events[2..].iter().map(|event| match event {
        RecordEvent::Block {
            content: BlockContent::Samples(samples),
            ..
        } => samples[0].times[0],
        other => panic!("{other:?}"),
    });
    let times: Vec<i64> = times.collect();
    assert!(times.is_sorted() && times.last() == Some(&499_000));
}

#[test]
fn a_record_that_ended_takes_nothing_more_also_after_a_restart() {
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), 1 << 20).expect("a spool");
    assert!(record.is_empty() && !record.has_ended());
    record.write_autopsy(5, "{}").expect("room");
    record.end(6, "{}").expect("room");
    assert!(matches!(
        record.write_samples(&samples(7)),
        Err(SessionRecordError::Ended)
    ));
    drop(record);
    let mut record = SessionRecord::open(dir.path(), 1 << 20).expect("a spool");
    assert!(record.has_ended() && !record.is_empty());
    assert!(matches!(
        record.end(8, "{}"),
        Err(SessionRecordError::Ended)
    ));
}

#[test]
fn a_full_disk_is_reported_and_the_record_continues_once_there_is_room() {
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    let dir = disk.path.join("spool");
    let mut record = SessionRecord::open(&dir, 1 << 30).expect("a spool");
    record.write_samples(&samples(0)).expect("room");
    disk.fill();
    let error = record.write_samples(&samples(1000)).expect_err("no room");
    let is_full = matches!(error, SessionRecordError::Spool(SpoolError::DiskFull(_)));
    assert!(is_full, "{error:?}");
    disk.free_space();
    record.write_samples(&samples(1000)).expect("room");
    record.write_samples(&samples(2000)).expect("room");
    assert_eq!(crate::sample_times(&spooled(&dir)), [0, 1000, 2000]);
}
