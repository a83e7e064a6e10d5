//! The agent's half: finds lanes, opens them safely and reads copies of them.
//!
//! Any process of a user may write to a lane at any time, so its contents are untrusted: every
//! offset is checked against the copy at hand, every count is bounded, and what was parsed once
//! (the identity, the offsets of series) is not read again. Reading never writes, and never waits
//! for the program.

mod decoded_series;
mod directory;
mod error;
mod header;
mod lane_file;
mod mpi_state;
mod parsed_lane;
mod points;
mod process_state;
mod value;

pub use decoded_series::DecodedSeriesSpec;
pub use directory::{
    LaneDirectoryHandle, LaneDirectoryScan, LaneListing, ListedLane, lane_file_name,
};
pub use error::LaneError;
pub use header::LaneHeader;
pub use lane_file::{LaneFile, LaneLimits, LaneOpenError};
pub use mpi_state::{MpiClock, MpiComm, MpiOperation, MpiState, MpiStateReader, MpiThread};
pub use parsed_lane::{LaneView, ParsedLane};
pub use points::{PointsRead, RingPoint};
pub use process_state::ProcessState;
pub use value::{LaneDistribution, LaneValue};
