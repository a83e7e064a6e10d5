//! Logs that grow: each new line is read once.
//!
//! The reader starts at the end of the file and keeps it open. When the path names another file,
//! the rest of the old one is read before the new one is, so that a rotation loses no line. A file
//! that became shorter was truncated and is read from its beginning. What one attempt reads is
//! limited: a log that grows faster is read over several attempts.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use pegel_wire::PointBatch;

use super::data_format::DataFormat;
use super::line_pattern::LinePattern;
use super::pull_context::{PullContext, SampleOptions};
use super::settings::TailSettings;
use super::{PullError, PullReader};

/// The most bytes that one attempt reads.
const ATTEMPT_BYTES_MAX: u64 = 4 << 20;
/// The longest line; a longer one is skipped and counted.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How lines become samples.
#[derive(Debug)]
enum TailSyntax {
    Format(DataFormat, String),
    Pattern(LinePattern),
}

/// Follows a log.
#[derive(Debug)]
pub(crate) struct TailReader {
    path: PathBuf,
    syntax: TailSyntax,
    from_start: bool,
    open: Option<FollowedLog>,
    /// Lines that are not samples, which are counted with the next ones.
    is_first_attempt: bool,
}

#[derive(Debug)]
struct FollowedLog {
    file: File,
    device_and_inode: (u64, u64),
    /// The end of the last complete line that was read.
    position: u64,
    /// Skips the rest of a line that is too long.
    is_skipping: bool,
}

impl TailReader {
    pub(crate) fn new(settings: &TailSettings) -> TailReader {
        let syntax = match &settings.pattern {
            Some(pattern) => TailSyntax::Pattern(pattern.clone()),
            None => {
                TailSyntax::Format(settings.format, settings.prefix.clone().unwrap_or_default())
            }
        };
        TailReader {
            path: settings.path.clone().unwrap_or_default(),
            syntax,
            from_start: settings.from_start,
            open: None,
            is_first_attempt: true,
        }
    }

    /// Opens the file that the path names now. `from_start`: its first line is read too.
    fn open_current(&self, from_start: bool) -> io::Result<FollowedLog> {
        let file = pegel_plain_file::open_plain(&self.path)?;
        let metadata = file.metadata()?;
        Ok(FollowedLog {
            position: if from_start { 0 } else { metadata.len() },
            device_and_inode: (metadata.dev(), metadata.ino()),
            file,
            is_skipping: false,
        })
    }

    /// Returns whether the path names another file than the open one.
    fn is_rotated(&self, open: &FollowedLog) -> bool {
        let named = std::fs::metadata(&self.path);
        named.is_ok_and(|named| (named.dev(), named.ino()) != open.device_and_inode)
    }

    /// Reads the new lines of the open file. Returns whether it was read to its end.
    fn read_lines(
        &self,
        open: &mut FollowedLog,
        budget: &mut u64,
        context: &PullContext<'_>,
    ) -> Result<bool, PullError> {
        let failed = |error: io::Error| PullError::new(format!("{}: {error}", self.path.display()));
        let length = open.file.metadata().map_err(failed)?.len();
        if length < open.position {
            open.position = 0;
            open.is_skipping = false;
        }
        let mut buffer = vec![0; LINE_BYTES_MAX];
        loop {
            if *budget == 0 || context.time_left().is_zero() {
                return Ok(false);
            }
            let count = open
                .file
                .read_at(&mut buffer, open.position)
                .map_err(failed)?;
            *budget = budget.saturating_sub(count.max(1) as u64);
            let read = &buffer[..count];
            let Some(end) = memchr::memrchr(b'\n', read) else {
                if count < LINE_BYTES_MAX {
                    // The last line is not complete yet.
                    return Ok(true);
                }
                if !open.is_skipping {
                    context.count_malformed("a line is longer than 64 KiB");
                }
                open.is_skipping = true;
                open.position += count as u64;
                continue;
            };
            let mut lines = &read[..end];
            if std::mem::take(&mut open.is_skipping) {
                let first = memchr::memchr(b'\n', read).unwrap_or(end);
                lines = lines.get(first + 1..).unwrap_or_default();
            }
            self.store_lines(lines, context)?;
            open.position += end as u64 + 1;
        }
    }

    /// Stores the samples of complete lines.
    fn store_lines(&self, lines: &[u8], context: &PullContext<'_>) -> Result<(), PullError> {
        let lines = lines.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.trim_ascii().is_empty());
        for line in lines {
            match &self.syntax {
                TailSyntax::Format(format, prefix) => match format.parse(line, prefix) {
                    Ok(batch) => context.store(&batch, SampleOptions::default())?,
                    Err(error) => context.count_malformed(&error.to_string()),
                },
                TailSyntax::Pattern(pattern) => {
                    // Lines that do not match are not samples.
                    let text = String::from_utf8_lossy(line);
                    let mut batch = PointBatch::default();
                    pattern.add_samples(&text, &mut batch);
                    context.store(&batch, SampleOptions::default())?;
                }
            }
        }
        Ok(())
    }
}

impl PullReader for TailReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        let failed = |error: io::Error| PullError::new(format!("{}: {error}", self.path.display()));
        // A log that appears while the agent runs is read from its beginning.
        let from_start = self.from_start || !std::mem::take(&mut self.is_first_attempt);
        let mut budget = ATTEMPT_BYTES_MAX;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open_current(from_start).map_err(failed)?,
        };
        let is_rotated = self.is_rotated(&open);
        let is_at_end = self.read_lines(&mut open, &mut budget, context)?;
        if is_rotated && is_at_end {
            open = self.open_current(true).map_err(failed)?;
            self.read_lines(&mut open, &mut budget, context)?;
        }
        self.open = Some(open);
        Ok(())
    }
}
