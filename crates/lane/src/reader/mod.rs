//! The agent's half: finds lanes, opens them with care and reads copies of them.
//!
//! A lane may be written by anybody at any time, so that nothing in it is believed: every offset is
//! checked against the copy at hand, every count has a bound, and what was learned once (the identity,
//! where the series stand) is not read again. Reading never writes, and never waits for the program.

mod decoded_series;
mod directory;
mod error;
mod header;
mod lane_file;
mod parsed_lane;
mod points;
mod process_state;
mod value;

pub use decoded_series::DecodedSeriesSpec;
pub use directory::{LaneDirectoryHandle, LaneDirectoryScan, LaneListing, ListedLane};
pub use error::LaneError;
pub use header::LaneHeader;
pub use lane_file::{LaneFile, LaneLimits, LaneOpenError};
pub use parsed_lane::{LaneView, ParsedLane};
pub use points::{PointsRead, RingPoint};
pub use process_state::ProcessState;
pub use value::{LaneDistribution, LaneValue};
