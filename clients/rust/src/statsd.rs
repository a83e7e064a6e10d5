//! Sends the values of this process to another statsd server as well, from a thread of the library:
//! changed values only, in datagrams of at most 1440 bytes. `PEGEL_STATSD=HOST:PORT` in the
//! environment does the same without a call; `docs/statsd-output.md` describes the lines and the
//! other variables.

use pegel_client_datagrams::statsd_output::{self, StatsdConfig};

pub use pegel_client_datagrams::statsd_output::{
    StatsdConfigError, StatsdCounts, counts, flush, switch,
};

/// Starts to send, or changes the server: `HOST:PORT`, or `unix:PATH`.
pub fn start(address: &str) -> Result<(), StatsdConfigError> {
    StatsdConfig::new(address).and_then(statsd_output::start)
}
