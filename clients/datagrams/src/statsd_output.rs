//! Sends the values of this process to a statsd server other than the agent, for sites that have
//! one: `PEGEL_STATSD=HOST:PORT` in the environment, or [`start`].
//!
//! A thread wakes at an interval, copies the lanes of this process and sends what changed since:
//! counters as increments, gauges as values, in datagrams of at most 1440 bytes. Nothing is added
//! to an update. A send that fails is counted, and its values are sent again with the next ones. At
//! the exit of the process the last changes are sent.
//!
//! Each source can be switched off and on while the program runs: by [`switch`], or from outside by
//! the file `PEGEL_STATSD_SOURCES`, which is read again when it changes.

mod changes;
mod config;
mod lines;
mod output;
mod switches;

pub use config::{LabelStyle, StatsdConfig, StatsdConfigError, StatsdServer};
pub use output::{
    StatsdCounts, counts, flush, flush_before_exit, resume_after_fork, start,
    start_from_environment, switch,
};
