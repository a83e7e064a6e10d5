//! The node-local store: minutes in memory, days on disk, bounded by age and by bytes.

mod config;
mod codec;
mod files;
mod options;
mod question;
mod status;

use std::path::PathBuf;
use std::sync::Arc;

use pegel_metric::{Input, Ledger, Millis, Point, Reason, Selector, Series, Tick};

pub use config::{Keep, Limits};
pub use files::{DiskFiles, FileHandle, Files};
pub use options::Options;
pub use question::{Fold, Latest, Question, QueryError, Step};
pub use status::{Degraded, Status};

/// A handle to an open store; clones share it.
#[derive(Debug, Clone)]
pub struct Store {}

/// Why a store could not be opened. It is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another agent (pid {pid}) uses the store {dir}")]
    Locked { dir: PathBuf, pid: u32 },
    #[error("{path} has format {found}; this version reads format {supported}. Use another --dir, or the version that wrote it")]
    Version { path: PathBuf, found: u32, supported: u32 },
    #[error("cannot use the store {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// What became of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pushed {
    pub kept: u64,
    /// Which points were refused, by their position, and why.
    pub refused: Vec<(usize, Reason)>,
}

/// Why a push as a whole was not taken. Nothing of it is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    #[error("the log cannot be written: {0}")]
    Degraded(String),
    #[error("the store does not keep up")]
    QueueFull,
    #[error("the agent is stopping")]
    Closed,
}

impl Store {
    pub fn open(options: Options) -> Result<Store, OpenError> {
        let _ = options;
        unimplemented!()
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        unimplemented!()
    }

    /// Hands over a tick and gets an empty one back. Never waits: when the queue is full the tick is
    /// dropped and counted.
    pub fn tick(&self, tick: &mut Tick) {
        let _ = tick;
        unimplemented!()
    }

    /// Returns when the points are in the log and can be read.
    pub fn push(&self, input: Input, points: Vec<Point>) -> Result<Pushed, PushError> {
        let _ = (input, points);
        unimplemented!()
    }

    /// Visits the live series that match and took their current value after change number `after`
    /// (0: all), in no particular order. Returns the number of the latest change.
    pub fn latest(&self, selector: &Selector, after: u64, visit: &mut dyn FnMut(&Arc<Series>, Latest)) -> u64 {
        let _ = (selector, after, visit);
        unimplemented!()
    }

    /// Answers a question series by series, sorted by text; points are sorted by time.
    pub fn range(&self, question: &Question, visit: &mut dyn FnMut(&Arc<Series>, &[(Millis, f64)])) -> Result<(), QueryError> {
        let _ = (question, visit);
        unimplemented!()
    }

    pub fn status(&self) -> Status {
        unimplemented!()
    }

    /// Writes out what is queued, syncs, and stops the store's threads. Later ticks are dropped and counted.
    pub fn close(&self) {
        unimplemented!()
    }
}
