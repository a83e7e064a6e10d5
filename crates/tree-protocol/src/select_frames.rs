//! The frames of a response of `/tree/select`: each part is preceded by its length in 4 bytes
//! (little-endian). The last part is the [`SelectEnd`], so that a truncated response is found.

use bytes::Bytes;
use prost::Message;
use prost::encoding::message;

use crate::{
    MessageFault, SelectEnd, SelectPart, SelectedSeries, check_message_elements, select_part,
};

/// The fields of [`SelectPart`].
const SERIES_FIELD: u32 = 1;
const END_FIELD: u32 = 2;

const LENGTH_BYTES: usize = 4;

/// The series would exceed the limit on the response; it was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response exceeds {limit} bytes")]
pub struct SelectTooLarge {
    pub limit: usize,
}

/// Writes a response.
#[derive(Debug)]
pub struct SelectWriter {
    out: Vec<u8>,
    bytes_max: usize,
}

impl SelectWriter {
    /// Limits the series to `bytes_max` bytes. The end of the response is not counted.
    pub fn new(bytes_max: usize) -> SelectWriter {
        SelectWriter {
            out: Vec::new(),
            bytes_max: bytes_max.min(u32::MAX as usize),
        }
    }

    /// The number of bytes written so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Appends a series.
    pub fn series(&mut self, series: &SelectedSeries) -> Result<(), SelectTooLarge> {
        let length = message::encoded_len(SERIES_FIELD, series);
        if length.saturating_add(LENGTH_BYTES) > self.bytes_max.saturating_sub(self.out.len()) {
            let limit = self.bytes_max;
            return Err(SelectTooLarge { limit });
        }
        self.part(SERIES_FIELD, series, length);
        Ok(())
    }

    /// Appends the end and returns the response.
    pub fn finish(mut self, end: SelectEnd) -> Bytes {
        let length = message::encoded_len(END_FIELD, &end);
        self.part(END_FIELD, &end, length);
        self.out.into()
    }

    fn part(&mut self, field: u32, content: &impl Message, length: usize) {
        self.out.reserve(LENGTH_BYTES + length);
        self.out.extend_from_slice(&(length as u32).to_le_bytes());
        message::encode(field, content, &mut self.out);
    }
}

/// Why a response was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectFrameError {
    #[error("the response is truncated")]
    Truncated,
    #[error("malformed part of the response: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("malformed part of the response: {0}")]
    Elements(#[from] MessageFault),
    #[error("{0} bytes after the end of the response")]
    TrailingBytes(usize),
}

/// Reads the parts of a response up to and including its end. A response without one is truncated,
/// which is an error. Parts of unknown kinds are skipped. Nothing follows an error.
#[derive(Debug)]
pub struct SelectReader<'a> {
    rest: &'a [u8],
    is_finished: bool,
}

impl<'a> SelectReader<'a> {
    pub fn new(bytes: &'a [u8]) -> SelectReader<'a> {
        SelectReader {
            rest: bytes,
            is_finished: false,
        }
    }

    fn read_part(&mut self) -> Result<SelectPart, SelectFrameError> {
        let (length, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(SelectFrameError::Truncated)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (frame, rest) = rest
            .split_at_checked(length)
            .ok_or(SelectFrameError::Truncated)?;
        self.rest = rest;
        // Small elements of lists take far more memory than bytes.
        check_message_elements(frame)?;
        let part = SelectPart::decode(frame)?;
        if let Some(select_part::Kind::End(_)) = part.kind {
            self.is_finished = true;
            if !rest.is_empty() {
                return Err(SelectFrameError::TrailingBytes(rest.len()));
            }
        }
        Ok(part)
    }
}

impl Iterator for SelectReader<'_> {
    type Item = Result<SelectPart, SelectFrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_finished {
            match self.read_part() {
                Ok(part) if part.kind.is_none() => {}
                Ok(part) => return Some(Ok(part)),
                Err(error) => {
                    self.is_finished = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
