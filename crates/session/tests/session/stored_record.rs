//! Records of many blocks, sent to storage and read back.

use std::time::Instant;

use pegel_session::storage::{
    AppendOutcome, PartLimits, RecordPlace, RecordStorage, StorageCredentials, StorageEndpoints,
    StorageProblem, open_storage, read_parts,
};
use pegel_session::{RecordUploader, SessionRecord, UploadStep};
use pegel_testkit::TempDir;

use crate::{sample_times, samples};

pub(crate) const FOLDER: &str = "wf-7/align+x@y/1";
const BYTES_MAX: u64 = 64 << 20;

/// A place with its credentials and addresses.
#[derive(Debug, Clone)]
pub(crate) struct TestPlace {
    pub(crate) place: RecordPlace,
    pub(crate) credentials: StorageCredentials,
    pub(crate) endpoints: StorageEndpoints,
}

impl TestPlace {
    pub(crate) fn new(place: &str, credentials: StorageCredentials, url: &str) -> TestPlace {
        TestPlace {
            place: place.parse().expect("a place"),
            credentials,
            endpoints: StorageEndpoints {
                endpoint: Some(url.to_owned()),
                ..StorageEndpoints::default()
            },
        }
    }

    /// Returns the same place behind another server.
    pub(crate) fn behind(&self, url: &str) -> TestPlace {
        let mut other = self.clone();
        other.endpoints.endpoint = Some(url.to_owned());
        other
    }

    pub(crate) fn open(&self, folder: &str) -> Box<dyn RecordStorage> {
        self.try_open(folder).expect("storage")
    }

    pub(crate) fn try_open(&self, folder: &str) -> Result<Box<dyn RecordStorage>, StorageProblem> {
        open_storage(&self.place, folder, &self.credentials, &self.endpoints)
    }

    /// Returns the bytes of each part, by number.
    pub(crate) fn parts(&self, folder: &str) -> Vec<(u32, Vec<u8>)> {
        let place = self.place.join(folder);
        let parts = read_parts(&place, &self.credentials, &self.endpoints, BYTES_MAX);
        let parts = parts.expect("a record").into_iter();
        parts.map(|part| (part.number, part.bytes)).collect()
    }
}

/// Storage with other limits of parts.
#[derive(Debug)]
pub(crate) struct LimitedStorage {
    pub(crate) storage: Box<dyn RecordStorage>,
    pub(crate) limits: PartLimits,
}

impl RecordStorage for LimitedStorage {
    fn part_limits(&self) -> PartLimits {
        self.limits
    }

    fn append(
        &mut self,
        part: u32,
        position: u64,
        block: &[u8],
    ) -> Result<AppendOutcome, StorageProblem> {
        self.storage.append(part, position, block)
    }

    fn finish(&mut self, last_part: u32, summary: &str) -> Result<(), StorageProblem> {
        self.storage.finish(last_part, summary)
    }
}

/// Stores a record of this many blocks of samples, whose end is the last block.
pub(crate) fn store_record(storage: Box<dyn RecordStorage>, blocks: i64) {
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), 16 << 20).expect("a spool");
    for tick in 0..blocks {
        record.write_samples(&samples(tick * 10_000)).expect("room");
    }
    record.end(blocks * 10_000, "{}").expect("room");
    let mut uploader = RecordUploader::new(record.spool(), storage);
    let mut now = Instant::now();
    for _ in 0..100_000 {
        match uploader.step(now) {
            UploadStep::Stored => {}
            // Waits are skipped, not slept.
            UploadStep::Wait(delay) if uploader.status().attempts < 200 => now += delay,
            UploadStep::Finished => return,
            step => panic!("{step:?}: {:?}", uploader.status()),
        }
    }
    panic!("no end: {:?}", uploader.status());
}

/// Checks that a record contains each of these blocks once and in order.
#[track_caller]
pub(crate) fn check_record(parts: &[(u32, Vec<u8>)], blocks: i64) {
    let record: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let expected: Vec<i64> = (0..blocks).map(|tick| tick * 10_000).collect();
    assert_eq!(sample_times(&record), expected);
}
