//! The agent's half: finds lanes, opens them with care and reads copies of them.
//!
//! A lane may be written by anybody at any time, so that nothing in it is believed: every offset is
//! checked against the copy at hand, every count has a bound, and what was learned once (the identity,
//! where the series stand) is not read again. Reading never writes, and never waits for the program.

mod directory;
mod error;
mod header;
mod lane;
mod lane_file;
mod points;
mod process;
mod series;
mod value;

pub use directory::{Directory, Found, Listing, Scan};
pub use error::LaneError;
pub use header::Header;
pub use lane::{Lane, View};
pub use lane_file::{LaneFile, Limits, OpenError};
pub use points::{Point, PointsRead};
pub use process::ProcessState;
pub use series::Series;
pub use value::{Distribution, Value};
