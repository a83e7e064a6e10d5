//! [`StoreOptions`], the parameters with which a store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, SystemClock};
use pegel_supervisor::Supervisor;

use crate::archive_progress::ArchiveProgress;
use crate::block::BlockLimits;
use crate::files::{DiskFiles, Files};
use crate::settings::{RetentionSettings, StoreLimits};

/// The parameters of a store. The limits are hard: the store stays within them, whatever its inputs
/// send.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub dir: PathBuf,
    /// How long samples are kept; `keep.bytes` is the maximum size of log and blocks together.
    pub keep: RetentionSettings,
    pub limits: StoreLimits,
    /// The timeout for a write or sync of the log. Exceeding it degrades the store.
    pub disk_timeout: Duration,
    /// The maximum number of block files that one query holds open.
    pub block_files_max: usize,
    /// Keep segments of the log until readers release them (`Store::release_log`).
    pub keep_log: bool,
    /// The sizes at which blocks and runs are split.
    pub block_limits: BlockLimits,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    /// Blocks that are not archived yet outlive their age, within `keep.bytes`. `None` without an
    /// archive.
    pub archive: Option<Arc<ArchiveProgress>>,
    /// Supervises the store's threads.
    pub supervisor: Supervisor,
}

impl StoreOptions {
    /// Returns the defaults of the configuration for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            dir: dir.into(),
            keep: RetentionSettings::default(),
            limits: StoreLimits::default(),
            disk_timeout: Duration::from_secs(3),
            block_files_max: 64,
            keep_log: false,
            block_limits: BlockLimits::default(),
            clock: Arc::new(SystemClock),
            files: Arc::new(DiskFiles),
            archive: None,
            supervisor: Supervisor::default(),
        }
    }
}
