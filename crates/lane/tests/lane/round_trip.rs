//! The reader reads what the writer writes.

use std::time::Duration;

use pegel_lane::reader::{
    LaneDirectoryHandle, LaneFile, LaneLimits, LaneOpenError, LaneValue, ProcessState,
};
use pegel_lane::{
    Aggregation, Calls, Counter, CreateError, FloatCounter, Gauge, Handle, Histogram, LaneKind,
    LaneSeriesSpec, Points, ProcessLanes, StripedCounter, Timer,
};
use pegel_testkit::{TempDir, open_lanes};

fn only_lane(dir: &TempDir) -> LaneFile {
    let mut lanes = open_lanes(dir);
    assert_eq!(lanes.len(), 1);
    lanes.remove(0)
}

fn spec<'a>(name: &'a str, labels: &'a [(&'a str, &'a str)]) -> LaneSeriesSpec<'a> {
    let mut spec = LaneSeriesSpec::new(LaneKind::Counter, name);
    spec.help = "Helps.";
    spec.labels = labels;
    spec
}

#[test]
fn every_kind_reads_back() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let counter =
        Counter::create_in(home, &spec("a_total", &[("b", "2"), ("a", "1")])).expect("made");
    let seconds = FloatCounter::create_in(home, &spec("s_total", &[])).expect("made");
    let gauge_spec = LaneSeriesSpec {
        aggregation: Aggregation::Max,
        with_pid: true,
        level: 3,
        ..spec("depth", &[])
    };
    let gauge = Gauge::create_in(home, &gauge_spec).expect("made");
    let unset = Gauge::create_in(home, &spec("unset", &[])).expect("made");
    let calls = Calls::create_in(home, &spec("mpi", &[("call", "MPI_Send")])).expect("made");
    let histogram = Histogram::create_in(home, &spec("sizes", &[])).expect("made");
    let timer = Timer::create_in(home, &spec("steps", &[])).expect("made");
    counter.add(3);
    counter.add(4);
    counter.add(u64::MAX);
    seconds.add(0.25);
    seconds.add(-1.0);
    seconds.add(0.5);
    gauge.set(7.0);
    gauge.add(-2.5);
    calls.add(1024, 1_500);
    calls.add(1, 500);
    calls.add_alone(10, 3_000);
    calls.hit();
    for value in [1.0, 1.5, 3.0, -1.0] {
        histogram.record(value);
    }
    timer.record(Duration::from_millis(250));
    let _ = unset;

    let mut lane = only_lane(&dir);
    assert_eq!(lane.process(), ProcessState::Alive);
    assert!(!lane.is_ended().expect("asked"));
    assert_eq!(lane.header().pid, std::process::id());
    assert!(lane.header().created_ms > 1_700_000_000_000);
    assert!(!lane.header().command.is_empty());
    let mut buffer = Vec::new();
    let view = lane.read(&mut buffer).expect("readable");
    assert_eq!(view.len(), 7);
    let series = view.series(0).expect("described");
    assert_eq!((series.name, series.help), ("a_total", "Helps."));
    assert_eq!(series.labels, [("a", "1"), ("b", "2")]);
    assert_eq!((series.kind, series.level), (LaneKind::Counter, 1));
    assert_eq!(view.value(0), Some(LaneValue::Counter(7)));
    assert_eq!(view.ignored(0), 1);
    assert_eq!(view.value(1), Some(LaneValue::FloatCounter(0.75)));
    assert_eq!(view.ignored(1), 1);
    let series = view.series(2).expect("described");
    assert_eq!(series.aggregation, Aggregation::Max);
    assert_eq!(
        (series.with_pid, series.with_rank, series.level),
        (true, false, 3)
    );
    match view.value(2) {
        Some(LaneValue::Gauge { value, set_ms }) => {
            assert_eq!(value, 4.5);
            let age = pegel_lane::now_ms() - set_ms;
            assert!((0..60_000).contains(&age), "{age} ms ago");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(view.value(3), None);
    let calls = LaneValue::Calls {
        hits: 4,
        bytes: 1035,
        nanos: 5000,
    };
    assert_eq!(view.value(4), Some(calls));
    let Some(LaneValue::Distribution(sizes)) = view.value(5) else {
        panic!("no distribution");
    };
    assert_eq!(
        (sizes.count(), sizes.sum, sizes.min, sizes.max),
        (4, 4.5, -1.0, 3.0)
    );
    let filled: Vec<(f64, u64)> = sizes.filled().collect();
    assert_eq!(filled, [(2f64.powi(-30), 1), (1.0, 1), (1.5, 1), (3.0, 1)]);
    let Some(LaneValue::Distribution(steps)) = view.value(6) else {
        panic!("no distribution");
    };
    assert_eq!((steps.count(), steps.sum), (1, 0.25));
    assert_eq!(view.kind(6), Some(LaneKind::Timer));
}

#[test]
fn a_series_is_created_once_and_read_afterwards() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let one = Counter::create_in(home, &spec("a_total", &[("x", "1"), ("y", "2")])).expect("made");
    let mut lane = only_lane(&dir);
    let mut buffer = Vec::new();
    assert_eq!(lane.read(&mut buffer).expect("readable").len(), 1);
    let again =
        Counter::create_in(home, &spec("a_total", &[("y", "2"), ("x", "1")])).expect("made");
    let other = Counter::create_in(home, &spec("a_total", &[("x", "1")])).expect("made");
    one.add(1);
    again.add(1);
    other.add(5);
    let view = lane.read(&mut buffer).expect("readable");
    assert_eq!(view.len(), 2);
    assert_eq!(view.value(0), Some(LaneValue::Counter(2)));
    assert_eq!(view.value(1), Some(LaneValue::Counter(5)));
}

#[test]
fn a_full_lane_gets_a_larger_neighbour_until_there_are_too_many() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    // Large ones, so that this is fast: 64 stripes are 4 KiB.
    let mut made = 0_u64;
    let refused = loop {
        let name = format!("c{made}_total");
        let spec = LaneSeriesSpec {
            stripes: 64,
            ..spec(&name, &[])
        };
        match StripedCounter::create_in(home, &spec) {
            Ok(counter) => counter.add(made),
            Err(error) => break error,
        }
        made += 1;
    };
    assert_eq!(refused, CreateError::Full);
    let mut lanes = open_lanes(&dir);
    assert_eq!(lanes.len(), 16);
    assert_eq!(lanes[0].file_bytes(), 32 << 10);
    assert_eq!(lanes[1].file_bytes(), 64 << 10);
    assert_eq!(lanes[15].file_bytes(), 1 << 20);
    let mut sum = 0;
    let mut count = 0;
    let mut buffer = Vec::new();
    for lane in &mut lanes {
        let is_first = lane.header().number == 0;
        let view = lane.read(&mut buffer).expect("readable");
        assert_eq!(view.refused(), u64::from(is_first));
        count += view.len() as u64;
        for (_, value) in view.iter() {
            let Some(LaneValue::Counter(value)) = value else {
                panic!("{value:?}")
            };
            sum += value;
        }
    }
    assert_eq!((count, sum), (made, made * (made - 1) / 2));
}

#[test]
fn points_come_in_order_and_gaps_are_counted() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let depth = Points::create_in(home, &spec("depth", &[])).expect("made");
    let load = Points::create_in(home, &spec("load", &[])).expect("made");
    let mut lane = only_lane(&dir);
    let (mut buffer, mut points) = (Vec::new(), Vec::new());
    lane.read(&mut buffer).expect("readable");
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (0, 0));
    depth.add_at(1.0, 1000);
    load.add_at(2.0, 500);
    depth.add_at(f64::NAN, -3);
    lane.read(&mut buffer).expect("readable");
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (3, 0));
    let seen: Vec<(usize, i64)> = points
        .iter()
        .map(|point| (point.series, point.time_ms))
        .collect();
    assert_eq!(seen, [(0, 1000), (1, 500), (0, -3)]);
    assert!(points[2].value.is_nan());

    for number in 0..5000 {
        depth.add_at(f64::from(number), i64::from(number));
    }
    points.clear();
    lane.read(&mut buffer).expect("readable");
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (2048, 5000 - 2048));
    assert_eq!(points[0].time_ms, 5000 - 2048);
    assert_eq!(points[2047].value, 4999.0);

    // Another reader continues where this one stopped.
    let position = lane.position();
    depth.add_at(9.0, 9);
    let mut second = only_lane(&dir);
    second.set_position(position);
    points.clear();
    second.read(&mut buffer).expect("readable");
    let read = second
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (1, 0));
}

#[test]
fn a_directory_lists_lanes_and_nothing_else() {
    let dir = TempDir::new();
    let id = "0123456789abcdef0123456789abcdef";
    for name in [
        &format!("{id}.lane"),
        &format!("{id}.tmp"),
        "x.lane",
        "README",
    ] {
        std::fs::write(dir.join(name), "").expect("a file");
    }
    let directory = LaneDirectoryHandle::open(dir.path()).expect("a directory");
    let mut listing = directory.list(10).expect("readable");
    listing.lanes.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!((listing.lanes.len(), listing.others), (2, 2));
    assert!(!listing.lanes[0].is_temporary && listing.lanes[1].is_temporary);
    assert!(directory.list(1).expect("readable").has_more);
    let gone = directory.open_lane(&format!("{}.lane", "0".repeat(32)), &LaneLimits::default());
    assert!(matches!(gone, Err(LaneOpenError::NotFound)));
    assert!(directory.remove("README").is_err());
    directory.remove(&format!("{id}.lane")).expect("removed");
    directory
        .remove(&format!("{id}.lane"))
        .expect("a missing file is not an error");
    assert_eq!(directory.list(10).expect("readable").lanes.len(), 1);
}
