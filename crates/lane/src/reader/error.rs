//! Errors in the contents of a lane.

use std::fmt;

use crate::layout;

/// The error in a lane. It affects only the lane's own series.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaneError {
    /// Fewer bytes than the header claims.
    Truncated {
        wanted: usize,
        found: usize,
    },
    /// The magic bytes are missing.
    Magic,
    Version(u32),
    /// An invalid value in the header.
    Header(&'static str),
    /// The published length is invalid, or has decreased.
    Published(u64),
    /// An invalid description of a series, and its offset.
    InvalidSeries {
        at: usize,
        what: &'static str,
    },
    /// More series than the reader's limit.
    TooManySeries {
        limit: usize,
    },
    Read(std::io::Error),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneError::Truncated { wanted, found } => {
                write!(f, "the lane is truncated: it has {found} of {wanted} bytes")
            }
            LaneError::Magic => write!(f, "not a lane"),
            LaneError::Version(version) => write!(
                f,
                "version {version} of the lane's format is not supported; this agent reads version {}",
                layout::VERSION
            ),
            LaneError::Header(what) => write!(f, "the lane's header has an invalid {what}"),
            LaneError::Published(length) => {
                write!(
                    f,
                    "the lane's header claims that {length} bytes are published"
                )
            }
            LaneError::InvalidSeries { at, what } => {
                write!(
                    f,
                    "the series at byte {at} of the lane has an invalid {what}"
                )
            }
            LaneError::TooManySeries { limit } => write!(f, "more than {limit} series in one lane"),
            LaneError::Read(_) => write!(f, "cannot read the lane"),
        }
    }
}

impl std::error::Error for LaneError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaneError::Read(error) => Some(error),
            _ => None,
        }
    }
}
