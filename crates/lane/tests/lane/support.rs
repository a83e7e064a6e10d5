//! Children created with `fork`, and the sums of what they counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_lane::reader::{LaneFile, LaneValue};
use pegel_lane::{LaneKind, LaneSeriesSpec};
use pegel_testkit::{TempDir, eventually, open_lanes};

/// Numbers that parent and children share.
#[derive(Debug)]
pub(crate) struct SharedNumbers {
    numbers: &'static [AtomicU64; 8],
}

impl SharedNumbers {
    pub(crate) fn new() -> SharedNumbers {
        // SAFETY: a new mapping, zeroed, which is never removed.
        let numbers = unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            &*memory.cast()
        };
        SharedNumbers { numbers }
    }

    pub(crate) fn get(&self, index: usize) -> u64 {
        self.numbers[index].load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, index: usize, value: u64) {
        self.numbers[index].store(value, Ordering::SeqCst);
    }

    pub(crate) fn add(&self, index: usize, value: u64) {
        self.numbers[index].fetch_add(value, Ordering::SeqCst);
    }

    pub(crate) fn await_at_least(&self, index: usize, least: u64) {
        eventually("a number of a child", || match self.get(index) {
            now if now >= least => Ok(()),
            now => Err(now),
        });
    }
}

/// Waits in a child for its parent.
pub(crate) fn wait_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

pub(crate) fn counter(name: &str) -> LaneSeriesSpec<'_> {
    LaneSeriesSpec::new(LaneKind::Counter, name)
}

/// Returns the lane of one process, which has only one.
pub(crate) fn lane_of(dir: &TempDir, pid: i32) -> LaneFile {
    let mut lanes = open_lanes(dir);
    lanes.retain(|lane| lane.header().pid == pid.unsigned_abs());
    assert_eq!(lanes.len(), 1, "of process {pid}");
    lanes.remove(0)
}

/// Returns the value of one counter in one lane.
pub(crate) fn count_in(lane: &mut LaneFile, name: &str) -> u64 {
    counts(lane).get(name).copied().unwrap_or(0)
}

/// Returns the sum over all lanes of a directory.
pub(crate) fn total(dir: &TempDir, name: &str) -> u64 {
    open_lanes(dir)
        .iter_mut()
        .map(|lane| count_in(lane, name))
        .sum()
}

fn counts(lane: &mut LaneFile) -> BTreeMap<String, u64> {
    let mut buffer = Vec::new();
    let view = lane.read(&mut buffer).expect("readable");
    let mut counts = BTreeMap::new();
    for (index, value) in view.iter() {
        let name = view.series(index).expect("described").name.to_owned();
        let value = match value {
            Some(LaneValue::Counter(value)) => value,
            Some(LaneValue::Distribution(values)) => values.count(),
            Some(LaneValue::Calls { hits, .. }) => hits,
            _ => continue,
        };
        *counts.entry(name).or_default() += value;
    }
    counts
}
