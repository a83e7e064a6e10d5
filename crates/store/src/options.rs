use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, SystemClock};
use pegel_supervisor::Supervisor;

use crate::files::{DiskFiles, Files};

/// What a store is opened with. The limits are hard: the store stays within them, whatever is offered.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub dir: PathBuf,
    /// How long samples stay in memory before they go to a block.
    pub keep_memory: Duration,
    /// How long samples are kept at all.
    pub keep_disk: Duration,
    /// How large log and blocks may grow together.
    pub keep_bytes: u64,
    /// How much memory samples and series may take.
    pub memory_bytes_max: u64,
    /// How many series may be live at one time.
    pub series_max: usize,
    /// The longest time for a write or sync of the log. A longer one degrades the store.
    pub disk_timeout: Duration,
    /// The most block files that one query may hold open.
    pub block_files_max: usize,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<dyn Files>,
    /// Watches the store's threads.
    pub supervisor: Supervisor,
}

impl StoreOptions {
    /// The defaults of the configuration, in `dir`.
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
