//! Tests of the journal writer on a disk that fails or hangs.

use std::path::Path;

use pegel_testkit::{FaultyFiles, FileFault, FileOperation, TempDir, eventually};
use rustix::io::Errno;

use super::*;
use crate::lanes::journal::{JournalLane, LaneId, parse_journal};

const ONE: LaneId = [1; 16];
const TWO: LaneId = [2; 16];

fn start(files: &FaultyFiles, journal: &Path) -> JournalWriter {
    let settings = LanesSettings {
        directories: Vec::new(),
        journal: journal.to_owned(),
        files: Arc::new(files.clone()),
        lanes_max: 1,
    };
    JournalWriter::start(&settings, &Supervisor::default()).expect("started")
}

fn written(writer: &JournalWriter) {
    let last = writer.next_number() - 1;
    eventually("written", || {
        writer.is_written(last).then_some(()).ok_or("not yet")
    });
}

fn lanes(journal: &Path) -> Vec<LaneId> {
    let bytes = std::fs::read(journal).expect("readable");
    let (kept, whole) = parse_journal(&bytes).expect("our format");
    assert_eq!(whole, bytes.len(), "no torn end");
    let mut lanes: Vec<LaneId> = kept.lanes.into_keys().collect();
    lanes.sort_unstable();
    lanes
}

#[test]
fn a_failed_write_is_reported_and_repeated_over_what_it_left() {
    let (dir, files) = (TempDir::new(), FaultyFiles::new());
    let journal = dir.join("lanes.journal");
    let mut writer = start(&files, &journal);
    writer.replace(&JournalContents::default());
    written(&writer);
    let first = FileFault {
        torn_bytes: 5,
        ..FileFault::always(FileOperation::Write, Errno::NOSPC)
    };
    files.inject(first);
    writer.records.put_lane(&ONE, &JournalLane::default());
    writer.append(false);
    let fault = eventually("reported", || writer.error_message().ok_or("no fault"));
    assert!(fault.contains("cannot be written"), "{fault}");
    assert!(writer.is_busy() && !writer.is_written(2));
    files.clear_faults();
    written(&writer);
    assert_eq!(writer.error_message(), None);
    writer.records.put_lane(&TWO, &JournalLane::default());
    writer.append(false);
    written(&writer);
    assert_eq!(lanes(&journal), [ONE, TWO]);
}

#[test]
fn a_failed_sync_is_reported_until_the_journal_is_written_anew() {
    let (dir, files) = (TempDir::new(), FaultyFiles::new());
    let journal = dir.join("lanes.journal");
    let mut writer = start(&files, &journal);
    writer.replace(&JournalContents::default());
    written(&writer);
    files.inject(FileFault::once(FileOperation::Sync, Errno::IO, 0));
    for id in [ONE, TWO] {
        writer.records.put_lane(&id, &JournalLane::default());
        writer.append(id == ONE);
        written(&writer);
        assert!(writer.has_sync_failed());
        let fault = writer.error_message().expect("reported");
        assert!(fault.contains("cannot be synced"), "{fault}");
    }
    writer.replace(&JournalContents::default());
    written(&writer);
    assert_eq!(
        (writer.error_message(), writer.has_sync_failed()),
        (None, false)
    );
}

#[test]
fn what_is_pending_at_the_end_is_tried_once_more() {
    let (dir, files) = (TempDir::new(), FaultyFiles::new());
    let journal = dir.join("lanes.journal");
    let mut writer = start(&files, &journal);
    writer.replace(&JournalContents::default());
    written(&writer);
    files.inject(FileFault::once(FileOperation::Write, Errno::NOSPC, 0));
    writer.records.put_lane(&ONE, &JournalLane::default());
    writer.append(false);
    assert!(writer.wait_until_idle());
    writer.records.put_lane(&TWO, &JournalLane::default());
    writer.append(false);
    drop(writer);
    assert_eq!(lanes(&journal), [ONE, TWO]);
}
