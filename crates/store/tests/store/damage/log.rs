//! Damage to the log: truncation at every byte, and changes of single bytes.

use std::fs;
use std::time::Duration;

use pegel_store::Store;

use super::fixture::{
    DamageFixture, SampleBits, contents, files_in, missing, only_file, read, restore,
};

/// As documented in `log/mod.rs`.
const HEADER_LEN: usize = 24;
const FRAME_HEAD_LEN: usize = 12;
const GROUP: u8 = 1;
const SERIES: u8 = 2;
const KEY_ROW_INTERVAL: usize = 128;

/// A frame of the log and the samples in it.
#[derive(Debug)]
struct ExpectedFrame {
    start: usize,
    end: usize,
    kind: u8,
    samples: SampleBits,
    /// For each group with a row in the frame, the number of its earlier rows.
    rows: Vec<(usize, usize)>,
}

struct LogFixture {
    scene: DamageFixture,
    bytes: Vec<u8>,
    frames: Vec<ExpectedFrame>,
    all: SampleBits,
}

impl LogFixture {
    /// Creates a log of this many ticks, with pushes between; each is its own frame.
    fn new(ticks: usize) -> LogFixture {
        let mut scene = DamageFixture::new();
        let store = scene.open();
        let mut written = Vec::new();
        let mut row_counts = [0; 2];
        for n in 0..ticks {
            scene.advance(500);
            let which: &[usize] = if n % 3 == 0 { &[0] } else { &[0, 1] };
            let samples = scene.tick(&store, which);
            let rows: Vec<(usize, usize)> = which
                .iter()
                .map(|&group| {
                    row_counts[group] += 1;
                    (group, row_counts[group] - 1)
                })
                .collect();
            written.push((samples, rows));
            if n % 7 == 3 {
                let labels: &[&str] = if n < ticks / 2 { &["a"] } else { &["a", "b"] };
                let samples = scene.push(&store, labels).expect("taken");
                written.push((samples, Vec::new()));
            }
        }
        store.close();
        drop(store);
        let bytes = fs::read(only_file(&scene.path("log"))).expect("a log");
        let frames = frames_of(&bytes, written);
        let all = frames.iter().flat_map(|frame| frame.samples.clone());
        let all: SampleBits = all.collect();
        LogFixture {
            scene,
            frames,
            all,
            bytes,
        }
    }

    /// Opens a store whose log is these bytes.
    fn open_with(&self, log: &[u8]) -> Store {
        let dir = &self.scene.options.dir;
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir.join("log")).expect("a folder");
        fs::write(dir.join("log/0000000001.log"), log).expect("a log");
        self.scene.open()
    }

    fn frame_at(&self, byte: usize) -> Option<usize> {
        self.frames
            .iter()
            .position(|frame| frame.start <= byte && byte < frame.end)
    }

    /// Returns what may be lost when a frame is damaged: its samples, the series it defines, and
    /// rows up to the next key row.
    fn may_be_lost(&self, damaged: usize) -> SampleBits {
        let mut lost = SampleBits::new();
        let mut on_track = [false; 2];
        let defines = self.frames[damaged].kind;
        for (at, frame) in self.frames.iter().enumerate().skip(damaged) {
            for (group, row) in &frame.rows {
                on_track[*group] |= at > damaged && row % KEY_ROW_INTERVAL == 0;
            }
            let derailed = frame.rows.iter().any(|(group, _)| !on_track[*group]);
            let undefined = match defines {
                GROUP => !frame.rows.is_empty(),
                SERIES => frame.rows.is_empty(),
                _ => false,
            };
            if at == damaged || derailed || undefined {
                lost.extend(frame.samples.clone());
            }
        }
        lost
    }
}

fn frames_of(bytes: &[u8], written: Vec<(SampleBits, Vec<(usize, usize)>)>) -> Vec<ExpectedFrame> {
    let mut written = written.into_iter();
    let mut frames = Vec::new();
    let mut start = HEADER_LEN;
    while start < bytes.len() {
        let word = bytes[start + 4..start + 8].try_into().expect("four bytes");
        let end = start + FRAME_HEAD_LEN + u32::from_le_bytes(word) as usize;
        let kind = bytes[start + 2];
        let (samples, rows) = match kind {
            GROUP | SERIES => Default::default(),
            _ => written.next().expect("a frame for each tick and push"),
        };
        frames.push(ExpectedFrame {
            start,
            end,
            kind,
            samples,
            rows,
        });
        start = end;
    }
    assert_eq!(start, bytes.len());
    assert!(written.next().is_none(), "a tick or push without a frame");
    frames
}

#[test]
fn a_log_cut_at_any_byte_keeps_every_whole_frame() {
    let logged = LogFixture::new(24);
    for len in 0..logged.bytes.len() {
        let whole = logged.frames.iter().filter(|frame| frame.end <= len);
        let end = whole.clone().map(|frame| frame.end).max();
        let end = end.unwrap_or(if len < HEADER_LEN { 0 } else { HEADER_LEN });
        let wanted: SampleBits = whole.flat_map(|frame| frame.samples.clone()).collect();
        let store = logged.open_with(&logged.bytes[..len]);
        assert_eq!(read(&store), wanted, "cut at {len}");
        let status = store.status();
        assert_eq!(status.torn_bytes, (len - end) as u64, "cut at {len}");
        assert!(status.set_aside.is_empty(), "cut at {len}: {status:?}");
        if len % 61 == 0 {
            store.flush_to_blocks();
            assert_eq!(read(&store), wanted, "cut at {len}, settled");
            assert_eq!(store.status().set_aside, [] as [std::path::PathBuf; 0]);
            drop(store);
            let store = logged.scene.open();
            assert_eq!(read(&store), wanted, "cut at {len}, reopened");
            // A log without samples is kept until the next block.
            assert_eq!(
                store.status().torn_bytes > 0,
                wanted.is_empty() && len > end
            );
        }
    }
}

/// Checks one log with one changed byte.
fn check_flip(logged: &LogFixture, at: usize, flip: u8) {
    let context = format!("byte {at} of {} ^ {flip:#x}", logged.bytes.len());
    let mut damaged = logged.bytes.clone();
    damaged[at] ^= flip;
    let store = logged.open_with(&damaged);
    let found = read(&store);
    let lost = missing(&logged.all, &found, &context);
    let frame = logged.frame_at(at);
    let allowed = frame.map_or_else(SampleBits::new, |frame| logged.may_be_lost(frame));
    for key in lost.keys() {
        assert!(
            allowed.contains_key(key),
            "{context}: {key:?} is lost, {frame:?}"
        );
    }
    let is_last = frame == Some(logged.frames.len() - 1);
    assert_eq!(store.status().torn_bytes > 0, is_last, "{context}");
    store.flush_to_blocks();
    assert_eq!(read(&store), found, "{context}: settled");
    let aside = store.status().set_aside;
    if is_last {
        assert!(aside.is_empty(), "{context}: a torn end is not damage");
    } else {
        assert_eq!(aside.len(), 1, "{context}");
        assert!(
            aside[0].starts_with(logged.scene.path("aside")),
            "{aside:?}"
        );
        assert_eq!(fs::read(&aside[0]).expect("kept"), damaged, "{context}");
    }
    drop(store);
    let store = logged.scene.open();
    assert_eq!(read(&store), found, "{context}: reopened");
    assert_eq!(files_in(&logged.scene.path("aside")).len(), aside.len());
}

#[test]
fn one_changed_byte_costs_at_most_the_dependent_frames() {
    let logged = LogFixture::new(12);
    for at in 0..logged.bytes.len() {
        check_flip(&logged, at, 1 << (at % 8));
    }
}

#[test]
fn a_long_log_gets_back_on_track_at_the_next_key_row() {
    let logged = LogFixture::new(400);
    let losses: Vec<usize> = (0..logged.frames.len())
        .map(|frame| logged.may_be_lost(frame).len())
        .collect();
    assert!(losses[100] < logged.all.len() / 2, "the limit is effective");
    for at in (0..logged.bytes.len()).step_by(logged.bytes.len() / 150) {
        check_flip(&logged, at, 0xff);
    }
}

#[test]
fn definitions_are_written_again_in_a_long_log() {
    let mut logged = LogFixture::new(1);
    // Enough for the second copy of the definitions, which follows after 32 KiB.
    let mut scene = DamageFixture::new();
    scene.options.keep.memory = Duration::from_secs(86_400).into();
    let store = scene.open();
    let mut all = SampleBits::new();
    for n in 0..2000 {
        scene.advance(500);
        all.extend(scene.tick(&store, &[0, 1]));
        if n % 4 == 0 {
            all.extend(scene.push(&store, &["a", "b"]).expect("taken"));
        }
    }
    store.close();
    drop(store);
    let bytes = fs::read(only_file(&scene.path("log"))).expect("a log");
    assert!(bytes.len() > 40 << 10, "{} bytes", bytes.len());
    logged.scene = scene;
    // The first three frames define both groups; a later one defines the pushed series.
    for at in [30, 60] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        let store = logged.open_with(&damaged);
        let lost = missing(&all, &read(&store), "a definition");
        assert!(
            lost.is_empty(),
            "byte {at}: {} samples are lost",
            lost.len()
        );
    }
}

#[test]
fn noise_and_zeros_cost_only_the_overwritten_samples() {
    let logged = LogFixture::new(400);
    let from = logged.bytes.len() / 3;
    for fill in [0x00, 0xb5, 0xff] {
        let mut damaged = logged.bytes.clone();
        damaged[from..from + 700].fill(fill);
        let store = logged.open_with(&damaged);
        let found = read(&store);
        let lost = missing(&logged.all, &found, "a filled stretch");
        let first = logged.frame_at(from).expect("a frame");
        let last = logged.frame_at(from + 700).expect("a frame");
        let allowed: SampleBits = (first..=last)
            .flat_map(|frame| logged.may_be_lost(frame))
            .collect();
        assert!(!lost.is_empty() && lost.keys().all(|key| allowed.contains_key(key)));
        store.flush_to_blocks();
        assert_eq!(store.status().set_aside.len(), 1);
        assert_eq!(read(&store), found);
    }
}

#[test]
fn a_tail_of_zeros_is_torn_and_costs_nothing() {
    let logged = LogFixture::new(24);
    let mut padded = logged.bytes.clone();
    padded.resize(padded.len() + 4096, 0);
    let store = logged.open_with(&padded);
    assert_eq!(read(&store), logged.all);
    assert_eq!(store.status().torn_bytes, 4096);
    drop(store);
    // Only zeros: space that was allocated and never written.
    let store = logged.open_with(&[0; 8192]);
    assert_eq!(read(&store), SampleBits::new());
    assert_eq!(store.status().torn_bytes, 8192);
}

#[test]
fn a_store_continues_after_a_torn_log() {
    let mut logged = LogFixture::new(24);
    let cut = logged.bytes.len() - 3;
    let store = logged.open_with(&logged.bytes[..cut]);
    let mut wanted = read(&store);
    logged.scene.advance(500);
    wanted.extend(logged.scene.tick(&store, &[0, 1]));
    wanted.extend(logged.scene.push(&store, &["a", "c"]).expect("taken"));
    let files = contents(&logged.scene.options.dir);
    drop(store);
    restore(&logged.scene.options.dir, &files);
    let store = logged.scene.open();
    assert_eq!(read(&store), wanted);
}
