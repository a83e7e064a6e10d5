//! A single export: the samples of a range of time as files, partitioned like the archive.
//!
//! A source returns the samples of one window of time as one file within its limits. The windows
//! are the days in UTC, and the halves of those that are too large, and so on. They depend on the
//! samples alone: an export that is repeated finds the files that it stored before. `pegel export`
//! calls it; memory is bounded by one file.

use std::io;
use std::ops::Range;
use std::path::Path;

use pegel_config::{ByteSize, TimeSpan};
use pegel_metric::{Millis, Selector};
use pegel_sample_file::{
    FinishedFile, SampleDigest, SampleFileError, SampleFileFormat, SampleWriter,
};
use pegel_storage::{CreateOutcome, FilePlace, StorageProblem};
use pegel_store::{QueryError, RangeQuery, Store, StoreOptions};

use crate::layout::{Day, export_file};

/// The most bytes of a file of [`StoreExport`], as of a response of an agent.
const STORE_FILE_BYTES_MAX: usize = 32 << 20;
/// The attempts to store one file.
const ATTEMPTS: u32 = 5;

/// The samples of a window.
#[derive(Debug)]
pub enum ExportedWindow {
    File {
        bytes: Vec<u8>,
        samples: u64,
        digest: SampleDigest,
    },
    Empty,
    /// The window exceeds the limits of the source.
    TooLarge,
}

impl From<FinishedFile> for ExportedWindow {
    fn from(file: FinishedFile) -> ExportedWindow {
        match file.samples {
            0 => ExportedWindow::Empty,
            samples => ExportedWindow::File {
                bytes: file.bytes,
                samples,
                digest: file.digest,
            },
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveExportError {
    #[error("{}", .0.text)]
    Storage(StorageProblem),
    #[error("cannot read the samples")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the samples of one millisecond exceed the limits of a query; select fewer series")]
    TooDense,
}

impl From<QueryError> for ArchiveExportError {
    fn from(error: QueryError) -> ArchiveExportError {
        ArchiveExportError::Read(error.into())
    }
}

impl From<SampleFileError> for ArchiveExportError {
    fn from(error: SampleFileError) -> ArchiveExportError {
        ArchiveExportError::Read(error.into())
    }
}

impl From<io::Error> for ArchiveExportError {
    fn from(error: io::Error) -> ArchiveExportError {
        ArchiveExportError::Read(error.into())
    }
}

/// Returns the samples of one node.
pub trait ExportSource {
    fn export(&mut self, window: Range<Millis>) -> Result<ExportedWindow, ArchiveExportError>;
}

/// The number of files and samples that an export stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportTotals {
    pub files: u64,
    pub existing_files: u64,
    pub samples: u64,
    pub bytes: u64,
}

/// One export.
#[derive(Debug)]
pub struct ExportRun {
    pub place: FilePlace,
    pub format: SampleFileFormat,
    pub totals: ExportTotals,
}

impl ExportRun {
    pub fn new(place: FilePlace, format: SampleFileFormat) -> ExportRun {
        ExportRun {
            place,
            format,
            totals: ExportTotals::default(),
        }
    }

    /// Exports the samples of a node. `progress` is called after each window with its end.
    pub fn export_node(
        &mut self,
        node: &str,
        range: Range<Millis>,
        source: &mut dyn ExportSource,
        progress: &mut dyn FnMut(&ExportTotals, Millis),
    ) -> Result<(), ArchiveExportError> {
        let mut day = Day::of(range.start);
        while day.window().start < range.end {
            // What is left of the day, the earliest part last.
            let mut parts = vec![day.window()];
            while let Some(part) = parts.pop() {
                let window = part.start.max(range.start)..part.end.min(range.end);
                if window.is_empty() {
                    continue;
                }
                let end = window.end;
                match source.export(window)? {
                    ExportedWindow::TooLarge if part.end - part.start <= 1 => {
                        return Err(ArchiveExportError::TooDense);
                    }
                    ExportedWindow::TooLarge => {
                        let middle = part.start + (part.end - part.start) / 2;
                        parts.push(middle..part.end);
                        parts.push(part.start..middle);
                        continue;
                    }
                    ExportedWindow::Empty => {}
                    ExportedWindow::File {
                        bytes,
                        samples,
                        digest,
                    } => {
                        let name = export_file(day, node, part.start, digest, self.format);
                        self.store(&name, &bytes)?;
                        self.totals.samples += samples;
                        self.totals.bytes += bytes.len() as u64;
                    }
                }
                progress(&self.totals, end);
            }
            day = day.next();
        }
        Ok(())
    }

    fn store(&mut self, name: &str, bytes: &[u8]) -> Result<(), ArchiveExportError> {
        let mut attempt = 1;
        loop {
            match self.place.create(name, bytes) {
                Ok(CreateOutcome::Created) => self.totals.files += 1,
                Ok(CreateOutcome::Exists) => self.totals.existing_files += 1,
                Err(problem) if problem.kind.is_transient() && attempt < ATTEMPTS => {
                    let pause = std::time::Duration::from_millis(250 << attempt);
                    std::thread::sleep(problem.retry_after.unwrap_or(pause).min(pause * 8));
                    attempt += 1;
                    continue;
                }
                Err(problem) => return Err(ArchiveExportError::Storage(problem)),
            }
            return Ok(());
        }
    }
}

/// Reads an open store.
#[derive(Debug)]
pub struct StoreExport {
    pub store: Store,
    pub node: String,
    pub selector: Selector,
    pub format: SampleFileFormat,
}

/// Retention that drops nothing: an export reads every sample of the store.
const KEEP_SECONDS: u64 = 36_500 * 86_400;
const KEEP_BYTES: u64 = 1 << 40;

impl StoreExport {
    /// Opens the store in `dir`, a copy that this process may change.
    pub fn open(
        dir: &Path,
        node: &str,
        selector: Selector,
        format: SampleFileFormat,
    ) -> Result<StoreExport, ArchiveExportError> {
        let mut options = StoreOptions::new(dir);
        options.keep.disk = TimeSpan::seconds(KEEP_SECONDS);
        options.keep.bytes = Some(ByteSize::bytes(KEEP_BYTES));
        let store = Store::open(options).map_err(|error| ArchiveExportError::Read(error.into()))?;
        Ok(StoreExport {
            store,
            node: node.to_owned(),
            selector: selector.including_remote(),
            format,
        })
    }

    /// Returns the times of the samples in the store.
    pub fn range(&self) -> Option<Range<Millis>> {
        let status = self.store.status();
        Some(status.oldest?..status.newest?.saturating_add(1))
    }
}

impl ExportSource for StoreExport {
    fn export(&mut self, window: Range<Millis>) -> Result<ExportedWindow, ArchiveExportError> {
        let end = window.end - 1;
        let query = RangeQuery::new(self.selector.clone(), window.start, end, None);
        let mut writer = SampleWriter::with_limit(self.format, &self.node, STORE_FILE_BYTES_MAX)?;
        let mut added = Ok(());
        let read = self.store.query_range(&query, &mut |series, points| {
            if added.is_ok() {
                added = writer.add(series, points);
            }
        });
        match read {
            Err(QueryError::TooLarge(_) | QueryError::TooLong) => {
                return Ok(ExportedWindow::TooLarge);
            }
            read => read?,
        }
        match added {
            Err(SampleFileError::TooLarge(_)) => return Ok(ExportedWindow::TooLarge),
            added => added?,
        }
        Ok(writer.finish()?.into())
    }
}

#[cfg(test)]
mod tests;
