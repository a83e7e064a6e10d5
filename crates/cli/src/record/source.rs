//! Loads a record into memory: a part, a folder of parts, standard input, or a URL. A record is the
//! concatenation of its parts, and a block never spans two of them.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pegel_machine::redact::redact_address;
use pegel_plain_file::{open_plain, read_plain};
use pegel_record::RecordEvent;
use pegel_session::storage::{RecordPlace, SUMMARY_NAME, part_name, part_number, read_parts};

use crate::storage_access;

/// The most bytes of a record: that of a node with 1000 series at 1 Hz has 50 MB per day.
const RECORD_BYTES_MAX: u64 = 4 << 30;
/// The most parts of a record.
const PARTS_MAX: usize = 100_000;
const SUMMARY_BYTES_MAX: u64 = 16 << 20;

/// The name and content of one part.
#[derive(Debug)]
pub(super) struct PartContent {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// The content of a location: parts in order, and the summary of a record that ended cleanly.
#[derive(Debug, Default)]
pub(super) struct RecordContent {
    pub parts: Vec<PartContent>,
    pub summary: Option<String>,
}

/// A record in memory.
#[derive(Debug)]
pub(super) struct LoadedRecord {
    /// The location as the user passed it, without credentials.
    pub location: String,
    /// All parts, one after the other.
    pub bytes: Vec<u8>,
    /// The name of each part and the position of its first byte.
    parts: Vec<(String, usize)>,
    pub summary: Option<String>,
    /// The folder of the record, whose last names are those of the task.
    pub folder: Option<PathBuf>,
    /// Whether only a later part was requested: its first block is not the record's.
    is_later_part: bool,
}

impl LoadedRecord {
    /// Loads the record at a path, a URL or `-`.
    pub(super) fn load(location: &str) -> anyhow::Result<LoadedRecord> {
        let shown = redact_address(location);
        let (content, folder) = if location == "-" {
            (read_stdin()?, None)
        } else if location.contains("://") {
            let content = read_url(location)?;
            let path = shown.split_once("://").map(|(_, path)| path);
            (content, path.map(PathBuf::from))
        } else {
            let path = Path::new(location);
            let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            (read_path(path)?, Some(full))
        };
        let folder = folder.map(|path| match is_part(&path) {
            true => path.parent().map(Path::to_owned).unwrap_or_default(),
            false => path,
        });
        LoadedRecord::from_content(shown, content, folder)
    }

    fn from_content(
        location: String,
        content: RecordContent,
        folder: Option<PathBuf>,
    ) -> anyhow::Result<LoadedRecord> {
        let first = content
            .parts
            .first()
            .and_then(|part| part_number(&part.name));
        let mut record = LoadedRecord {
            is_later_part: content.parts.len() == 1 && first.is_some_and(|number| number > 0),
            location,
            bytes: Vec::new(),
            parts: Vec::new(),
            summary: content.summary,
            folder,
        };
        for part in content.parts {
            record.parts.push((part.name, record.bytes.len()));
            if record.bytes.is_empty() {
                record.bytes = part.bytes;
            } else {
                record.bytes.extend_from_slice(&part.bytes);
            }
            if record.bytes.len() as u64 > RECORD_BYTES_MAX {
                bail!("{}: {}", record.location, too_large());
            }
        }
        Ok(record)
    }

    pub(super) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the part and the byte in it: `record-00001.pgl, byte 4711`.
    pub(super) fn position_text(&self, position: usize) -> String {
        let after = self.parts.partition_point(|(_, start)| *start <= position);
        match after.checked_sub(1).map(|at| &self.parts[at]) {
            Some((name, start)) => format!("{name}, byte {}", position - start),
            None => format!("byte {position}"),
        }
    }

    /// Whether the event only shows that earlier parts were not requested.
    pub(super) fn is_expected_start(&self, event: &RecordEvent) -> bool {
        self.is_later_part && matches!(event, RecordEvent::Missing { first: 0, .. })
    }
}

fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| part_number(name).is_some())
}

fn too_large() -> String {
    format!(
        "the record exceeds {} GiB; pass its parts one by one",
        RECORD_BYTES_MAX >> 30
    )
}

/// Reads a record from storage.
fn read_url(url: &str) -> anyhow::Result<RecordContent> {
    let place = storage_access::parse_place(url)?;
    if let RecordPlace::Directory(dir) = &place {
        return read_path(dir);
    }
    let credentials = storage_access::credentials()?;
    let endpoints = storage_access::endpoints();
    let parts = read_parts(&place, &credentials, &endpoints, RECORD_BYTES_MAX)?;
    if parts.is_empty() {
        bail!("{place}: no record here; the parts of a record are in PLACE/WORKFLOW/TASK/ATTEMPT");
    }
    let parts = parts.into_iter().map(|part| PartContent {
        name: part_name(part.number),
        bytes: part.bytes,
    });
    Ok(RecordContent {
        parts: parts.collect(),
        // The last block of the record has the same content.
        summary: None,
    })
}

fn read_stdin() -> anyhow::Result<RecordContent> {
    let bytes = read_bounded(&mut io::stdin().lock(), "standard input", RECORD_BYTES_MAX)?;
    Ok(RecordContent {
        parts: vec![PartContent {
            name: "standard input".to_owned(),
            bytes,
        }],
        summary: None,
    })
}

/// Reads a part, or all parts in a folder.
fn read_path(path: &Path) -> anyhow::Result<RecordContent> {
    let found = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if found.is_dir() {
        return read_folder(path);
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(RecordContent {
        parts: vec![PartContent {
            name: name.to_string_lossy().into_owned(),
            bytes: read_part(path, RECORD_BYTES_MAX)?,
        }],
        // The summary belongs to the record, of which this may be the only part.
        summary: path.parent().and_then(read_summary),
    })
}

fn read_folder(dir: &Path) -> anyhow::Result<RecordContent> {
    let numbers = part_numbers(dir)?;
    if numbers.is_empty() {
        bail!(
            "{}: no record-NNNNN.pgl in this folder; the parts of a record are in \
             PLACE/WORKFLOW/TASK/ATTEMPT",
            dir.display()
        );
    }
    let mut content = RecordContent {
        summary: read_summary(dir),
        ..RecordContent::default()
    };
    let mut left = RECORD_BYTES_MAX;
    for number in numbers {
        let name = part_name(number);
        let bytes = read_part(&dir.join(&name), left)?;
        left -= bytes.len() as u64;
        content.parts.push(PartContent { name, bytes });
    }
    Ok(content)
}

/// Returns the numbers of the parts in a folder, in ascending order.
pub(super) fn part_numbers(dir: &Path) -> anyhow::Result<Vec<u32>> {
    let cannot = || format!("cannot read {}", dir.display());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        numbers.extend(name.to_str().and_then(part_number));
        if numbers.len() > PARTS_MAX {
            bail!("{}: more than {PARTS_MAX} parts", dir.display());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the summary in a folder. A record that did not end cleanly has none.
fn read_summary(dir: &Path) -> Option<String> {
    let bytes = read_plain(&dir.join(SUMMARY_NAME), SUMMARY_BYTES_MAX).ok()?;
    String::from_utf8(bytes).ok()
}

fn read_part(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = open_plain(path).with_context(cannot)?;
    read_bounded(&mut file, &path.display().to_string(), bytes_max)
}

fn read_bounded(input: &mut impl Read, name: &str, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.take(bytes_max + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > bytes_max {
        bail!("{name}: {}", too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, bytes: &[u8]) -> PartContent {
        PartContent {
            name: name.to_owned(),
            bytes: bytes.to_owned(),
        }
    }

    #[test]
    fn positions_are_those_in_a_part() {
        let content = RecordContent {
            parts: vec![
                part("record-00000.pgl", b"abc"),
                part("record-00001.pgl", b""),
                part("record-00002.pgl", b"de"),
            ],
            summary: None,
        };
        let record = LoadedRecord::from_content("x".to_owned(), content, None).expect("small");
        assert_eq!(record.bytes, b"abcde");
        assert_eq!(record.position_text(2), "record-00000.pgl, byte 2");
        assert_eq!(record.position_text(4), "record-00002.pgl, byte 1");
    }

    #[test]
    fn earlier_parts_are_missed_only_if_they_were_asked_for() {
        let event = RecordEvent::Missing { first: 0, last: 7 };
        for (names, expected) in [
            (&["record-00001.pgl"][..], true),
            (&["record-00000.pgl"], false),
            (&["record-00001.pgl", "record-00002.pgl"], false),
            (&["standard input"], false),
        ] {
            let content = RecordContent {
                parts: names.iter().map(|name| part(name, b"x")).collect(),
                summary: None,
            };
            let record = LoadedRecord::from_content("x".to_owned(), content, None).expect("small");
            assert_eq!(record.is_expected_start(&event), expected, "{names:?}");
        }
    }

    #[test]
    fn urls_with_credentials_are_refused_without_showing_them() {
        for url in ["azblob://acct/c/wf?sig=planted", "ftp://planted@x"] {
            let error = read_url(url).expect_err("no place");
            assert!(!format!("{error:#}").contains("planted"), "{error:#}");
        }
    }
}
