//! Errors and results of opening a store and of pushing points.

use std::path::PathBuf;

use pegel_metric::DropReason;

/// The error returned when a store cannot be opened. The directory is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error(
        "another agent (pid {pid}) uses the store {dir}; stop it, or start a second agent with its own --dir and --socket"
    )]
    Locked { dir: PathBuf, pid: u32 },
    #[error(
        "{path} has format {found}; this version reads format {supported}; use another --dir, or the version that wrote it"
    )]
    Version {
        path: PathBuf,
        found: u32,
        supported: u32,
    },
    #[error("cannot use the store {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The result of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushResult {
    pub kept: u64,
    /// The rejected points, by position, with the reason.
    pub refused: Vec<(usize, DropReason)>,
}

/// The error returned when a push is rejected as a whole. None of its points are kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    #[error("the log cannot be written: {0}")]
    Degraded(String),
    #[error("the store's queue is full; retry later")]
    QueueFull,
    #[error("the agent is stopping")]
    Closed,
}

impl PushError {
    /// Returns the reason under which every point of the push is counted as dropped.
    pub fn reason(&self) -> DropReason {
        match self {
            PushError::Degraded(_) => DropReason::Degraded,
            PushError::QueueFull => DropReason::QueueFull,
            PushError::Closed => DropReason::Closed,
        }
    }
}
