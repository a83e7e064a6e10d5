use pegel_metric::MetricKind;
use pegel_record::{RecordSamples, RecordWriter};
use pegel_testkit::TempDir;

use super::*;

/// Makes blocks of equal size: T for text, K for a key block, S for samples.
fn blocks(kinds: &str) -> Vec<RecordBlock> {
    let mut writer = RecordWriter::default();
    let samples = |time| {
        [RecordSamples {
            series: "x".into(),
            kind: MetricKind::Gauge,
            times: [time].into(),
            values: vec![1.0],
        }]
    };
    let mut time = 0;
    let blocks = kinds.chars().map(|kind| {
        time += if kind == 'K' { 600_000 } else { 1 };
        let mut block = match kind {
            'T' => writer.document(time, "{}"),
            _ => writer.samples(&samples(time)).remove(0),
        };
        let expected = match kind {
            'T' => BlockRole::Text,
            'K' => BlockRole::Key,
            _ => BlockRole::Samples,
        };
        assert_eq!(BlockRole::of(block.header.kind), expected);
        block.bytes = vec![0; 10];
        block
    });
    blocks.collect()
}

fn sequences(spool: &RecordSpool) -> Vec<u64> {
    spool.blocks.iter().map(|block| block.sequence).collect()
}

#[test]
fn a_full_spool_drops_the_oldest_samples_that_nothing_depends_on() {
    let dir = TempDir::new();
    let mut spool = RecordSpool::open(dir.path(), 60).expect("a spool");
    let blocks = blocks("TKSKSTKSS");
    for block in &blocks[..6] {
        spool.push(block).expect("room");
    }
    spool.push(&blocks[6]).expect("room after a drop");
    assert_eq!(sequences(&spool), [0, 3, 4, 5, 6]);
    assert_eq!((spool.waiting_bytes(), spool.dropped_blocks()), (50, 2));
    spool.push(&blocks[7]).expect("room");
    spool.push(&blocks[8]).expect("room after a drop");
    assert_eq!(sequences(&spool), [0, 5, 6, 7, 8]);
    // The number of the next block does not depend on what was dropped.
    assert_eq!(spool.next_sequence(), 9);
}

#[test]
fn samples_are_not_dropped_for_samples_that_depend_on_them() {
    let dir = TempDir::new();
    let mut spool = RecordSpool::open(dir.path(), 35).expect("a spool");
    let blocks = blocks("TKSSTK");
    for block in &blocks[..3] {
        spool.push(block).expect("room");
    }
    assert!(matches!(spool.push(&blocks[3]), Err(SpoolError::Full(10))));
    // Text may use as much space again.
    spool.push(&blocks[4]).expect("room for text");
    spool
        .push(&blocks[5])
        .expect("a key block replaces all samples");
    assert_eq!(sequences(&spool), [0, 4, 5]);
}

#[test]
fn the_oldest_block_is_kept_because_it_may_be_on_its_way() {
    let dir = TempDir::new();
    let mut spool = RecordSpool::open(dir.path(), 20).expect("a spool");
    let blocks = blocks("KSK");
    spool.push(&blocks[0]).expect("room");
    spool.push(&blocks[1]).expect("room");
    spool.push(&blocks[2]).expect("room after a drop");
    assert_eq!(sequences(&spool), [0, 2]);
}

#[test]
fn a_spool_is_owned_by_one_process_and_resumes() {
    let dir = TempDir::new();
    let mut spool = RecordSpool::open(dir.path(), 1000).expect("a spool");
    let second = RecordSpool::open(dir.path(), 1000);
    assert!(matches!(second, Err(SpoolError::Locked(_))), "{second:?}");
    for block in blocks("TKS") {
        spool.push(&block).expect("room");
    }
    spool.confirm_oldest().expect("written");
    spool.begin_part().expect("written");
    let position = spool.position();
    drop(spool);
    // A process that was killed left a stored block and an incomplete file behind.
    let stored = dir.path().join("0000000000000000-0000000000000000.text");
    fs::write(&stored, b"x").expect("written");
    let temporary = dir
        .path()
        .join("0000000000000003-0000000000000000.samples.tmp");
    fs::write(&temporary, b"x").expect("written");
    let spool = RecordSpool::open(dir.path(), 1000).expect("a spool");
    assert_eq!(sequences(&spool), [1, 2]);
    assert_eq!((spool.position(), spool.next_sequence()), (position, 3));
    assert!(!stored.exists() && !temporary.exists());
}

#[test]
fn a_malformed_position_is_reported_with_its_file() {
    let dir = TempDir::new();
    for text in [
        "",
        "1 2 3 4",
        "1 2 3 4 x",
        "4294967296 0 0 0 0",
        "1 2 3 4 5 6",
    ] {
        fs::write(dir.path().join(POSITION_FILE), text).expect("written");
        let error = RecordSpool::open(dir.path(), 10).expect_err(text);
        let message = error.to_string();
        assert!(message.ends_with("position: not five numbers"), "{message}");
    }
}

#[test]
fn a_block_whose_file_is_gone_or_changed_counts_as_dropped() {
    let dir = TempDir::new();
    let mut spool = RecordSpool::open(dir.path(), 1000).expect("a spool");
    for block in blocks("TKS") {
        spool.push(&block).expect("room");
    }
    let files: Vec<String> = spool.blocks.iter().map(SpooledBlock::file_name).collect();
    fs::remove_file(dir.path().join(&files[0])).expect("removed");
    fs::write(dir.path().join(&files[1]), b"longer than it was").expect("written");
    let oldest = spool.oldest().expect("readable").expect("the third block");
    assert_eq!(oldest.len() as u64, spool.waiting_bytes());
    assert_eq!((spool.waiting_blocks(), spool.dropped_blocks()), (1, 2));
}
