//! statsd: lines in datagrams and streams, summed by name, tags and type.
//!
//! ```text
//! UDP, UNIX datagrams ──recvmmsg──┐   net/udp_receivers.rs, net/datagrams.rs
//!                                 ├─► lines ──► table ──pass──► current values ──tick──► store
//! TCP, UNIX streams ──────────────┘   (wire)    (lock for microseconds)
//! ```
//!
//! Receiving never stops: the program sampler takes changes out of the table in small pieces, and a
//! receiving thread waits for at most one of them. Every value is either summed or dropped with a
//! reason, and counted in the ledger.

mod line_batch;
mod line_counts;
mod listener;
mod net;
mod peer_policy;
mod settings;
mod source;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod timed_gauges;

pub use line_counts::LineRefusal;
pub use listener::{StatsdInput, StatsdListenOptions, StatsdListener, StatsdStatus};
pub use net::{BoundAddresses, StatsdBindError};
pub use peer_policy::{LoopbackPeer, StatsdPeerPolicy, TransportProtocol};
pub use settings::{IdlePolicy, Percentile, ReceiverThreads, StatsdSettings, StatsdSocketPath};
pub use table::LineOrigin;
pub(crate) use timed_gauges::add_timed_gauge;
