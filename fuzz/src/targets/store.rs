//! The files of the store: segments of the log, blocks, and the format version file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Point, SampleGroup, Series, Tick};
use pegel_store::fuzzing::{
    LoggedEntry, SegmentWriter, build_block, check_format, read_block, replay_segment, unpack,
};
use pegel_store::{FileHandle, Files, StoreOpenError};
use pegel_testkit::TempDir;

use super::Target;
use crate::memory::bounded;
use crate::source::InputReader;

/// Inputs have at most 64 KiB, which packed blocks expand to at most 16 MiB.
const FILE_BYTES_MAX: usize = 128 << 20;

pub(super) const LOG: Target = Target {
    name: "log",
    run: |input| {
        let replayed = bounded(FILE_BYTES_MAX, || replay_segment(input, 1_000));
        assert!(replayed.torn <= input.len() as u64);
    },
    dictionary: &[
        b"PEGELLOG",
        b"\xb5\x9e\x01\0",
        b"\xb5\x9e\x02\0",
        b"\xb5\x9e\x03\0",
        b"\xb5\x9e\x04\0",
    ],
    seeds: || {
        (0..4)
            .map(|shape| segment(shape).bytes().to_vec())
            .collect()
    },
};

pub(super) const LOG_FRAMES: Target = Target {
    name: "log_frames",
    run: log_frames,
    dictionary: &[],
    seeds: || {
        (0..4)
            .map(|shape| take_apart(segment(shape).bytes()))
            .collect()
    },
};

pub(super) const LOG_ROUND_TRIP: Target = Target {
    name: "log_round_trip",
    run: log_round_trip,
    dictionary: &[],
    seeds: || {
        (1..5_u8)
            .map(|step| (0..400_u32).map(|at| (at * at / 3) as u8 / step).collect())
            .collect()
    },
};

pub(super) const BLOCK: Target = Target {
    name: "block",
    run: |input| drop(read(input.to_vec())),
    dictionary: &[b"PEGELBLK", b"PGLE"],
    seeds: || vec![block(), build_block(2, b"", b"\0\0\0")],
};

pub(super) const BLOCK_INDEX: Target = Target {
    name: "block_index",
    run: |input| {
        let mut source = InputReader::new(input);
        let len = source.up_to(4_096);
        let data = source.take(len);
        drop(read(build_block(1, data, source.rest())));
    },
    dictionary: &[],
    seeds: || vec![index_of(&block()), b"\0\0\0\0\0".to_vec()],
};

pub(super) const FORMAT: Target = Target {
    name: "format",
    run: format,
    dictionary: &[b"pegel store ", b"pegel store 1\n"],
    seeds: || {
        ["pegel store 1\n", "pegel store 2", "", "pegel"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec()
    },
};

/// Writes a segment with ticks of a group whose members change, and pushed points.
fn segment(shape: u64) -> SegmentWriter {
    let gauge = Arc::new(Family::new("g", MetricKind::Gauge, "bytes", 1, "Help."));
    let counter = Arc::new(Family::new("c_total", MetricKind::Counter, "", 1, ""));
    let mut group = SampleGroup::new("disk", 4, 5_000);
    let mut slots: Vec<_> = (0..3 + 9 * shape)
        .map(|number| {
            group
                .declare(&gauge, &[("d", &*number.to_string())])
                .expect("valid")
        })
        .collect();
    slots.push(group.declare(&counter, &[]).expect("valid"));
    let mut writer = SegmentWriter::default();
    let mut tick = Tick::new(Input::Collect);
    for pass in 0..6 + shape {
        group.clear();
        for (number, slot) in slots.iter().enumerate() {
            if (pass + number as u64) % 4 != 3 {
                group.set(*slot, (pass * 100 + number as u64) as f64 / 8.0);
            }
        }
        if pass == 3 {
            slots.push(group.declare(&gauge, &[("d", "new")]).expect("valid"));
        }
        tick.reset(1_700_000_000_000 + 500 * pass as i64);
        group.append_to(&mut tick);
        writer.tick(&tick);
        let series = Arc::new(
            Series::new(gauge.clone(), &[("p", &*(pass % 3).to_string())]).expect("valid"),
        );
        let point = Point {
            series,
            time: tick.time - 7,
            value: pass as f64 / 3.0,
        };
        writer.push(Input::Push, &[point]);
    }
    writer
}

/// Builds frames with correct checksums around arbitrary content: kind, length, content.
fn log_frames(input: &[u8]) {
    let mut source = InputReader::new(input);
    let mut writer = SegmentWriter::default();
    while !source.is_empty() {
        let kind = source.u8();
        let prefix = source.take(prefix_len(kind));
        let len = usize::from(source.u16());
        writer.frame(kind, prefix, source.take(len));
    }
    let replayed = bounded(FILE_BYTES_MAX, || replay_segment(writer.bytes(), 1_000));
    assert_eq!(
        (replayed.torn, replayed.version),
        (0, None),
        "every frame is whole"
    );
}

/// The length of the unpacked header before the packed part: input and time, or input.
fn prefix_len(kind: u8) -> usize {
    match kind {
        3 => 9,
        4 => 1,
        _ => 0,
    }
}

/// Encodes a segment in the form that `log_frames` decodes.
fn take_apart(segment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = &segment[24..];
    while let Some(head) = rest.first_chunk::<12>() {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (prefix, packed) = rest[12..12 + len].split_at(prefix_len(head[2]));
        let raw = unpack(packed).expect("our own");
        out.push(head[2]);
        out.extend_from_slice(prefix);
        out.extend_from_slice(&(raw.len() as u16).to_le_bytes());
        out.extend_from_slice(&raw);
        rest = &rest[12 + len..];
    }
    out
}

/// Replay returns exactly what was written: every row and every point, in order, bit for bit.
fn log_round_trip(input: &[u8]) {
    let mut source = InputReader::new(input);
    let mut writer = SegmentWriter::default();
    let mut expected: Vec<LoggedEntry> = Vec::new();
    let family = Arc::new(Family::new("m", MetricKind::Unknown, "", 0, "Any."));
    let mut group = SampleGroup::new("g", 4, 1);
    let mut slots = Vec::new();
    let mut number = 0;
    while !source.is_empty() && number < 300 {
        number += 1;
        match source.u8() % 8 {
            0 => slots.push(
                group
                    .declare(&family, &[("n", &*number.to_string())])
                    .expect("valid"),
            ),
            1 if !slots.is_empty() => {
                group.retire(slots.swap_remove(source.up_to(slots.len() - 1)))
            }
            2 | 3 => {
                let labels = [("p", &*source.up_to(20).to_string())];
                let series = Arc::new(Series::new(family.clone(), &labels).expect("valid"));
                let point = Point {
                    series,
                    time: source.u64() as i64,
                    value: source.float(),
                };
                expected.push((
                    point.time,
                    vec![(point.series.text().to_owned(), point.value.to_bits())],
                ));
                writer.push(Input::Push, &[point]);
            }
            _ => {
                group.clear();
                for slot in &slots {
                    if !source.u8().is_multiple_of(5) {
                        group.set(*slot, source.float());
                    }
                }
                let mut tick = Tick::new(Input::Collect);
                tick.reset(source.u64() as i64);
                group.append_to(&mut tick);
                writer.tick(&tick);
                expected.push((tick.time, present(&tick)));
            }
        }
    }
    let replayed = replay_segment(writer.bytes(), usize::MAX);
    assert_eq!((replayed.torn, replayed.damaged), (0, 0));
    assert_eq!(replayed.logged, expected);
}

fn present(tick: &Tick) -> Vec<(String, u64)> {
    let row = &tick.rows()[0];
    let members = row.members.series.iter().enumerate();
    let present = members.filter(|(index, _)| row.is_present(*index));
    present
        .map(|(index, series)| (series.text().to_owned(), row.values[index].to_bits()))
        .collect()
}

/// A read-only file.
#[derive(Debug)]
struct OneFile(Arc<Content>);

#[derive(Debug)]
struct Content(Vec<u8>);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl Files for OneFile {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn FileHandle>> {
        refused()
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn FileHandle>> {
        Ok(self.0.clone())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        refused()
    }
}

impl FileHandle for Content {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        refused()
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.0.len());
        let count = buffer.len().min(self.0.len() - at);
        buffer[..count].copy_from_slice(&self.0[at..at + count]);
        Ok(count)
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn is_at(&self, _: &Path) -> bool {
        true
    }
}

fn read(bytes: Vec<u8>) -> Result<u64, String> {
    let files: Arc<dyn Files> = Arc::new(OneFile(Arc::new(Content(bytes))));
    bounded(FILE_BYTES_MAX, || {
        read_block(&files, Path::new("/0000000001.blk"))
    })
}

/// Returns a block written by a store, with the samples of [`segment`].
fn block() -> Vec<u8> {
    let dir = TempDir::new();
    let home = dir.join("store");
    std::fs::create_dir_all(home.join("log")).expect("a directory");
    std::fs::write(home.join("log/0000000001.log"), segment(2).bytes()).expect("written");
    let mut options = pegel_store::StoreOptions::new(&home);
    options.keep.disk = std::time::Duration::from_secs(3_000_000_000).into();
    let store = pegel_store::Store::open(options).expect("opens");
    store.flush_to_blocks();
    store.close();
    let blocks = std::fs::read_dir(home.join("blocks")).expect("a directory");
    let block = blocks.flatten().next().expect("a block");
    std::fs::read(block.path()).expect("read")
}

/// Encodes a block in the form that `block_index` decodes.
fn index_of(block: &[u8]) -> Vec<u8> {
    let footer = &block[block.len() - 60..];
    let at = u64::from_le_bytes(footer[..8].try_into().expect("eight bytes")) as usize;
    let len = u32::from_le_bytes(footer[8..12].try_into().expect("four bytes")) as usize;
    let mut out = ((at - 16) as u16).to_le_bytes().to_vec();
    out.extend_from_slice(&block[16..at]);
    out.extend(unpack(&block[at..at + len]).expect("our own"));
    out
}

thread_local! {
    static DIR: TempDir = TempDir::new();
}

/// A file of another version is left unchanged; otherwise it contains the current version
/// afterwards.
fn format(input: &[u8]) {
    DIR.with(|dir| {
        let path = dir.join("format");
        std::fs::write(&path, input).expect("written");
        let checked = check_format(dir.path());
        let after = std::fs::read(&path).expect("read");
        let text = String::from_utf8_lossy(&after);
        let version = text.trim().strip_prefix("pegel store ");
        let version = version.and_then(|number| number.parse::<u32>().ok());
        match checked {
            Ok(()) => assert_eq!(version, Some(1), "{text:?}"),
            Err(StoreOpenError::Version { found, .. }) => {
                assert_ne!(found, 1);
                assert_eq!((version, &*after), (Some(found), input));
            }
            Err(error) => panic!("{error}"),
        }
    });
}
