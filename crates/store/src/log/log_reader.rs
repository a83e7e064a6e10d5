//! Reads the log from a position on, for outputs that must see every sample, including late ones.
//!
//! A reader opens a segment at its beginning, because rows are differences to rows before them, and
//! follows it while it is written. It reads only files, never the state of the store, and never
//! blocks the writer. Frames that a crash left incomplete are skipped, as in a replay; damaged ones
//! are reported.

use std::io;
use std::sync::Arc;

use crate::context::StoreContext;
use crate::files::FileHandle;

use super::replay::frame_at;
use super::segment_decoder::{LogVisitor, SegmentDecoder};
use super::{FRAME_HEAD_LEN, FRAME_LEN_MAX, HEADER_LEN, kept_segments};

/// Bytes that are read from a file at once.
const READ_BYTES: usize = 256 << 10;

/// A position in the log: before a frame, or at the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    pub segment: u64,
    /// Bytes from the beginning of the segment.
    pub offset: u64,
}

/// The result of one step of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStep {
    /// A frame was read; its samples were visited.
    Frame,
    /// A frame was read whose samples could not be decoded, or bytes between two frames were
    /// skipped: some samples are lost.
    Damaged,
    /// The reader is at the beginning of the next segment. Numbers of groups and series have other
    /// meanings from here on.
    NextSegment,
    /// Segments between the last one and this one do not exist any more.
    Gap,
    /// The end of the log is reached.
    End,
}

/// A reader of the log.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<StoreContext>,
    position: LogPosition,
    file: Option<Arc<dyn FileHandle>>,
    decoder: SegmentDecoder,
    /// Bytes of the file from `position` on.
    buffer: Vec<u8>,
    /// The part of the buffer that was read.
    consumed: usize,
}

impl LogReader {
    /// Creates a reader at the beginning of a segment, or of the next one that exists.
    pub(crate) fn new(shared: Arc<StoreContext>, segment: u64) -> LogReader {
        LogReader {
            shared,
            position: beginning(segment),
            file: None,
            decoder: SegmentDecoder::default(),
            buffer: Vec::new(),
            consumed: 0,
        }
    }

    /// Returns the position after the frames that were read.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Reads the next frame and visits its samples.
    pub fn step(&mut self, visitor: &mut dyn LogVisitor) -> io::Result<LogStep> {
        // Read before the file: a segment that is not the last one does not grow any more.
        let end = *self.shared.log_end.lock();
        let Some(file) = self.open()? else {
            return Ok(self.next_segment(end));
        };
        let until = match end.segment == self.position.segment {
            true => end.offset,
            false => file.size()?,
        };
        if self.position.offset + FRAME_HEAD_LEN as u64 > until {
            return Ok(self.next_segment(end));
        }
        self.fill(&*file, FRAME_HEAD_LEN, until)?;
        let Some(head) = self.buffer[self.consumed..].first_chunk::<FRAME_HEAD_LEN>() else {
            // The file was truncated after it was written.
            return Ok(self.next_segment(end));
        };
        let claimed = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if claimed <= FRAME_LEN_MAX {
            self.fill(&*file, FRAME_HEAD_LEN + claimed, until)?;
        }
        let mut budget = FRAME_LEN_MAX;
        match frame_at(&self.buffer[self.consumed..], &mut budget) {
            Some((kind, payload)) => {
                let decoded = self.decoder.frame(kind, payload, visitor);
                let len = FRAME_HEAD_LEN + payload.len();
                self.consume(len);
                Ok(decoded.map_or(LogStep::Damaged, |()| LogStep::Frame))
            }
            None => self.skip_damage(&*file, until),
        }
    }

    /// Continues at the beginning of the next segment, although this one was not read to its end.
    /// Returns false if there is none.
    pub fn skip_segment(&mut self) -> bool {
        let end = *self.shared.log_end.lock();
        self.next_segment(end) != LogStep::End
    }

    /// Opens the segment at the position. It may be moved at any time, so both places are tried
    /// twice.
    fn open(&mut self) -> io::Result<Option<Arc<dyn FileHandle>>> {
        if self.file.is_none() {
            let paths = kept_segments::paths(&self.shared, self.position.segment);
            for path in paths.iter().chain(&paths) {
                match self.shared.options.files.open(path) {
                    Ok(file) => {
                        self.file = Some(file);
                        break;
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.file.clone())
    }

    /// Makes at least `wanted` bytes available, if the file has them before `until`.
    fn fill(&mut self, file: &dyn FileHandle, wanted: usize, until: u64) -> io::Result<()> {
        if self.buffer.len() - self.consumed >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let have = self.buffer.len();
        let left = usize::try_from(until - self.position.offset).unwrap_or(usize::MAX);
        let target = wanted.max(READ_BYTES).min(left).max(have);
        self.buffer.resize(target, 0);
        let at = self.position.offset + have as u64;
        let read = file.read_at(&mut self.buffer[have..], at);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }

    fn consume(&mut self, len: usize) {
        self.consumed += len;
        self.position.offset += len as u64;
    }

    /// Continues at the next complete frame. If there is none, the rest of the segment is an
    /// incomplete write.
    fn skip_damage(&mut self, file: &dyn FileHandle, until: u64) -> io::Result<LogStep> {
        let left = usize::try_from(until - self.position.offset).unwrap_or(usize::MAX);
        self.fill(file, left, until)?;
        let rest = &self.buffer[self.consumed..];
        let mut budget = rest.len().saturating_mul(16);
        let next = (1..rest.len()).find(|at| frame_at(&rest[*at..], &mut budget).is_some());
        let (skipped, step) = match next {
            Some(next) => (next, LogStep::Damaged),
            None => (left, LogStep::Frame),
        };
        self.decoder.discard_base_rows();
        self.consumed = (self.consumed + skipped).min(self.buffer.len());
        self.position.offset += skipped as u64;
        Ok(step)
    }

    /// Advances to the next segment that exists, if the current one is complete.
    fn next_segment(&mut self, end: LogPosition) -> LogStep {
        let current = self.position.segment;
        if current >= end.segment {
            return LogStep::End;
        }
        let was_open = self.file.is_some();
        let numbers = kept_segments::numbers(&self.shared);
        let next = numbers.iter().copied().find(|number| *number > current);
        let next = next.unwrap_or(end.segment).min(end.segment);
        *self = LogReader::new(self.shared.clone(), next);
        match was_open && next == current + 1 {
            true => LogStep::NextSegment,
            false => LogStep::Gap,
        }
    }
}

/// Returns the position of the first frame of a segment.
fn beginning(segment: u64) -> LogPosition {
    LogPosition {
        segment,
        offset: HEADER_LEN as u64,
    }
}
