//! The file with the position of one target: what the receiver confirmed, and the end of the round
//! that is being sent.
//!
//! One line of text with a checksum, written in place with one call, so that a process that is
//! killed leaves the old line or the new one. It is not synced: after a power cut some samples may
//! be sent again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pegel_store::LogPosition;

use super::sample_stream::StreamPosition;

const FILE_NAME: &str = "position";
const MAGIC: &str = "pegel-remote-write-1";
/// The length of the line, which is padded with spaces.
const LINE_BYTES: usize = 256;

/// A round that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingRound {
    pub end: StreamPosition,
    /// How the round is split into requests.
    pub shards: u32,
    pub samples_per_request: u32,
}

/// The contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SavedPosition {
    /// Everything before it was confirmed, refused or dropped.
    pub confirmed: StreamPosition,
    /// The segment at which a stream must begin to read in order to continue at the position.
    pub state_segment: u64,
    pub pending: Option<PendingRound>,
}

/// The file of one target.
#[derive(Debug)]
pub(super) struct PositionFile {
    path: PathBuf,
    file: Option<File>,
}

impl PositionFile {
    pub(super) fn new(dir: &Path) -> PositionFile {
        PositionFile {
            path: dir.join(FILE_NAME),
            file: None,
        }
    }

    /// Reads the position; `None` if there is no file. A damaged file is an error.
    pub(super) fn load(&self) -> io::Result<Option<SavedPosition>> {
        let mut text = Vec::new();
        match File::open(&self.path) {
            Ok(file) => file.take(2 * LINE_BYTES as u64).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the position file is damaged");
        parse_line(&text).map(Some).ok_or_else(damaged)
    }

    /// Writes the position.
    pub(super) fn save(&mut self, position: &SavedPosition) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let dir = self.path.parent().unwrap_or(Path::new("/"));
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(0o700).create(dir)?;
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(0o600);
                self.file.insert(options.open(&self.path)?)
            }
        };
        let written = file.write_all_at(line(position).as_bytes(), 0);
        if written.is_err() || fs::symlink_metadata(&self.path).is_err() {
            // Opened again for the next attempt: the file may have been removed.
            self.file = None;
        }
        written
    }
}

fn line(position: &SavedPosition) -> String {
    let place = |place: StreamPosition| {
        let StreamPosition { log, samples } = place;
        format!("{} {} {samples}", log.segment, log.offset)
    };
    let state = position.state_segment;
    let mut text = format!("{MAGIC} {} {state}", place(position.confirmed));
    if let Some(pending) = position.pending {
        let (shards, samples) = (pending.shards, pending.samples_per_request);
        text += &format!(" {} {shards} {samples}", place(pending.end));
    }
    let crc = crc32fast::hash(text.as_bytes());
    format!(
        "{:<width$}\n",
        format!("{text} {crc:08x}"),
        width = LINE_BYTES - 1
    )
}

fn parse_line(bytes: &[u8]) -> Option<SavedPosition> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let (text, crc) = text.rsplit_once(' ')?;
    if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(text.as_bytes()) {
        return None;
    }
    let numbers = text.strip_prefix(MAGIC)?.split_ascii_whitespace();
    let numbers: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
    let place = |numbers: &[u64]| StreamPosition {
        log: LogPosition {
            segment: numbers[0],
            offset: numbers[1],
        },
        samples: numbers[2],
    };
    let pending = match numbers.len() {
        4 => None,
        9 => Some(PendingRound {
            end: place(&numbers[4..]),
            shards: u32::try_from(numbers[7]).ok().filter(|count| *count > 0)?,
            samples_per_request: u32::try_from(numbers[8]).ok().filter(|count| *count > 0)?,
        }),
        _ => return None,
    };
    Some(SavedPosition {
        confirmed: place(&numbers),
        state_segment: numbers[3],
        pending,
    })
}

/// Parses a position file, for `fuzz/`. Returns `None` if it is malformed, otherwise whether
/// writing and parsing the position again gives the same.
pub fn parse_position(bytes: &[u8]) -> Option<bool> {
    let position = parse_line(bytes)?;
    Some(parse_line(line(&position).as_bytes()) == Some(position))
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    fn place(segment: u64, offset: u64, samples: u64) -> StreamPosition {
        StreamPosition {
            log: LogPosition { segment, offset },
            samples,
        }
    }

    #[test]
    fn positions_read_back_and_damage_is_found() {
        let dir = TempDir::new();
        let home = dir.join("remote_write/vm");
        let mut file = PositionFile::new(&home);
        assert_eq!(file.load().expect("readable"), None);
        let long = SavedPosition {
            confirmed: place(u64::MAX, u64::MAX, u64::MAX),
            state_segment: u64::MAX,
            pending: Some(PendingRound {
                end: place(u64::MAX, u64::MAX, u64::MAX),
                shards: u32::MAX,
                samples_per_request: u32::MAX,
            }),
        };
        let short = SavedPosition {
            confirmed: place(1, 24, 0),
            state_segment: 1,
            pending: None,
        };
        for saved in [long, short, long] {
            file.save(&saved).expect("written");
            let length = fs::metadata(home.join(FILE_NAME)).expect("there").len();
            assert_eq!(length, LINE_BYTES as u64);
            assert_eq!(
                PositionFile::new(&home).load().expect("readable"),
                Some(saved)
            );
        }
        // Removed while it is open.
        fs::remove_file(home.join(FILE_NAME)).expect("there");
        file.save(&short).expect("written");
        file.save(&short).expect("written");
        assert_eq!(file.load().expect("readable"), Some(short));
        let mut bytes = fs::read(home.join(FILE_NAME)).expect("there");
        for at in 0..line(&short).trim_end().len() {
            bytes[at] ^= 1;
            assert_eq!(parse_line(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        fs::write(home.join(FILE_NAME), "").expect("written");
        assert!(file.load().is_err());
    }
}
