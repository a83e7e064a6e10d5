//! `annotations.jsonl`: one line for each change; the last one for a key applies.
//!
//! A line is `{"set":{…}}` with an annotation, `{"setby":["SENDER",{…}]}` with one of another user
//! than the agent's, or `{"delete":["TSUID",milliseconds]}`. It is synced before it is
//! acknowledged. A line truncated by a crash is removed; if other lines are malformed, a copy of
//! the file is kept in `aside/`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Annotation, AnnotationKey};

const FILE_NAME: &str = "annotations.jsonl";
/// Smaller files are not compacted.
const COMPACT_BYTES_MIN: u64 = 1 << 20;
/// A larger file was not written by Pegel and is rejected.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct AnnotationFile {
    path: PathBuf,
    /// Opened with the first change.
    handle: Option<fs::File>,
    /// The length of the complete lines.
    len: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum AnnotationRecord {
    Set(Annotation),
    SetBy(String, Annotation),
    Delete(AnnotationKey),
}

impl AnnotationRecord {
    fn of(note: &Annotation) -> AnnotationRecord {
        match &note.writer {
            Some(writer) => AnnotationRecord::SetBy(writer.clone(), note.clone()),
            None => AnnotationRecord::Set(note.clone()),
        }
    }
}

impl AnnotationFile {
    pub(super) fn open(
        dir: &Path,
    ) -> io::Result<(AnnotationFile, BTreeMap<AnnotationKey, Annotation>)> {
        let path = dir.join(FILE_NAME);
        let mut file = AnnotationFile {
            path,
            handle: None,
            len: 0,
        };
        let bytes = match fs::metadata(&file.path) {
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(io::Error::other(format!(
                    "{} is too large",
                    file.path.display()
                )));
            }
            Ok(_) => fs::read(&file.path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (notes, whole, unread) = parse_records(&bytes);
        file.len = bytes.len() as u64;
        if unread > 0 {
            file.set_aside(dir)?;
            tracing::error!(path = %file.path.display(), lines = unread, "malformed annotations skipped; a copy of the file is kept in aside/");
        }
        if unread > 0 || whole < bytes.len() {
            file.rewrite(&lines_of(notes.values())?)?;
        }
        Ok((file, notes))
    }

    /// Deletes annotations, then sets one, with one write and one sync.
    pub(super) fn change(
        &mut self,
        deleted: &[AnnotationKey],
        set: Option<&Annotation>,
    ) -> io::Result<()> {
        let mut lines = Vec::new();
        for key in deleted {
            lines.extend(to_line(&AnnotationRecord::Delete(key.clone()))?);
        }
        lines.extend(lines_of(set)?);
        self.append(&lines)
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.handle {
            Some(file) => file,
            none => {
                let mut options = fs::OpenOptions::new();
                set_private_mode(&mut options);
                none.insert(options.create(true).append(true).open(&self.path)?)
            }
        };
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if written.is_err() {
            // A truncated line would corrupt the next one.
            file.set_len(self.len)?;
        } else {
            self.len += lines.len() as u64;
        }
        written
    }

    /// Returns whether most of the file is obsolete.
    pub(super) fn needs_compaction(&self, live_bytes: usize) -> bool {
        self.len > COMPACT_BYTES_MIN && self.len > 2 * live_bytes as u64
    }

    /// Replaces the file by one with only the given lines: those of the current annotations.
    pub(super) fn rewrite(&mut self, lines: &[u8]) -> io::Result<()> {
        let temporary = self.path.with_extension("jsonl.new");
        let mut options = fs::OpenOptions::new();
        set_private_mode(&mut options);
        let mut file = options
            .create(true)
            .write(true)
            .truncate(true)
            .open(&temporary)?;
        file.write_all(lines)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        if let Some(dir) = self.path.parent() {
            fs::File::open(dir)?.sync_all()?;
        }
        self.handle = None;
        self.len = lines.len() as u64;
        Ok(())
    }

    fn set_aside(&self, dir: &Path) -> io::Result<()> {
        let aside = dir.join("aside");
        let made = fs::DirBuilder::new().mode(0o700).create(&aside);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let free = (0..).map(|number| aside.join(format!("{FILE_NAME}.{number}")));
        let Some(place) = free.into_iter().find(|place| !place.exists()) else {
            return Ok(());
        };
        fs::copy(&self.path, place).map(drop)
    }
}

fn set_private_mode(options: &mut fs::OpenOptions) {
    options.mode(0o600);
}

/// Returns the lines that set annotations.
pub(super) fn lines_of<'a>(notes: impl IntoIterator<Item = &'a Annotation>) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for note in notes {
        lines.extend(to_line(&AnnotationRecord::of(note))?);
    }
    Ok(lines)
}

fn to_line(entry: &AnnotationRecord) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    Ok(line)
}

/// Returns the annotations, the length of the complete lines in bytes, and the number of malformed
/// lines.
fn parse_records(bytes: &[u8]) -> (BTreeMap<AnnotationKey, Annotation>, usize, usize) {
    let mut notes = BTreeMap::new();
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut unread = 0;
    for line in bytes[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match serde_json::from_slice(line) {
            Ok(AnnotationRecord::Set(note)) => {
                drop(notes.insert((note.tsuid.clone(), note.start()), note))
            }
            Ok(AnnotationRecord::SetBy(writer, mut note)) => {
                note.writer = Some(writer);
                drop(notes.insert((note.tsuid.clone(), note.start()), note))
            }
            Ok(AnnotationRecord::Delete(key)) => drop(notes.remove(&key)),
            Err(_) => unread += 1,
        }
    }
    (notes, whole, unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pegel_testkit::TempDir;

    fn note(second: i64) -> Annotation {
        Annotation {
            tsuid: "0A".into(),
            description: "line\nbreak".into(),
            notes: String::new(),
            custom: None,
            end_time: 0,
            start_time: second,
            writer: None,
        }
    }

    #[test]
    fn a_file_cut_at_any_byte_keeps_its_whole_lines() {
        let dir = TempDir::new();
        let (mut file, _) = AnnotationFile::open(dir.path()).expect("opens");
        for second in 1..=3 {
            file.change(&[], Some(&note(second))).expect("written");
        }
        file.change(&[("0A".into(), 2_000)], None).expect("written");
        let whole = fs::read(dir.join(FILE_NAME)).expect("read");
        let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
        for len in 0..=whole.len() {
            fs::write(dir.join(FILE_NAME), &whole[..len]).expect("cut");
            let lines = ends.iter().filter(|end| **end < len).count();
            let expected: &[i64] = [&[][..], &[1], &[1, 2], &[1, 2, 3], &[1, 3]][lines];
            let (mut file, notes) = AnnotationFile::open(dir.path()).expect("opens");
            let found: Vec<i64> = notes.values().map(|note| note.start_time).collect();
            assert_eq!(found, expected, "cut at {len}");
            file.change(&[], Some(&note(9))).expect("written");
            let (_, notes) = AnnotationFile::open(dir.path()).expect("opens");
            assert_eq!(
                notes.len(),
                expected.len() + 1,
                "nothing spoils what follows"
            );
        }
        assert!(!dir.join("aside").exists(), "a torn tail is no damage");
    }

    #[test]
    fn damage_is_kept_aside() {
        let dir = TempDir::new();
        let (mut file, _) = AnnotationFile::open(dir.path()).expect("opens");
        file.change(&[], Some(&note(1))).expect("written");
        drop(file);
        let mut bytes = b"nonsense\n".to_vec();
        bytes.extend(fs::read(dir.join(FILE_NAME)).expect("read"));
        fs::write(dir.join(FILE_NAME), &bytes).expect("spoilt");
        let (_, notes) = AnnotationFile::open(dir.path()).expect("opens");
        assert_eq!(notes.len(), 1);
        assert_eq!(
            fs::read(dir.join("aside/annotations.jsonl.0")).expect("kept"),
            bytes
        );
        let (_, notes) = AnnotationFile::open(dir.path()).expect("opens");
        assert_eq!(notes.len(), 1);
        assert!(!dir.join("aside/annotations.jsonl.1").exists(), "once");
    }
}
