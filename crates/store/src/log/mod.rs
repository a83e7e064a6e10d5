//! The write-ahead log: every sample is written here before it becomes visible to readers.
//!
//! A segment `log/NNNNNNNNNN.log` is a header and then frames. Segments are self-contained: each
//! defines the groups and series that it uses. A segment is removed when all its samples are in
//! blocks.
//!
//! ```text
//! header   "PEGELLOG" · version u32 · segment number u64 · crc u32 of the 20 bytes before
//! frame    0xB5 0x9E · kind u8 · 0 u8 · payload length u32 · crc u32 · payload
//! ```
//!
//! Integers are little-endian; the frame's crc (CRC-32) covers kind, zero, length and payload.
//! Payloads:
//!
//! ```text
//! 1 group    LZ4 of: id · name · stale_after · series count · series…
//! 2 series   LZ4 of: first id · series count · series…       (ids count up from the first)
//! 3 tick     input u8 · time i64 · LZ4 of: row count · rows…
//! 4 push     input u8 · LZ4 of: point count · (series id · time, as difference to the one before · value bits)…
//! series     name · kind u8 · unit · level u4, input u4 · help · labels text   (an empty name: family of the one before)
//! row        length · group id · flags u8 · presence bitmap if flag 1 · values as `codec::encode_row` writes them,
//!            against the row before of the same group id, or against zeros if flag 2 (every 128th row)
//! ```
//!
//! LZ4 blocks carry their raw length (u32) in front.
//!
//! With [`StoreOptions::keep_log`](crate::StoreOptions), segments whose samples are in blocks move
//! to `outgoing/` and stay there until readers of the log (`log_reader.rs`) have released them.
//! They are never replayed.

mod frame_encoder;
pub(crate) mod kept_segments;
mod log_io;
mod log_reader;
mod replay;
mod segment;
mod segment_decoder;

pub(crate) use frame_encoder::FrameEncoder;
pub(crate) use log_io::LogIo;
pub use log_reader::{LogPosition, LogReader, LogStep};
pub(crate) use replay::{replay, unsupported_version};
pub(crate) use segment::{LogSegment, segment_header};
pub use segment_decoder::LogVisitor;

use std::path::{Path, PathBuf};

pub(crate) const MAGIC: &[u8; 8] = b"PEGELLOG";
pub(crate) const HEADER_LEN: usize = 24;
pub(crate) const FRAME_HEAD_LEN: usize = 12;
pub(crate) const FRAME_MARK: [u8; 2] = [0xB5, 0x9E];
/// The longest frame: a larger length means damage.
pub(crate) const FRAME_LEN_MAX: usize = 64 << 20;

pub(crate) const GROUP_FRAME: u8 = 1;
pub(crate) const SERIES_FRAME: u8 = 2;
pub(crate) const TICK_FRAME: u8 = 3;
pub(crate) const PUSH_FRAME: u8 = 4;

pub(crate) const ROW_PARTLY_PRESENT: u8 = 1;
pub(crate) const ROW_KEY: u8 = 2;
/// Rows of a group from one key row to the next: a damaged frame costs at most this many rows of
/// each group.
pub(crate) const KEY_ROW_INTERVAL: u32 = 128;

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.log"))
}

/// Returns the number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    name.strip_suffix(".log")?.parse().ok()
}
