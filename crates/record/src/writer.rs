//! Makes the blocks of a record.

use std::borrow::Borrow;

use pegel_metric::Millis;

use crate::block::{RecordBlockHeader, RecordBlockKind};
use crate::sample_coder::{SERIES_MAX, SampleCoder};
use crate::split_samples::split_samples;
use crate::text::{TEXT_BYTES_MAX, deflate};
use crate::{KEY_INTERVAL, RecordSamples};

/// A whole block, ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBlock {
    pub header: RecordBlockHeader,
    pub bytes: Vec<u8>,
}

/// Makes the blocks of one record, in order. A block that could not be stored is followed by
/// [`RecordWriter::continue_at`] with its number.
#[derive(Debug, Default)]
pub struct RecordWriter {
    next_sequence: u64,
    coder: SampleCoder,
    /// The start of the last key block; `None` makes the next block of samples a key block.
    key_start: Option<Millis>,
}

impl RecordWriter {
    /// Continues a record, after a restart or after a block that was not stored. The next block of
    /// samples is a key block.
    pub fn continue_at(&mut self, next_sequence: u64) {
        *self = RecordWriter {
            next_sequence,
            ..RecordWriter::default()
        };
    }

    /// Returns the number of the next block.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Returns a block with a document: JSON, with the snapshot of the machine, the configuration.
    pub fn document(&mut self, time: Millis, text: &str) -> RecordBlock {
        self.text_block(RecordBlockKind::Document, time, text)
    }

    /// Returns a block with the state of a task that was killed or failed, as JSON.
    pub fn autopsy(&mut self, time: Millis, text: &str) -> RecordBlock {
        self.text_block(RecordBlockKind::Autopsy, time, text)
    }

    /// Returns the last block of a record that ends cleanly, with its summary as JSON.
    pub fn end(&mut self, time: Millis, text: &str) -> RecordBlock {
        self.text_block(RecordBlockKind::End, time, text)
    }

    /// Returns blocks with samples: one, or several if a block cannot contain them all. Every
    /// series has as many values as times.
    pub fn samples(&mut self, samples: &[RecordSamples]) -> Vec<RecordBlock> {
        let parts = split_samples(samples);
        let blocks = parts.iter().map(|part| {
            let part: Vec<&RecordSamples> = part.iter().map(Borrow::borrow).collect();
            self.sample_block(&part)
        });
        blocks.collect()
    }

    fn sample_block(&mut self, samples: &[&RecordSamples]) -> RecordBlock {
        let times = samples.iter().flat_map(|one| {
            let (first, last) = (one.times.first(), one.times.last());
            first.into_iter().chain(last).copied()
        });
        let start = times.clone().min().unwrap_or_default();
        let end = times.max().unwrap_or_default();
        let is_recent = |key: Millis| (0..KEY_INTERVAL).contains(&start.saturating_sub(key));
        let has_room = self.coder.series_count() + samples.len() <= SERIES_MAX;
        let kind = match self.key_start {
            Some(key) if is_recent(key) && has_room => RecordBlockKind::Samples,
            _ => RecordBlockKind::Key,
        };
        if kind == RecordBlockKind::Key {
            self.coder = SampleCoder::default();
            self.key_start = Some(start);
        }
        let body = self.coder.encode(samples);
        self.block(kind, (start, end), &body)
    }

    /// Makes a block of text. One that exceeds the limit is cut: it is not valid JSON then, but its
    /// start is kept.
    fn text_block(&mut self, kind: RecordBlockKind, time: Millis, text: &str) -> RecordBlock {
        let is_boundary = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(is_boundary);
        let text = &text[..end.unwrap_or_default()];
        self.block(kind, (time, time), &deflate(text))
    }

    fn block(
        &mut self,
        kind: RecordBlockKind,
        times: (Millis, Millis),
        body: &[u8],
    ) -> RecordBlock {
        let header = RecordBlockHeader::new(kind, self.next_sequence, times, body);
        let mut bytes = Vec::new();
        header.write(body, &mut bytes);
        self.next_sequence += 1;
        RecordBlock { header, bytes }
    }
}
