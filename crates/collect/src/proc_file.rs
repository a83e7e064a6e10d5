//! Files of `/proc` that are opened once and read in every pass.
//!
//! Used by the collectors on the sampler thread. A read allocates nothing once the buffer has grown
//! to the size of the file, and the buffer never exceeds 16 MiB. A read returns the whole file or
//! an error, never a part of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::SeriesError;
use pegel_plain_file::open_plain;

use crate::CollectorOpenError;
use crate::proc_parse::ProcParseError;

/// Larger than any file that is read here; a larger one is rejected.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
const TEXT_BYTES_START: usize = 8 * 1024;

/// Why a pass produced no values.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is larger than {TEXT_BYTES_MAX} bytes")]
    TooLarge { path: PathBuf },
    #[error("{path}, line {line}: {what}")]
    Malformed {
        path: PathBuf,
        line: usize,
        what: &'static str,
    },
    #[error("cannot publish a name in {path}")]
    Series {
        path: PathBuf,
        #[source]
        source: SeriesError,
    },
    #[error("{path} has more than {max} names")]
    TooManyNames { path: PathBuf, max: usize },
    /// A device or its driver does not answer.
    #[error("{0}")]
    Device(String),
    /// A bug in the collector; the other collectors continue.
    #[error("panicked: {0}")]
    Panic(String),
}

impl ProcParseError {
    pub(crate) fn at_path(self, path: &Path) -> CollectError {
        let path = path.to_owned();
        match self {
            ProcParseError::Malformed { line, what } => {
                CollectError::Malformed { path, line, what }
            }
            ProcParseError::Series(source) => CollectError::Series { path, source },
            ProcParseError::TooManyNames(max) => CollectError::TooManyNames { path, max },
        }
    }
}

/// How the kernel delivers a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// One read returns everything that fits into the buffer.
    SingleRead,
    /// A list, of which one read returns about a page: read until end of file.
    UntilEof,
}

/// An open file and the buffer for its text, which grows as needed.
#[derive(Debug)]
pub(crate) struct ProcFile {
    path: PathBuf,
    file: File,
    read_mode: ReadMode,
    text: Vec<u8>,
}

impl ProcFile {
    /// Opens a file; `None` if it does not exist.
    pub(crate) fn open(
        path: PathBuf,
        read_mode: ReadMode,
    ) -> Result<Option<ProcFile>, CollectorOpenError> {
        match open_plain(&path) {
            Ok(file) => {
                let text = vec![0; TEXT_BYTES_START];
                Ok(Some(ProcFile {
                    path,
                    file,
                    read_mode,
                    text,
                }))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(source) => Err(CollectorOpenError::Io { path, source }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the current text of the file.
    pub(crate) fn read(&mut self) -> Result<&[u8], CollectError> {
        let length = self.fill()?;
        Ok(&self.text[..length])
    }

    fn fill(&mut self) -> Result<usize, CollectError> {
        let mut length = 0;
        loop {
            let count = match self.file.read_at(&mut self.text[length..], length as u64) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    return Err(CollectError::Read {
                        path: self.path.clone(),
                        source,
                    });
                }
            };
            length += count;
            if length == self.text.len() {
                if length >= TEXT_BYTES_MAX {
                    // Release the buffer: do not pin 16 MiB for a broken file.
                    self.text = vec![0; TEXT_BYTES_START];
                    return Err(CollectError::TooLarge {
                        path: self.path.clone(),
                    });
                }
                self.text.resize(2 * length, 0);
                if self.read_mode == ReadMode::SingleRead {
                    // The kernel generates the text for each read: a second part would be from
                    // another moment.
                    length = 0;
                }
            } else if count == 0 || self.read_mode == ReadMode::SingleRead {
                return Ok(length);
            }
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A file that several collectors use: read once per pass, by the first collector that needs it.
#[derive(Debug)]
pub(crate) struct SharedFile {
    path: PathBuf,
    pass: AtomicU64,
    state: Mutex<Option<SharedFileState>>,
}

#[derive(Debug)]
struct SharedFileState {
    file: ProcFile,
    /// The pass in which it was read, and the length of the text.
    read: Option<(u64, usize)>,
}

impl SharedFile {
    pub(crate) fn new(path: PathBuf) -> SharedFile {
        SharedFile {
            path,
            pass: AtomicU64::new(0),
            state: Mutex::new(None),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn begin_pass(&self) {
        self.pass.fetch_add(1, Relaxed);
    }

    /// Opens or reopens the file. Returns false if it does not exist.
    pub(crate) fn open(&self) -> Result<bool, CollectorOpenError> {
        let file = ProcFile::open(self.path.clone(), ReadMode::SingleRead)?;
        let mut inner = self.lock();
        *inner = file.map(|file| SharedFileState { file, read: None });
        Ok(inner.is_some())
    }

    /// Runs `parse` over the text of this pass.
    pub(crate) fn parse_with<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, ProcParseError>,
    ) -> Result<T, CollectError> {
        let mut guard = self.lock();
        let Some(inner) = guard.as_mut() else {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(CollectError::Read {
                path: self.path.clone(),
                source,
            });
        };
        let pass = self.pass.load(Relaxed);
        let length = match inner.read {
            Some((of, length)) if of == pass => length,
            _ => {
                inner.read = None;
                let length = inner.file.fill()?;
                inner.read = Some((pass, length));
                length
            }
        };
        parse(&inner.file.text[..length]).map_err(|fault| fault.at_path(&self.path))
    }

    /// Runs `parse` over the text that was last read, without reading it again; `None` if there is
    /// none. For other threads than the sampler's: `parse` must be short.
    pub(crate) fn last_text<T>(&self, parse: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let guard = self.lock();
        let inner = guard.as_ref()?;
        let (_, length) = inner.read?;
        Some(parse(inner.file.text.get(..length)?))
    }

    fn lock(&self) -> MutexGuard<'_, Option<SharedFileState>> {
        // `read` is set after the text is complete, so the state is usable after a panic.
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pegel-procfile-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_that_outgrows_the_buffer_is_read_whole() {
        for read_mode in [ReadMode::SingleRead, ReadMode::UntilEof] {
            let path = temporary(&format!("grows-{read_mode:?}"));
            fs::write(&path, "short\n").expect("write");
            let mut file = ProcFile::open(path.clone(), read_mode)
                .expect("open")
                .expect("there");
            assert_eq!(file.read().expect("read"), b"short\n");
            for length in [
                TEXT_BYTES_START - 1,
                TEXT_BYTES_START,
                5 * TEXT_BYTES_START + 3,
                1,
            ] {
                let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
                fs::write(&path, &text).expect("write");
                assert_eq!(file.read().expect("read"), text, "{length} bytes");
            }
            fs::remove_file(path).expect("remove");
        }
    }

    #[test]
    fn a_shared_file_is_read_once_per_pass() {
        let path = temporary("shared");
        fs::write(&path, "one").expect("write");
        let shared = SharedFile::new(path.clone());
        assert!(shared.parse_with(|_| Ok(())).is_err(), "not open yet");
        assert!(shared.open().expect("open"));
        let text = || shared.parse_with(|text| Ok(text.to_vec())).expect("read");
        shared.begin_pass();
        assert_eq!(text(), b"one");
        fs::write(&path, "two").expect("write");
        assert_eq!(text(), b"one");
        shared.begin_pass();
        assert_eq!(text(), b"two");
        fs::remove_file(path).expect("remove");
    }

    #[test]
    fn missing_is_not_an_error_but_a_directory_is() {
        let missing = ProcFile::open(temporary("missing"), ReadMode::SingleRead).expect("quiet");
        assert!(missing.is_none());
        let error =
            ProcFile::open(std::env::temp_dir(), ReadMode::SingleRead).expect_err("refused");
        assert!(error.to_string().starts_with("cannot open /"), "{error}");
    }
}
