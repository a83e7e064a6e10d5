//! Lanes, which untrusted programs write: in memory, and as files that change while they are read.

use std::fs;
use std::sync::OnceLock;

use pegel_lane::reader::{LaneDirectoryHandle, LaneLimits, LaneValue, LaneView, ParsedLane};
use pegel_lane::{
    Calls, Counter, Gauge, Handle, Histogram, LaneKind, LaneSeriesSpec, Points, ProcessLanes, Timer,
};
use pegel_testkit::TempDir;

use super::Target;
use crate::memory::bounded;

const DICTIONARY: &[&[u8]] = &[b"PEGLANE\n", &[1, 0, 0, 0], &[0, 2, 0, 0], &[0x40, 0, 0, 0]];

/// The offsets of the header fields with the length of the file and the end of its series.
const FILE_BYTES: usize = 64;
const PUBLISHED: usize = 80;

pub(super) const LANE: Target = Target {
    name: "lane",
    run: memory,
    dictionary: DICTIONARY,
    seeds: || {
        let whole = lanes();
        whole
            .into_iter()
            .map(|bytes| {
                let published =
                    u64::from_le_bytes(*bytes[PUBLISHED..].first_chunk().expect("long"));
                bytes[..published as usize].to_vec()
            })
            .collect()
    },
};

pub(super) const LANE_FILE: Target = Target {
    name: "lane_file",
    run: file,
    dictionary: DICTIONARY,
    seeds: || lanes().into_iter().map(trimmed).collect(),
};

/// A lane that parses can be read completely, and changes of the bytes afterwards are harmless.
fn memory(input: &[u8]) {
    // The reader keeps a few words for each series, and each series takes at least a cache line.
    let Ok(lane) = bounded(4 * input.len() + (1 << 16), || ParsedLane::parse(input)) else {
        return;
    };
    assert!(lane.series_count() <= input.len() / 64);
    let view = lane.view(input);
    for (index, value) in view.iter() {
        let series = view.series(index).expect("checked when it was parsed");
        assert_eq!(view.kind(index), Some(series.kind));
        match series.kind {
            LaneKind::Gauge | LaneKind::Point => {}
            _ => assert!(value.is_some(), "{series:?}"),
        }
    }
    let reversed: Vec<u8> = input.iter().rev().copied().collect();
    look_at(lane.view(&reversed));
    look_at(lane.view(&input[..input.len() / 2]));
}

fn look_at(view: LaneView<'_>) {
    for (index, value) in view.iter() {
        let _ = (view.series(index), view.ignored(index));
        if let Some(LaneValue::Distribution(values)) = value {
            assert!(values.filled().count() <= pegel_lane::BUCKETS);
        }
    }
    let _ = view.refused();
}

/// A file of the length in its header, filled as far as the input goes; then another one in its
/// place.
fn file(input: &[u8]) {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(TempDir::new);
    let Some(id) = input.get(16..32) else { return };
    let length = input.get(FILE_BYTES..).and_then(|rest| rest.first_chunk());
    let length = length.map_or(0, |bytes| u32::from_le_bytes(*bytes)) as u64;
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = dir.join(format!("{digits}.lane"));
    fs::write(&path, input).expect("room");
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("ours");
    written.set_len(length.min(8 << 20)).expect("sparse");
    let directory = LaneDirectoryHandle::open(dir.path()).expect("ours");
    let name = format!("{digits}.lane");
    let opened = directory.open_lane(&name, &LaneLimits::default());
    if let Ok(mut lane) = opened {
        let (mut buffer, mut points) = (Vec::new(), Vec::new());
        for round in 0..3 {
            let Ok(view) = lane.read(&mut buffer) else {
                break;
            };
            look_at(view);
            let count = lane.header().pid;
            if let Ok(read) = lane.points(&mut buffer, round == 2, &mut points) {
                assert!(read.read <= (4 << 20) / 32, "{count}");
            }
            assert!(buffer.len() <= 4 << 20);
            // The second half overwrites the first.
            fs::write(&path, input.get(input.len() / 2..).unwrap_or_default()).expect("room");
        }
    }
    fs::remove_file(&path).expect("ours");
}

/// Returns lanes of all kinds, identical in every run.
fn lanes() -> Vec<Vec<u8>> {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let spec = |name: &'static str| {
        let mut spec = LaneSeriesSpec::new(LaneKind::Counter, name);
        spec.help = "Helps.";
        spec.labels = &[("call", "MPI_Send"), ("phase", "a")];
        spec
    };
    let counter = Counter::create_in(home, &spec("a_total")).expect("made");
    counter.add(7);
    Gauge::create_in(home, &spec("depth")).expect("made");
    let calls = Calls::create_in(home, &spec("mpi")).expect("made");
    calls.add(10, 20);
    let sizes = Histogram::create_in(home, &spec("sizes")).expect("made");
    sizes.record(3.0);
    let times = Timer::create_in(home, &spec("times")).expect("made");
    times.record_seconds(0.25);
    let points = Points::create_in(home, &spec("points")).expect("made");
    (0..5).for_each(|time| points.add_at(1.5, time));
    let mut lanes: Vec<Vec<u8>> = fs::read_dir(dir.path())
        .expect("ours")
        .map(|file| fs::read(file.expect("readable").path()).expect("readable"))
        .collect();
    for lane in &mut lanes {
        // The identity, the process and the time of creation.
        lane[16..64].fill(0x11);
        lane[192..512].fill(0);
        lane[192..195].copy_from_slice(b"run");
    }
    lanes.sort();
    lanes
}

/// Removes the trailing zeros, which the target restores.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}
