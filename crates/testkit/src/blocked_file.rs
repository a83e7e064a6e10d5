//! A file whose writer blocks, as on a disk that hangs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

/// A named pipe in the place of a file: a thread that opens it for writing blocks until
/// [`BlockedFile::resume`], or until this is dropped. Its sync fails then, because pipes have none.
#[derive(Debug)]
pub struct BlockedFile {
    path: PathBuf,
    reader: Option<File>,
}

impl BlockedFile {
    /// Replaces the file, which need not exist.
    pub fn replace(path: impl Into<PathBuf>) -> BlockedFile {
        let path = path.into();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                panic!("cannot remove {}: {error}", path.display())
            }
            _ => {}
        }
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &path, FileType::Fifo, mode, 0)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        BlockedFile { path, reader: None }
    }

    /// Lets the writer proceed.
    pub fn resume(&mut self) {
        let mut options = OpenOptions::new();
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        // Fails if the directory was removed: then no writer is left.
        self.reader = options.read(true).open(&self.path).ok();
    }

    /// Returns what was written since [`BlockedFile::resume`]. The writer must have closed the
    /// file.
    pub fn written(&mut self) -> Vec<u8> {
        let mut written = Vec::new();
        let reader = self.reader.as_mut().expect("resumed");
        reader.read_to_end(&mut written).expect("closed");
        written
    }
}

impl Drop for BlockedFile {
    fn drop(&mut self) {
        if self.reader.is_none() {
            self.resume();
        }
    }
}
