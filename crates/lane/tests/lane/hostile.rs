//! Lanes that are malformed, shrink, grow, change while they are read, or are not lanes at all.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pegel_lane::reader::{
    LaneDirectoryHandle, LaneError, LaneFile, LaneLimits, LaneOpenError, ParsedLane,
};
use pegel_lane::{
    Counter, Gauge, Handle, Histogram, LaneKind, LaneSeriesSpec, Points, ProcessLanes,
    StripedCounter,
};
use pegel_testkit::{OtherUser, Rng, TempDir};

/// Offsets in the header, as in the format.
const VERSION: usize = 8;
const FILE_BYTES: usize = 64;
const RING_OFFSET: usize = 68;
const RING_POINTS: usize = 72;
const PUBLISHED: usize = 80;
const RING_HEAD: usize = 128;
const JOB: usize = 256;
const SERIES: usize = 512;

const NAME: &str = "00112233445566778899aabbccddeeff.lane";

/// Returns the bytes of a valid lane with series of several kinds.
fn good(with_points: bool) -> Vec<u8> {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let mut spec = LaneSeriesSpec::new(LaneKind::Counter, "steps_total");
    spec.help = "Steps.";
    spec.labels = &[("phase", "assembly")];
    if with_points {
        let points = Points::create_in(home, &spec).expect("made");
        (0..3000).for_each(|number| points.add_at(1.0, number));
    } else {
        Counter::create_in(home, &spec).expect("made").add(7);
        Gauge::create_in(home, &spec).expect("made").set(1.0);
        Histogram::create_in(home, &spec).expect("made").record(1.0);
        spec.stripes = 4;
        StripedCounter::create_in(home, &spec).expect("made").add(1);
    }
    let mut files = fs::read_dir(dir.path()).expect("a directory");
    let file = files.next().expect("a lane").expect("readable");
    let mut bytes = fs::read(file.path()).expect("readable");
    for (index, byte) in bytes[16..32].iter_mut().enumerate() {
        *byte = index as u8 * 0x11;
    }
    bytes
}

/// A directory with a file that claims to be a lane.
struct HostileLane {
    dir: TempDir,
    directory: LaneDirectoryHandle,
}

impl HostileLane {
    fn new() -> HostileLane {
        let dir = TempDir::new();
        let directory = LaneDirectoryHandle::open(dir.path()).expect("a directory");
        HostileLane { dir, directory }
    }

    fn with(bytes: &[u8]) -> HostileLane {
        let trap = HostileLane::new();
        fs::write(trap.path(), bytes).expect("a file");
        trap
    }

    fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    fn open(&self) -> Result<LaneFile, LaneOpenError> {
        self.directory.open_lane(NAME, &LaneLimits::default())
    }

    fn write_at(&self, at: usize, bytes: &[u8]) {
        let file = OpenOptions::new()
            .write(true)
            .open(self.path())
            .expect("ours");
        file.write_all_at(bytes, at as u64).expect("written");
    }
}

fn changed(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = good(false);
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

/// Returns the error of reading, from a file and from memory.
fn refusal(bytes: &[u8]) -> String {
    let parsed = ParsedLane::parse(bytes)
        .err()
        .map(|error| error.to_string());
    let trap = HostileLane::with(bytes);
    let mut buffer = Vec::new();
    let read = match trap.open() {
        Ok(mut lane) => lane.read(&mut buffer).err().map(|error| error.to_string()),
        Err(LaneOpenError::Lane(error)) => Some(error.to_string()),
        Err(other) => return other.to_string(),
    };
    assert_eq!(parsed, read);
    read.unwrap_or_default()
}

#[test]
fn a_valid_lane_is_accepted() {
    for with_points in [false, true] {
        let bytes = good(with_points);
        assert_eq!(refusal(&bytes), "");
        let lane = ParsedLane::parse(&bytes).expect("good");
        let view = lane.view(&bytes);
        assert_eq!(view.len(), if with_points { 1 } else { 4 });
        for index in 0..view.len() {
            let series = view.series(index).expect("described");
            assert_eq!((series.name, series.help), ("steps_total", "Steps."));
            assert_eq!(series.labels, [("phase", "assembly")]);
        }
        assert!(view.series(view.len()).is_err());
        assert_eq!(view.value(view.len()), None);
        assert_eq!(view.ignored(view.len()), 0);
    }
}

#[test]
fn invalid_headers_are_distinguished() {
    let u32_of = |value: u32| value.to_le_bytes();
    for (at, value, expected) in [
        (0, &b"X"[..], "not a lane"),
        (VERSION, &u32_of(2), "version 2 of the lane's format"),
        (VERSION + 4, &u32_of(511), "invalid length"),
        (FILE_BYTES, &u32_of(0), "invalid file length"),
        (FILE_BYTES, &u32_of(u32::MAX), "invalid file length"),
        (RING_POINTS, &u32_of(2048), "invalid ring"),
        (RING_POINTS, &u32_of(u32::MAX), "invalid ring"),
        (RING_POINTS, &u32_of(1 << 31), "invalid ring"),
        (JOB, &[0xff], "invalid job"),
        (JOB, b"a\nb", "invalid job"),
        (JOB, &[b'x'; 256], "invalid job"),
        (PUBLISHED, &0_u64.to_le_bytes(), "0 bytes are published"),
        (PUBLISHED, &513_u64.to_le_bytes(), "513 bytes are published"),
        (
            PUBLISHED,
            &(64_u64 << 10).to_le_bytes(),
            "65536 bytes are published",
        ),
        (PUBLISHED, &u64::MAX.to_le_bytes(), "bytes are published"),
        (
            PUBLISHED,
            &((1_u64 << 32) + 512).to_le_bytes(),
            "bytes are published",
        ),
        // Beyond the last series there are only zeros.
        (PUBLISHED, &(32_u64 << 10).to_le_bytes(), "invalid length"),
    ] {
        let message = refusal(&changed(at, value));
        assert!(
            message.contains(expected),
            "{at}: {message:?}, not {expected:?}"
        );
    }
}

#[test]
fn invalid_descriptions_are_distinguished() {
    let u16_of = |value: u16| value.to_le_bytes();
    let u32_of = |value: u32| value.to_le_bytes();
    for (at, value, expected) in [
        (0, &u32_of(0)[..], "length"),
        (0, &u32_of(65), "length"),
        (0, &u32_of(u32::MAX), "length"),
        (4, &[0], "kind"),
        (4, &[200], "kind"),
        // Points without a ring.
        (4, &[7], "kind"),
        (5, &[4], "aggregation"),
        (6, &[0], "number of stripes"),
        (6, &[65], "number of stripes"),
        (6, &[9], "slot"),
        (8, &u32_of(0), "slot"),
        (8, &u32_of(65), "slot"),
        (8, &u32_of(192), "slot"),
        (8, &u32_of(u32::MAX - 63), "slot"),
        (12, &u16_of(u16::MAX), "length of its texts"),
        (12, &u16_of(100), "name"),
        (14, &u16_of(100), "help"),
        (16, &u16_of(100), "labels"),
        (16, &u16_of(5), "label"),
        (18, &[2], "labels"),
        (18, &[0], "labels"),
        (18, &[33], "number of labels"),
        (32, &[0xff], "name"),
    ] {
        let message = refusal(&changed(SERIES + at, value));
        let expected = format!("at byte {SERIES} of the lane has an invalid {expected}");
        assert!(
            message.contains(&expected),
            "{at}: {message:?}, not {expected:?}"
        );
    }
}

#[test]
fn any_byte_may_be_wrong() {
    let mut rng = Rng::from_env();
    for with_points in [false, true] {
        let good = good(with_points);
        let published = 2600.min(good.len() as u64);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + rng.below(4) {
                bytes[rng.below(published) as usize] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(good.len() as u64 + 1).max(rng.below(4096)) as usize);
            let Ok(lane) = ParsedLane::parse(&bytes) else {
                continue;
            };
            let view = lane.view(&bytes);
            for (index, value) in view.iter() {
                let _ = (view.series(index), view.ignored(index), value);
            }
            // A shorter copy than the parsed one is not possible, but must not panic.
            let _ = lane.view(&bytes[..600.min(bytes.len())]).value(0);
        }
    }
}

#[test]
fn a_lane_that_shrinks_grows_or_takes_back_is_refused() {
    let mut buffer = Vec::new();
    let trap = HostileLane::with(&good(false));
    let mut lane = trap.open().expect("good");
    lane.read(&mut buffer).expect("good");

    trap.write_at(PUBLISHED, &512_u64.to_le_bytes());
    let error = lane.read(&mut buffer).expect_err("it takes series back");
    assert!(matches!(error, LaneError::Published(512)), "{error:?}");

    let trap = HostileLane::with(&good(false));
    let mut lane = trap.open().expect("good");
    lane.read(&mut buffer).expect("good");
    let file = OpenOptions::new()
        .write(true)
        .open(trap.path())
        .expect("ours");
    file.set_len(600).expect("shortened");
    let error = lane
        .read(&mut buffer)
        .expect_err("the file is shorter than its header claims");
    assert!(
        matches!(error, LaneError::Truncated { found: 600, .. }),
        "{error:?}"
    );
    file.set_len(0).expect("shortened");
    let error = lane.read(&mut buffer).expect_err("it is empty");
    assert!(
        matches!(error, LaneError::Truncated { found: 0, .. }),
        "{error:?}"
    );

    // A longer one is read up to the length in its first header.
    let trap = HostileLane::with(&good(false));
    let mut lane = trap.open().expect("good");
    let file = OpenOptions::new()
        .write(true)
        .open(trap.path())
        .expect("ours");
    file.set_len(1 << 40).expect("sparse");
    lane.read(&mut buffer).expect("good still");
    trap.write_at(PUBLISHED, &(1_u64 << 20).to_le_bytes());
    assert!(matches!(
        lane.read(&mut buffer),
        Err(LaneError::Published(_))
    ));
    assert!(buffer.len() < 32 << 10);
}

#[test]
fn a_lane_that_renames_its_series_is_read_as_it_was() {
    let trap = HostileLane::with(&good(false));
    let mut lane = trap.open().expect("good");
    let mut buffer = Vec::new();
    lane.read(&mut buffer).expect("good");
    // Kind, slot and texts of the first series, and the identity.
    trap.write_at(SERIES + 4, &[200, 200, 200]);
    trap.write_at(SERIES + 8, &u32::MAX.to_le_bytes());
    trap.write_at(SERIES + 12, &[0xff; 6]);
    trap.write_at(0, &[0xff; 32]);
    let view = lane
        .read(&mut buffer)
        .expect("what was learned once is kept");
    assert_eq!(view.kind(0), Some(LaneKind::Counter));
    assert_eq!(
        view.value(0),
        Some(pegel_lane::reader::LaneValue::Counter(7))
    );
    assert!(view.series(0).is_err());
    assert_eq!(view.header().id[1], 0x11);
}

#[test]
fn an_invalid_ring_gives_no_points_and_costs_no_time() {
    let (mut buffer, mut points) = (Vec::new(), Vec::new());
    let trap = HostileLane::with(&good(true));
    for head in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 40) + 1] {
        let mut lane = trap.open().expect("good");
        trap.write_at(RING_HEAD, &head.to_le_bytes());
        lane.read(&mut buffer).expect("good");
        let read = lane.points(&mut buffer, true, &mut points);
        assert!(
            matches!(read, Err(LaneError::Header(_))),
            "no program writes that many"
        );
    }
    for head in [1_u64 << 40, 2500, 2048, 0] {
        let mut lane = trap.open().expect("good");
        trap.write_at(RING_HEAD, &head.to_le_bytes());
        lane.read(&mut buffer).expect("good");
        points.clear();
        let read = lane
            .points(&mut buffer, true, &mut points)
            .expect("readable");
        assert!(points.len() <= 2048);
        assert_eq!(read.read, points.len() as u64);
        assert_eq!(read.read + read.lost, head);
        // A head that goes back is ignored.
        trap.write_at(RING_HEAD, &1_u64.to_le_bytes());
        lane.read(&mut buffer).expect("good");
        let again = lane
            .points(&mut buffer, true, &mut points)
            .expect("readable");
        assert_eq!((again.read, again.lost), (0, u64::from(head == 0)));
    }
    // Points of a series that does not exist.
    let mut bytes = good(true);
    let ring =
        u32::from_le_bytes(*bytes[RING_OFFSET..].first_chunk().expect("long enough")) as usize;
    for place in bytes[ring..].chunks_mut(32) {
        place[24..28].copy_from_slice(&[0xff; 4]);
    }
    let trap = HostileLane::with(&bytes);
    let mut lane = trap.open().expect("good");
    lane.read(&mut buffer).expect("good");
    points.clear();
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (0, 3000));
}

#[test]
fn an_unfinished_point_is_awaited_and_then_skipped() {
    let mut bytes = good(true);
    let ring =
        u32::from_le_bytes(*bytes[RING_OFFSET..].first_chunk().expect("long enough")) as usize;
    // The writer of the last point but one died while writing it.
    let place = ring + 2998 % 2048 * 32;
    bytes[place..place + 8].copy_from_slice(&(2 * 2998_u64 + 1).to_le_bytes());
    let trap = HostileLane::with(&bytes);
    let mut lane = trap.open().expect("good");
    lane.set_position(2000);
    let (mut buffer, mut points) = (Vec::new(), Vec::new());
    lane.read(&mut buffer).expect("good");
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost, lane.position()), (998, 0, 2998));
    for _ in 0..9 {
        let read = lane
            .points(&mut buffer, false, &mut points)
            .expect("readable");
        assert_eq!((read.read, read.lost), (0, 0));
    }
    let read = lane
        .points(&mut buffer, false, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost, lane.position()), (1, 1, 3000));

    // When the lane has ended, no writer will finish it.
    let mut lane = trap.open().expect("good");
    lane.set_position(2000);
    lane.read(&mut buffer).expect("good");
    let read = lane
        .points(&mut buffer, true, &mut points)
        .expect("readable");
    assert_eq!((read.read, read.lost), (999, 1));
}

#[test]
fn only_regular_files_are_opened() {
    let bytes = good(false);
    let trap = HostileLane::new();
    let real = trap.dir.join("real");
    fs::write(&real, &bytes).expect("a file");
    symlink(&real, trap.path()).expect("a link");
    assert!(matches!(trap.open(), Err(LaneOpenError::NotRegularFile)));
    fs::remove_file(trap.path()).expect("ours");

    symlink("/no/such/file", trap.path()).expect("a link");
    assert!(matches!(trap.open(), Err(LaneOpenError::NotRegularFile)));
    fs::remove_file(trap.path()).expect("ours");

    fs::hard_link(&real, trap.path()).expect("a second name");
    assert!(matches!(trap.open(), Err(LaneOpenError::Linked(2))));
    fs::remove_file(trap.path()).expect("ours");

    fs::create_dir(trap.path()).expect("a directory");
    assert!(matches!(trap.open(), Err(LaneOpenError::NotRegularFile)));
    fs::remove_dir(trap.path()).expect("ours");

    rustix::fs::mknodat(
        rustix::fs::CWD,
        trap.path(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a pipe");
    assert!(matches!(trap.open(), Err(LaneOpenError::NotRegularFile)));
    fs::remove_file(trap.path()).expect("ours");

    let _socket = std::os::unix::net::UnixListener::bind(trap.path()).expect("a socket");
    assert!(matches!(trap.open(), Err(LaneOpenError::NotRegularFile)));
}

#[test]
fn files_of_odd_sizes_and_names_are_not_read() {
    let bytes = good(false);
    for size in [0, 511, (4 << 20) + 1] {
        let trap = HostileLane::new();
        let file = File::create(trap.path()).expect("a file");
        file.set_len(size).expect("sparse");
        assert!(matches!(trap.open(), Err(LaneOpenError::Size(found)) if found == size));
    }
    // A copy, which would be counted twice.
    let trap = HostileLane::with(&bytes);
    let other = NAME.replace("00", "01");
    fs::copy(trap.path(), trap.dir.join(&other)).expect("a copy");
    let copy = trap.directory.open_lane(&other, &LaneLimits::default());
    assert!(matches!(copy, Err(LaneOpenError::Name)));
    for name in ["", ".", "..", "/etc/passwd", "a/b"] {
        assert!(
            trap.directory
                .open_lane(name, &LaneLimits::default())
                .is_err(),
            "{name}"
        );
    }
}

#[test]
fn limits_on_size_series_and_owner_are_kept() {
    let trap = HostileLane::with(&good(false));
    let open = |limits: &LaneLimits| trap.directory.open_lane(NAME, limits);
    let small = LaneLimits {
        bytes_max: 1024,
        ..LaneLimits::default()
    };
    assert!(matches!(open(&small), Err(LaneOpenError::Size(_))));
    let few = LaneLimits {
        series_max: 3,
        ..LaneLimits::default()
    };
    let mut buffer = Vec::new();
    let mut lane = open(&few).expect("good");
    let error = lane.read(&mut buffer).expect_err("four series");
    assert!(
        matches!(error, LaneError::TooManySeries { limit: 3 }),
        "{error:?}"
    );
    let own = rustix::process::geteuid().as_raw();
    let others = LaneLimits {
        owners: Some(vec![own + 1]),
        ..LaneLimits::default()
    };
    assert!(matches!(open(&others), Err(LaneOpenError::Owner(uid)) if uid == own));
    let mine = LaneLimits {
        owners: Some(vec![own]),
        ..LaneLimits::default()
    };
    assert_eq!(open(&mine).expect("good").owner(), own);
}

#[test]
fn a_lane_of_another_user_is_known_by_the_kernel_and_not_by_its_header() {
    let Some(_stranger) = OtherUser::new() else {
        return;
    };
    let trap = HostileLane::with(&good(false));
    let other_user = Some(rustix::fs::Uid::from_raw(OtherUser::UID));
    rustix::fs::chown(trap.path(), other_user, None).expect("root");
    let lane = trap.open().expect("good");
    assert_eq!(lane.owner(), OtherUser::UID);
    assert_eq!(lane.header().uid, 0);
    let own = LaneLimits {
        owners: Some(vec![0]),
        ..LaneLimits::default()
    };
    let refused = trap.directory.open_lane(NAME, &own);
    assert!(matches!(refused, Err(LaneOpenError::Owner(OtherUser::UID))));
}

#[test]
fn a_writer_that_overwrites_its_lane_harms_no_reader() {
    let mut rng = Rng::from_env();
    let bytes = good(true);
    let trap = HostileLane::with(&bytes);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scribbler = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let at = rng.below(bytes.len() as u64 - 8) as usize;
                trap.write_at(at, &rng.next_u64().to_le_bytes());
                if rng.chance(50) {
                    trap.write_at(0, &bytes);
                }
            }
        });
        let (mut buffer, mut points) = (Vec::new(), Vec::new());
        for _ in 0..3000 {
            let Ok(mut lane) = trap.open() else { continue };
            for _ in 0..3 {
                let Ok(view) = lane.read(&mut buffer) else {
                    break;
                };
                for (index, value) in view.iter() {
                    let _ = (view.series(index), value);
                }
                points.clear();
                let read = lane.points(&mut buffer, false, &mut points);
                assert!(read.is_err() || points.len() <= 2048);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        scribbler.join().expect("no panic");
    });
}

#[test]
fn a_program_whose_lane_is_overwritten_writes_only_into_it() {
    let dir = TempDir::new();
    let home = ProcessLanes::in_directory(dir.path());
    let points = || {
        Points::create_in(home, &LaneSeriesSpec::new(LaneKind::Point, "residual"))
            .expect("a series")
    };
    let counter = || {
        Counter::create_in(home, &LaneSeriesSpec::new(LaneKind::Counter, "x")).expect("a series")
    };
    let (first_points, first_counter) = (points(), counter());
    first_points.add_at(1.0, 1);
    let mut ring = None;
    for file in fs::read_dir(dir.path()).expect("a directory") {
        let path = file.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let file = OpenOptions::new().write(true).open(&path).expect("ours");
        let is_ring = bytes[RING_POINTS..RING_POINTS + 4] != [0; 4];
        // All descriptions and slots, and the header up to the head of the ring.
        let end = if is_ring { 16 << 10 } else { bytes.len() };
        for range in [0..RING_HEAD, SERIES..end] {
            let scribble = vec![0xa5; range.len()];
            file.write_all_at(&scribble, range.start as u64)
                .expect("written");
        }
        if is_ring {
            ring = Some(File::open(&path).expect("readable"));
        }
    }
    // An offset taken from the lane would point some 2.7 GB below the mapping.
    first_points.add_at(2.0, 2);
    first_counter.add(1);
    // The descriptions are overwritten, so these are new series.
    for _ in 0..3 {
        points().add_at(3.0, 3);
        counter().add(1);
    }
    let mut head = [0; 8];
    let ring = ring.expect("a lane for points");
    ring.read_exact_at(&mut head, RING_HEAD as u64)
        .expect("readable");
    assert_eq!(u64::from_le_bytes(head), 5, "all points are in the ring");
}
