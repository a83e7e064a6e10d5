//! A machine made of files, and a clock that the test advances.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use pegel_collect::{CollectSettings, CollectorSet, FilesystemSpace, Host};
use pegel_metric::{Clock, Ledger, Level, Millis};

#[derive(Debug)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn at(utc: Millis) -> Arc<TestClock> {
        Arc::new(TestClock(AtomicI64::new(utc)))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, SeqCst);
    }
}

impl Clock for TestClock {
    fn utc(&self) -> Millis {
        self.0.load(SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(SeqCst).unsigned_abs())
    }
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The machine of a fixture tree, with the units of the machine on which it was recorded.
pub(crate) fn fixture(name: &str) -> Host {
    machine(&repository().join("tests/fixtures").join(name))
}

pub(crate) fn machine(root: &Path) -> Host {
    Host {
        page_bytes: 4096,
        user_hz: 100,
        statvfs: written_statvfs,
        ..Host::at(root)
    }
}

/// Reads the result for a mount from a file `statvfs` of six numbers in its directory.
fn written_statvfs(path: &Path) -> io::Result<FilesystemSpace> {
    let text = fs::read_to_string(path.join("statvfs"))?;
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    Ok(FilesystemSpace {
        block_bytes: numbers[0],
        blocks: numbers[1],
        blocks_free: numbers[2],
        blocks_available: numbers[3],
        files: numbers[4],
        files_free: numbers[5],
    })
}

/// Copies a directory recursively; symlinks are copied as symlinks.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("create");
    for entry in fs::read_dir(from).expect("list") {
        let (from, to) = {
            let entry = entry.expect("entry");
            (entry.path(), to.join(entry.file_name()))
        };
        let kind = fs::symlink_metadata(&from).expect("look").file_type();
        if kind.is_dir() {
            copy(&from, &to);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from).expect("read"), to).expect("link");
        } else {
            fs::copy(from, to).expect("copy");
        }
    }
}

pub(crate) fn open(
    settings: &CollectSettings,
    host: Host,
    level: Level,
    clock: &Arc<TestClock>,
) -> CollectorSet {
    let ledger = Arc::new(Ledger::default());
    CollectorSet::open(settings, host, level, Vec::new(), ledger, clock.clone()).expect("valid")
}
