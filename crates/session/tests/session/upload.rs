use std::time::{Duration, Instant};

use pegel_session::storage::{AppendOutcome, part_name, part_number};
use pegel_session::storage::{PartLimits, RecordStorage, StorageProblem, StorageProblemKind};
use pegel_session::{RecordUploader, SessionRecord, UploadState, UploadStep};
use pegel_testkit::TempDir;

use crate::lossy_storage::{LossyStorage, StoredParts};
use crate::{sample_times, samples};

const SPOOL_BYTES: u64 = 1 << 20;
const LIMITS: PartLimits = PartLimits {
    bytes: 20_000,
    blocks: 300,
};

/// Runs steps until nothing is left to do. Waits are skipped, not slept.
fn run_to_end(uploader: &mut RecordUploader, now: &mut Instant) -> UploadStep {
    for _ in 0..100_000 {
        match uploader.step(*now) {
            UploadStep::Stored => {}
            UploadStep::Wait(delay) => *now += delay,
            step => return step,
        }
    }
    panic!("no end: {:?}", uploader.status());
}

#[test]
fn a_thousand_blocks_arrive_once_each_and_in_order() {
    let dir = TempDir::new();
    let parts = StoredParts::default();
    let mut now = Instant::now();
    let mut requests = 0;
    for tick in 0..1000 {
        // Each block is written by its own process, which was killed before the last one ended.
        let mut record = SessionRecord::open(dir.path(), SPOOL_BYTES).expect("a spool");
        record.write_samples(&samples(tick * 10_000)).expect("room");
        if tick % 7 == 0 {
            let mut storage = LossyStorage::new(parts.clone(), LIMITS);
            storage.requests = requests;
            let mut uploader = RecordUploader::new(record.spool(), Box::new(storage));
            for _ in 0..tick % 30 {
                requests += 1;
                if let UploadStep::Wait(delay) = uploader.step(now) {
                    now += delay;
                }
            }
        }
    }
    let mut record = SessionRecord::open(dir.path(), SPOOL_BYTES).expect("a spool");
    record.end(10_000_000, "{\"blocks\":1000}").expect("room");
    let storage = LossyStorage::new(parts.clone(), LIMITS);
    let summary = storage.summary.clone();
    let mut uploader = RecordUploader::new(record.spool(), Box::new(storage));
    assert_eq!(run_to_end(&mut uploader, &mut now), UploadStep::Finished);
    assert_eq!(uploader.status().state, UploadState::Finished);
    assert_eq!(summary.lock().as_deref(), Some("{\"blocks\":1000}"));
    let parts = parts.lock();
    assert!(parts.len() > 2);
    assert!(parts.values().all(|part| part.len() <= 20_000));
    let record: Vec<u8> = parts.values().flatten().copied().collect();
    let expected: Vec<i64> = (0..1000).map(|tick| tick * 10_000).collect();
    assert_eq!(sample_times(&record), expected);
}

#[test]
fn a_part_with_other_content_is_reported_and_not_touched() {
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), SPOOL_BYTES).expect("a spool");
    record.write_samples(&samples(0)).expect("room");
    let parts = StoredParts::default();
    parts.lock().insert(0, vec![1, 2, 3]);
    let storage = LossyStorage::new(parts.clone(), LIMITS);
    let mut uploader = RecordUploader::new(record.spool(), Box::new(storage));
    let step = uploader.step(Instant::now());
    assert!(matches!(step, UploadStep::Wait(_)), "{step:?}");
    let status = uploader.status();
    let expected = UploadState::Retrying(StorageProblemKind::OtherWriter);
    assert_eq!((status.state, status.waiting_blocks), (expected, 1));
    assert_eq!(
        status.problem.as_deref(),
        Some(
            "another process wrote part 0 of the record: it has 3 bytes, expected 0; start the \
             session with another --attempt; the record is left as it is"
        )
    );
    assert_eq!(parts.lock()[&0], [1, 2, 3]);
}

/// Fails each time with the same problem.
#[derive(Debug)]
struct FailingStorage(StorageProblem);

impl RecordStorage for FailingStorage {
    fn part_limits(&self) -> PartLimits {
        LIMITS
    }

    fn append(&mut self, _: u32, _: u64, _: &[u8]) -> Result<AppendOutcome, StorageProblem> {
        Err(self.0.clone())
    }

    fn finish(&mut self, _: u32, _: &str) -> Result<(), StorageProblem> {
        Err(self.0.clone())
    }
}

#[test]
fn delays_double_up_to_a_limit_and_respect_retry_after() {
    let delays = |problem: StorageProblem| {
        let dir = TempDir::new();
        let mut record = SessionRecord::open(dir.path(), SPOOL_BYTES).expect("a spool");
        record.write_samples(&samples(0)).expect("room");
        let storage = FailingStorage(problem);
        let mut uploader = RecordUploader::new(record.spool(), Box::new(storage));
        let mut now = Instant::now();
        let delays = (0..8).map(|_| {
            let UploadStep::Wait(delay) = uploader.step(now) else {
                panic!("{:?}", uploader.status());
            };
            // Nothing is sent before the delay is over.
            assert_eq!(uploader.step(now), UploadStep::Wait(delay));
            now += delay;
            delay.as_secs()
        });
        delays.collect::<Vec<u64>>()
    };
    let mut problem = StorageProblem::new(StorageProblemKind::Throttled, "busy");
    assert_eq!(delays(problem.clone()), [1, 2, 4, 8, 16, 32, 60, 60]);
    problem.retry_after = Some(Duration::from_secs(20));
    assert_eq!(delays(problem.clone()), [20, 20, 20, 20, 20, 32, 60, 60]);
    problem.retry_after = Some(Duration::from_secs(100_000));
    assert_eq!(delays(problem), [600; 8]);
    let problem = StorageProblem::new(StorageProblemKind::Credentials, "no");
    assert_eq!(delays(problem), [15, 30, 60, 120, 240, 300, 300, 300]);
}

#[test]
fn other_storage_is_tried_at_once() {
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), SPOOL_BYTES).expect("a spool");
    record.write_samples(&samples(0)).expect("room");
    let problem = StorageProblem::new(StorageProblemKind::Credentials, "no");
    let mut uploader = RecordUploader::new(record.spool(), Box::new(FailingStorage(problem)));
    let now = Instant::now();
    assert!(matches!(uploader.step(now), UploadStep::Wait(_)));
    let storage = LossyStorage::new(StoredParts::default(), LIMITS);
    uploader.replace_storage(Box::new(storage));
    assert_eq!(uploader.step(now), UploadStep::Stored);
    assert_eq!(uploader.step(now), UploadStep::Idle);
}

#[test]
fn parts_are_numbered_with_five_digits() {
    assert_eq!(part_name(7), "record-00007.pgl");
    assert_eq!(part_name(123_456), "record-123456.pgl");
    for name in [part_name(0), part_name(99_999), part_name(123_456)] {
        let number = part_number(&name).expect("a part");
        assert_eq!(part_name(number), name);
    }
    for name in [
        "record-1.pgl",
        "record-000001.pgl",
        "summary.json",
        "record-.pgl",
    ] {
        assert_eq!(part_number(name), None, "{name}");
    }
}
