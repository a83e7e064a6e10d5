//! Replays a segment of the log when a store is opened. An incomplete end, left by a crash, is
//! discarded; damaged parts are skipped and counted. Damaged input never causes a panic or an
//! unbounded allocation.

use crate::FORMAT_VERSION;

use super::frame_encoder::frame_crc;
use super::segment_decoder::{LogVisitor, SegmentDecoder};
use super::{
    FRAME_HEAD_LEN, FRAME_LEN_MAX, FRAME_MARK, GROUP_FRAME, HEADER_LEN, MAGIC, SERIES_FRAME,
};

/// The condition of a replayed segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayReport {
    /// Bytes after the last complete frame: an incomplete write before a crash.
    pub torn: u64,
    /// Bytes skipped before further complete frames, or in frames that could not be decoded.
    pub damaged: u64,
    /// The version in the header, if it is not supported.
    pub version: Option<u32>,
}

/// Replays a segment: first all definitions, then the samples in their order.
pub(crate) fn replay(bytes: &[u8], visitor: &mut dyn LogVisitor) -> ReplayReport {
    let mut replayed = ReplayReport::default();
    match read_header(bytes) {
        HeaderCheck::Good => {}
        HeaderCheck::Torn => {
            replayed.torn = bytes.len() as u64;
            return replayed;
        }
        HeaderCheck::Version(version) => {
            replayed.version = Some(version);
            return replayed;
        }
        // Frames have their own marks and checksums, so they are replayed regardless.
        HeaderCheck::Damaged => replayed.damaged += HEADER_LEN as u64,
    }
    let frames = find_frames(bytes, &mut replayed);
    let mut decoder = SegmentDecoder::default();
    let is_definition = |frame: &LogFrame<'_>| matches!(frame.kind, GROUP_FRAME | SERIES_FRAME);
    // All definitions first, so that a damaged one is replaced by its copy further on.
    for frame in frames.iter().filter(|frame| is_definition(frame)) {
        if decoder.frame(frame.kind, frame.payload, visitor).is_err() {
            replayed.damaged += frame.payload.len() as u64;
        }
    }
    for frame in &frames {
        if frame.after_damage {
            decoder.discard_base_rows();
        }
        if !is_definition(frame) && decoder.frame(frame.kind, frame.payload, visitor).is_err() {
            replayed.damaged += frame.payload.len() as u64;
        }
    }
    replayed
}

enum HeaderCheck {
    Good,
    Torn,
    Damaged,
    Version(u32),
}

/// Returns the version in the header of a segment if it is not the supported one; `None` for a
/// damaged header.
pub(crate) fn unsupported_version(header: &[u8]) -> Option<u32> {
    match read_header(header) {
        HeaderCheck::Version(version) => Some(version),
        _ => None,
    }
}

fn read_header(bytes: &[u8]) -> HeaderCheck {
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return HeaderCheck::Torn;
    };
    if header.iter().all(|byte| *byte == 0) {
        return if bytes.iter().all(|byte| *byte == 0) {
            HeaderCheck::Torn
        } else {
            HeaderCheck::Damaged
        };
    }
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if &header[..8] != MAGIC || word(20) != crc32fast::hash(&header[..20]) {
        return HeaderCheck::Damaged;
    }
    match word(8) {
        FORMAT_VERSION => HeaderCheck::Good,
        version => HeaderCheck::Version(version),
    }
}

struct LogFrame<'a> {
    kind: u8,
    payload: &'a [u8],
    after_damage: bool,
}

/// Finds the complete frames of a segment and counts the bytes between and after them.
fn find_frames<'a>(bytes: &'a [u8], replayed: &mut ReplayReport) -> Vec<LogFrame<'a>> {
    let mut frames = Vec::new();
    let mut at = HEADER_LEN;
    let mut after_damage = false;
    // The search for the next complete frame reads each claimed payload; the sum of these reads is
    // bounded too.
    let mut budget = bytes.len().saturating_mul(16);
    while at < bytes.len() {
        if let Some((kind, payload)) = frame_at(&bytes[at..], &mut budget) {
            frames.push(LogFrame {
                kind,
                payload,
                after_damage,
            });
            after_damage = false;
            at += FRAME_HEAD_LEN + payload.len();
            continue;
        }
        let next =
            (at + 1..bytes.len()).find(|&next| frame_at(&bytes[next..], &mut budget).is_some());
        match next {
            Some(next) => {
                replayed.damaged += (next - at) as u64;
                after_damage = true;
                at = next;
            }
            None => {
                replayed.torn = (bytes.len() - at) as u64;
                break;
            }
        }
    }
    frames
}

/// Returns the kind and payload of the frame at the start of `bytes`, if its checksum is right.
pub(super) fn frame_at<'a>(bytes: &'a [u8], budget: &mut usize) -> Option<(u8, &'a [u8])> {
    if bytes.len() < FRAME_HEAD_LEN || bytes[..2] != FRAME_MARK || bytes[3] != 0 {
        return None;
    }
    let kind = bytes[2];
    let len = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
    let crc = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    if len > FRAME_LEN_MAX || bytes.len() - FRAME_HEAD_LEN < len {
        return None;
    }
    *budget = budget.checked_sub(len)?;
    let frame = &bytes[..FRAME_HEAD_LEN + len];
    (frame_crc(frame) == crc).then_some((kind, &frame[FRAME_HEAD_LEN..]))
}
