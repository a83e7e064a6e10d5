//! Faults that no server produces on demand: each is simulated by a client in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::MetricKind;
use pegel_record::{RecordEvent, RecordReader, RecordSamples, RecordWriter};

use super::*;

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Objects in memory, as those of S3. Each request fails if `fails` returns true for its number.
struct MemoryClient {
    objects: Objects,
    requests: u64,
    fails: fn(u64) -> bool,
}

impl Debug for MemoryClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryClient").finish_non_exhaustive()
    }
}

impl MemoryClient {
    fn request(&mut self) -> Result<(), StorageProblem> {
        self.requests += 1;
        match (self.fails)(self.requests) {
            true => Err(StorageProblem::new(StorageProblemKind::Unreachable, "lost")),
            false => Ok(()),
        }
    }
}

impl ObjectClient for MemoryClient {
    fn label(&self) -> &str {
        "memory"
    }

    fn part_limits(&self) -> PartLimits {
        PartLimits {
            bytes: 1 << 30,
            blocks: 1,
        }
    }

    fn append(&mut self, name: &str, _: u64, block: &[u8]) -> Result<AppendReply, StorageProblem> {
        self.request()?;
        let mut objects = self.objects.lock();
        if objects.contains_key(name) {
            return Ok(AppendReply::Mismatch);
        }
        objects.insert(name.to_owned(), block.to_vec());
        Ok(AppendReply::Appended)
    }

    fn length(&mut self, name: &str) -> Result<Option<u64>, StorageProblem> {
        self.request()?;
        Ok(self
            .objects
            .lock()
            .get(name)
            .map(|bytes| bytes.len() as u64))
    }

    fn read_range(
        &mut self,
        name: &str,
        start: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let object = self.read(name, u64::MAX)?;
        Ok(object.map(|object| object[start as usize..(start + bytes) as usize].to_vec()))
    }

    fn read(&mut self, name: &str, _: u64) -> Result<Option<Vec<u8>>, StorageProblem> {
        self.request()?;
        Ok(self.objects.lock().get(name).cloned())
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageProblem> {
        self.request()?;
        self.objects.lock().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<(), StorageProblem> {
        self.request()?;
        self.objects.lock().remove(name);
        Ok(())
    }

    fn list(&mut self) -> Result<Vec<String>, StorageProblem> {
        Ok(self.objects.lock().keys().cloned().collect())
    }
}

fn storage(objects: &Objects, fails: fn(u64) -> bool) -> ObjectStorage {
    ObjectStorage::new(Box::new(MemoryClient {
        objects: objects.clone(),
        requests: 0,
        fails,
    }))
}

/// Returns numbered objects with one block each.
fn numbered_objects(count: u32) -> Objects {
    let mut writer = RecordWriter::default();
    let mut objects = BTreeMap::new();
    for part in 0..count {
        let time = i64::from(part) * 1000;
        let samples = [RecordSamples {
            series: "x".into(),
            kind: MetricKind::Gauge,
            times: [time].into(),
            values: vec![time as f64],
        }];
        let block = writer.samples(&samples).remove(0);
        objects.insert(part_name(part), block.bytes);
    }
    Arc::new(Mutex::new(objects))
}

/// Returns the numbers of the blocks that a reader finds, without repetitions.
fn sequences(objects: &Objects) -> Vec<u64> {
    let objects = objects.lock();
    let parts = objects.iter().filter(|(name, _)| *name != SUMMARY_NAME);
    let record: Vec<u8> = parts.flat_map(|(_, bytes)| bytes.clone()).collect();
    let mut found = Vec::new();
    for event in RecordReader::new(&record) {
        match event {
            RecordEvent::Block { header, .. } => found.push(header.sequence),
            RecordEvent::Repeated { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    found
}

#[test]
fn a_merge_that_is_killed_after_any_request_loses_nothing_and_starts_again() {
    let expected: Vec<u64> = (0..8).collect();
    for killed_after in 0..24 {
        let objects = numbered_objects(8);
        // The storage of a killed process: no request succeeds after the last one.
        let mut killed = MemoryClient {
            objects: objects.clone(),
            requests: 1000 - killed_after,
            fails: |number| number > 1000,
        };
        let _ = PartMerge::new(7).run(&mut killed);
        assert_eq!(sequences(&objects), expected, "killed after {killed_after}");
        let mut restarted = storage(&objects, |_| false);
        restarted.finish(7, "{}").expect("merged");
        assert_eq!(sequences(&objects), expected);
        let names: Vec<String> = objects.lock().keys().cloned().collect();
        assert_eq!(names, [part_name(0), SUMMARY_NAME.to_owned()]);
    }
}

#[test]
fn a_merge_into_several_parts_that_is_killed_loses_nothing_and_starts_again() {
    let expected: Vec<u64> = (0..12).collect();
    let merge = |objects: &Objects, requests: u64| {
        let mut merge = PartMerge::new(11);
        // Two or three blocks fit.
        merge.bytes_max = 180;
        let mut client = MemoryClient {
            objects: objects.clone(),
            requests: 1000 - requests,
            fails: |number| number > 1000,
        };
        merge.run(&mut client)
    };
    for killed_after in 0..30 {
        let objects = numbered_objects(12);
        let _ = merge(&objects, killed_after);
        assert_eq!(sequences(&objects), expected, "killed after {killed_after}");
        // Killed again, later.
        let _ = merge(&objects, killed_after + 5);
        assert_eq!(sequences(&objects), expected, "killed after {killed_after}");
        merge(&objects, 100).expect("merged");
        assert_eq!(sequences(&objects), expected);
        let objects = objects.lock();
        assert!((3..8).contains(&objects.len()), "{}", objects.len());
        let numbers = (0..objects.len() as u32).map(part_name);
        assert!(objects.keys().cloned().eq(numbers));
        assert!(objects.values().all(|part| part.len() <= 180));
    }
}

#[test]
fn a_merge_continues_after_failed_requests() {
    let objects = numbered_objects(300);
    let mut storage = storage(&objects, |number| number % 5 < 4);
    let mut attempts = 0;
    while storage.finish(299, "{}").is_err() {
        attempts += 1;
        assert!(attempts < 1000);
    }
    assert_eq!(sequences(&objects), (0..300).collect::<Vec<u64>>());
    assert_eq!(objects.lock().len(), 2);
}

#[test]
fn damaged_objects_are_not_merged() {
    let objects = numbered_objects(4);
    objects.lock().insert(part_name(2), b"damaged".to_vec());
    let before = objects.lock().clone();
    let mut storage = storage(&objects, |_| false);
    storage.finish(3, "{}").expect("a summary");
    let mut after = objects.lock().clone();
    assert_eq!(after.remove(SUMMARY_NAME).as_deref(), Some(&b"{}"[..]));
    assert_eq!(after, before);
}

#[test]
fn a_repeated_block_is_recognised_by_its_content() {
    let objects = Objects::default();
    let mut storage = storage(&objects, |_| false);
    let mut append = |block: &[u8]| storage.append(0, 0, block).expect("stored");
    assert_eq!(append(b"block"), AppendOutcome::Stored);
    let again = AppendOutcome::Conflict(PartConflict::AlreadyStored);
    assert_eq!(append(b"block"), again);
    for other in [&b"other"[..], b"longer block"] {
        let conflict = PartConflict::OtherContent { bytes: 5 };
        assert_eq!(append(other), AppendOutcome::Conflict(conflict));
    }
}
