//! The archive: samples as Parquet files, partitioned by day and node, in a directory or an object
//! store (docs/archive.md).
//!
//! ```text
//! Store ─ finished blocks ─► Archiver ─► BlockFiles ─► FilePlace    continuously (`archive:`)
//! agent or store ─ windows of time ─► ExportRun ──────► FilePlace    once (`pegel export`)
//! ```
//!
//! Guarantees of the continuous archive:
//! - Every sample of a finished block is stored once, also if the agent is killed at any time: a
//!   file is named by its block and by a digest of its samples and is created only if there is
//!   none, and a block is marked as archived when all of its files are stored.
//! - A reader never sees a part of a file.
//! - Retention drops no block that is not archived, unless `keep.bytes` is exhausted; the samples
//!   that are lost then are counted.
//! - Memory is bounded by one file; storage that is slow or unreachable never delays sampling.

mod archiver;
mod block_files;
mod credentials_file;
mod export;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod layout;
mod settings;
mod state;

pub use archiver::{ArchiveCounts, Archiver, ArchiverOptions};
pub use credentials_file::check_credentials_file;
pub use export::{
    ArchiveExportError, ExportRun, ExportSource, ExportTotals, ExportedWindow, StoreExport,
};
pub use pegel_storage::RecordPlace;
pub use settings::{ArchivePlace, ArchiveSettings};
pub use state::{STATE_FILE, load_progress};
