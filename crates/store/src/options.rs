//! [`StoreOptions`], the parameters with which a store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, SystemClock};
use pegel_supervisor::Supervisor;

use crate::files::{DiskFiles, Files};

/// The parameters of a store. The limits are hard: the store stays within them, whatever its inputs send.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub dir: PathBuf,
    /// The time samples stay in memory before they are written to a block.
    pub keep_memory: Duration,
    /// The total retention time.
    pub keep_disk: Duration,
    /// The maximum size of log and blocks together.
    pub keep_bytes: u64,
    /// The memory limit for samples and series.
    pub memory_bytes_max: u64,
    /// The maximum number of live series.
    pub series_max: usize,
    /// The timeout for a write or sync of the log. Exceeding it degrades the store.
    pub disk_timeout: Duration,
    /// The maximum number of block files that one query holds open.
    pub block_files_max: usize,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    /// Supervises the store's threads.
    pub supervisor: Supervisor,
}

impl StoreOptions {
    /// Returns the defaults of the configuration for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            dir: dir.into(),
            keep_memory: Duration::from_secs(5 * 60),
            keep_disk: Duration::from_secs(2 * 24 * 3600),
            keep_bytes: 1 << 30,
            memory_bytes_max: 256 << 20,
            series_max: 200_000,
            disk_timeout: Duration::from_secs(3),
            block_files_max: 64,
            clock: Arc::new(SystemClock),
            files: Arc::new(DiskFiles),
            supervisor: Supervisor::default(),
        }
    }
}
