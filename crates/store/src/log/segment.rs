//! One segment file of the log that is being written: its creation, its header and its end
//! position. Used by the log's I/O thread.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::FORMAT_VERSION;
use crate::files::{FileHandle, Files, write_all_at};

use super::{HEADER_LEN, MAGIC, segment_path};

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct LogSegment {
    pub path: Arc<Path>,
    pub file: Arc<dyn FileHandle>,
    /// The position of the next frame. Bytes beyond it, if any, were never acknowledged.
    end: u64,
}

impl LogSegment {
    pub(crate) fn create(files: &dyn Files, dir: &Path, number: u64) -> io::Result<LogSegment> {
        // Created here rather than at opening, so that a store on a full or read-only disk gets its
        // directory as soon as the disk permits.
        files.make_dir(dir)?;
        let path = segment_path(dir, number);
        let file = files.create(&path)?;
        write_all_at(&*file, &segment_header(number), 0)?;
        Ok(LogSegment {
            path: path.into(),
            file,
            end: HEADER_LEN as u64,
        })
    }

    /// Records that this many bytes were appended.
    pub(crate) fn advance(&mut self, len: u64) {
        self.end += len;
    }

    pub(crate) fn len(&self) -> u64 {
        self.end
    }
}

pub(crate) fn segment_header(number: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..20].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
