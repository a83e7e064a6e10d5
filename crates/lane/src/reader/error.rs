use std::fmt;

use crate::layout;

/// What is wrong with a lane. Only its own series are lost by it.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaneError {
    /// Fewer bytes than the lane says.
    Truncated {
        wanted: usize,
        found: usize,
    },
    /// It does not begin as a lane does.
    Magic,
    Version(u32),
    /// A number in the header that cannot be.
    Header(&'static str),
    /// The published length does not fit, or has become smaller.
    Published(u64),
    /// The description of a series that cannot be, and where it stands.
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
                write!(f, "the lane has {found} bytes where it says {wanted}")
            }
            LaneError::Magic => write!(f, "not a lane"),
            LaneError::Version(version) => write!(
                f,
                "version {version} of the lane's format; this agent reads version {}",
                layout::VERSION
            ),
            LaneError::Header(what) => write!(f, "the lane's header has an impossible {what}"),
            LaneError::Published(length) => {
                write!(f, "the lane says that {length} bytes are published")
            }
            LaneError::InvalidSeries { at, what } => {
                write!(
                    f,
                    "the series at byte {at} of the lane has an impossible {what}"
                )
            }
            LaneError::TooManySeries { limit } => write!(f, "more than {limit} series in one lane"),
            LaneError::Read(_) => write!(f, "the lane cannot be read"),
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
