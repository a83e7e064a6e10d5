//! Sends samples to other systems with Prometheus' remote write, versions 1.0 and 2.0.
//!
//! ```text
//! store's log ──► SampleStream ──► Round ──► one request after the other per shard ──► receiver
//! (segments stay   values of idle   samples    encode, compress, send, repeat
//!  until sent)     groups, stale    by series                │
//!                  markers                                   ▼
//!                                           position file: what the receiver confirmed
//! ```
//!
//! Every target has its own thread, which reads the log from its position on, so that late samples
//! are sent too. Samples are sent at least once: again only if they were not confirmed. What is
//! sent depends on the log alone. A round ends before the next one begins, so that samples of a
//! series stay in order with any number of shards. The end of a round is stored before the round is
//! sent, and a round that is repeated after a crash consists of the same requests: a receiver that
//! refuses a whole request because it has one of its samples (as Prometheus does) refuses no new
//! sample.
//!
//! A target that does not accept samples delays neither sampling nor other targets. Segments of the
//! log are kept for it up to a number of bytes (`lag`); beyond that, the oldest samples are dropped
//! and counted.

mod counts;
mod output;
mod position;
mod request;
mod retry;
mod round;
mod sample_stream;
mod sender;
mod series_labels;
mod series_table;
mod settings;
mod symbols;
mod target;

pub use counts::RemoteWriteCounts;
pub use output::{RemoteWriteOptions, RemoteWriteOutput};
pub(crate) use retry::parse_retry_after;
pub use settings::{RemoteWriteSettings, RemoteWriteTarget, RemoteWriteTargets};

#[doc(hidden)] // For fuzz/ and bench/ only.
pub mod fuzzing {
    pub use super::position::parse_position;
    pub use super::retry::parse_retry_after;
}
