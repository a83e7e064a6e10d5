//! The node-local store: minutes in memory, days on disk, bounded by age and by bytes.
//!
//! ```text
//! tick, push ──► writer ──► log (write) ──► head ──► readers
//!                              │              │ every keep.memory
//!                              │              ▼
//!                        syncer: fdatasync   maintenance ──► fresh block ──► sealed block, one per UTC hour
//! ```
//!
//! Files, below one directory that belongs to one process (`lock`):
//!
//! | file | contents | described in |
//! |---|---|---|
//! | `format` | the version of all files below, as text | `open.rs` |
//! | `log/N.log` | every sample since the last block | `log/mod.rs` |
//! | `outgoing/N.log` | segments that readers of the log have not released | `log/kept_segments.rs` |
//! | `blocks/N.blk` | runs of samples with an index | `block/mod.rs`, `codec/mod.rs` |
//! | `hidden` | hidden ranges, as text | `hidden_ranges.rs` |
//! | `filters` | filters of readers, as text | `read_filters.rs` |
//! | `complete-since` | times from which on nothing was dropped, as text | `complete_since.rs` |
//! | `aside/…` | files that could not be read; never deleted | |
//!
//! A file of another version makes opening fail, and nothing is changed. Times are milliseconds
//! (i64), values f64, bit for bit. Of two samples of one series and time, the last one written
//! wins. Late samples that arrive before their hour is sealed (one hour after its end) are merged
//! into it; later ones go to late blocks. Each class of inputs (`input_class.rs`) has its own
//! blocks and a share of the bytes.

mod archive_progress;
mod block;
mod block_merge;
mod codec;
mod complete_since;
mod context;
mod drop_tracker;
mod error;
mod files;
mod finished_blocks;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod head;
mod hidden_ranges;
mod input_class;
mod last_rows;
mod lock;
mod log;
mod lz4_block;
mod maintenance;
mod open;
mod options;
mod range_query;
mod read_filters;
mod restore;
mod sample_run;
mod scan;
mod series_codec;
mod settings;
mod status;
mod store;
mod store_stats;
mod syncer;
mod text_file;
mod writer;

pub use archive_progress::{ArchiveProgress, BlockIdentity};
pub use block::BlockLimits;
pub use complete_since::CompleteSince;
pub use error::{PushError, PushResult, StoreOpenError};
pub use files::{DiskFiles, FileHandle, Files, write_all_at};
pub use finished_blocks::{FinishedBlock, FinishedVisitor, SkippedSamples};
pub use last_rows::LastRow;
pub use log::{LogPosition, LogReader, LogStep, LogVisitor};
pub use options::StoreOptions;
pub use range_query::{
    ColumnVisitor, LatestValue, QueryCancellation, QueryError, QueryStep, RangeQuery, SampleColumn,
    SeriesChoice, SeriesVisitor, StepAggregation, TickCompletion, TimeLimit,
};
pub use read_filters::{READ_FILTERS_MAX, ReadFilter, ReadFilterError, ShownValues, ValueRange};
pub use scan::{aggregate_samples, bucket_of};
pub use settings::{RetentionSettings, StoreLimits};
pub use status::{ClassUsage, Degradation, StoreStatus};
pub use store::Store;

/// The version of every file that the store writes.
pub(crate) const FORMAT_VERSION: u32 = 1;
