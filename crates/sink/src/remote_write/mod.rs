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
//! Every target has a thread of its own that reads the log from its position on, so that late
//! samples are sent too, and nothing is sent twice but what was not confirmed. What is sent is a
//! function of the log alone. A round ends before the next one begins: samples of a series stay in
//! order however many shards there are. The end of a round is stored before it is sent, and a round
//! that is repeated after a crash consists of the same requests: a receiver that refuses a request
//! with a sample that it has (Prometheus does) refuses no other sample with it.
//!
//! A target that does not accept samples delays nothing but itself. Segments of the log wait for it
//! up to a number of bytes; beyond that, the oldest samples are dropped and counted.

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
pub use settings::{RemoteWriteSettings, RemoteWriteTarget, RemoteWriteTargets};

#[doc(hidden)] // For fuzz/ and bench/ only.
pub mod fuzzing {
    pub use super::position::parse_position;
    pub use super::retry::parse_retry_after;
}
