//! Files of `/proc` that are opened once and read in every pass.
//!
//! Used by the collectors on the sampler thread. A read allocates nothing once the buffer has grown
//! to the size of the file, and the buffer never exceeds 16 MiB. A read returns the whole file or
//! an error, never a part of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::{Clock, SeriesError};
use pegel_plain_file::open_plain;

use crate::CollectorOpenError;
use crate::proc_parse::ProcParseError;

/// Larger than any file that is read here; a larger one is rejected.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
const TEXT_BYTES_START: usize = 8 * 1024;
/// A reading that takes longer was interrupted; the largest machines need a few milliseconds.
const READING_TIME_MAX: Duration = Duration::from_millis(10);
const READING_TRIES_MAX: u32 = 3;

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
    clock: Arc<dyn Clock>,
    pass: AtomicU64,
    state: Mutex<Option<SharedFileState>>,
}

#[derive(Debug)]
struct SharedFileState {
    file: ProcFile,
    /// The pass in which it was read, and the length of the text.
    read: Option<(u64, usize)>,
    /// The monotonic time of that reading.
    read_at: Option<Duration>,
}

impl SharedFileState {
    /// Reads the file; returns the length of the text and the monotonic time of the reading. A
    /// reading during which the thread was preempted is repeated: its time is uncertain.
    fn read_timed(&mut self, clock: &dyn Clock) -> Result<(usize, Duration), CollectError> {
        let mut tries = 0;
        loop {
            let before = clock.monotonic();
            let length = self.file.fill()?;
            let after = clock.monotonic();
            tries += 1;
            if after.saturating_sub(before) <= READING_TIME_MAX || tries == READING_TRIES_MAX {
                return Ok((length, (before + after) / 2));
            }
        }
    }
}

impl SharedFile {
    pub(crate) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> SharedFile {
        SharedFile {
            path,
            clock,
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
        *inner = file.map(|file| SharedFileState {
            file,
            read: None,
            read_at: None,
        });
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
                (inner.read, inner.read_at) = (None, None);
                let (length, read_at) = inner.read_timed(&*self.clock)?;
                (inner.read, inner.read_at) = (Some((pass, length)), Some(read_at));
                length
            }
        };
        parse(&inner.file.text[..length]).map_err(|fault| fault.at_path(&self.path))
    }

    /// Returns the monotonic time of the last reading.
    pub(crate) fn read_at(&self) -> Option<Duration> {
        self.lock().as_ref()?.read_at
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

    use pegel_metric::SystemClock;

    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pegel-procfile-{}-{name}", std::process::id()))
    }

    /// Advances by the next step with each reading of the clock, in milliseconds.
    #[derive(Debug)]
    struct SteppingClock(Mutex<(Duration, Vec<u64>)>);

    impl Clock for SteppingClock {
        fn utc(&self) -> pegel_metric::Millis {
            0
        }

        fn monotonic(&self) -> Duration {
            let mut state = self.0.lock();
            let step = state.1.pop().unwrap_or(0);
            state.0 += Duration::from_millis(step);
            state.0
        }
    }

    #[test]
    fn an_interrupted_reading_of_a_shared_file_is_repeated() {
        let path = temporary("interrupted");
        fs::write(&path, "text\n").expect("write");
        for (steps, read_at) in [
            (vec![100, 4], 102),
            (vec![100, 200, 0, 6], 303),
            (vec![0, 20, 0, 30, 0, 40], 70),
        ] {
            let steps = steps.into_iter().rev().collect();
            let clock = SteppingClock(Mutex::new((Duration::ZERO, steps)));
            let file = SharedFile::new(path.clone(), Arc::new(clock));
            assert!(file.open().expect("open"));
            file.parse_with(|_| Ok(())).expect("read");
            assert_eq!(file.read_at(), Some(Duration::from_millis(read_at)));
        }
        fs::remove_file(path).expect("remove");
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
        let shared = SharedFile::new(path.clone(), Arc::new(SystemClock));
        assert!(shared.parse_with(|_| Ok(())).is_err(), "not open yet");
        assert!(shared.open().expect("open"));
        let text = || shared.parse_with(|text| Ok(text.to_vec())).expect("read");
        shared.begin_pass();
        assert_eq!(text(), b"one");
        let first = shared.read_at().expect("read");
        fs::write(&path, "two").expect("write");
        assert_eq!(text(), b"one");
        assert_eq!(shared.read_at(), Some(first));
        shared.begin_pass();
        assert_eq!(text(), b"two");
        assert!(shared.read_at() > Some(first));
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
