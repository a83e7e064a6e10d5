//! Opens lanes of a directory.

use std::path::Path;

use pegel_lane::reader::{LaneDirectoryHandle, LaneFile, LaneLimits};

/// Returns all lanes of a directory in the order of their creation. Fails if the directory contains
/// any other file, or an unfinished lane.
pub fn open_lanes(dir: impl AsRef<Path>) -> Vec<LaneFile> {
    open(dir.as_ref(), false)
}

/// Returns the finished lanes; others may be in creation.
pub fn open_ready_lanes(dir: impl AsRef<Path>) -> Vec<LaneFile> {
    open(dir.as_ref(), true)
}

fn open(dir: &Path, may_be_unfinished: bool) -> Vec<LaneFile> {
    let directory = LaneDirectoryHandle::open(dir).expect("a directory");
    let listing = directory.list(10_000).expect("readable");
    assert_eq!((listing.others, listing.has_more), (0, false));
    let mut lanes = Vec::new();
    for found in listing.lanes {
        if found.is_temporary {
            assert!(may_be_unfinished, "{} was left behind", found.name);
            continue;
        }
        let lane = directory.open_lane(&found.name, &LaneLimits::default());
        lanes.push(lane.unwrap_or_else(|error| panic!("{}: {error:?}", found.name)));
    }
    lanes.sort_by_key(|lane| lane.header().number);
    lanes
}
