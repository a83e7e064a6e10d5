//! statsd: lines in datagrams and streams, summed up by name, tags and type.
//!
//! ```text
//! UDP, UNIX datagrams ──recvmmsg──┐   net/receivers.rs, net/datagrams.rs
//!                                 ├─► lines ──► table ──pass──► board ──tick──► store
//! TCP, UNIX streams ──────────────┘   (wire)    (lock for microseconds)
//! ```
//!
//! Reading never stops: the pulse takes what changed out of the table in small pieces, and threads that
//! read are only ever kept waiting for one of them.

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

pub use listener::{StatsdInput, StatsdListenOptions, StatsdListener, StatsdStatus};
pub use net::{BoundAddresses, StatsdBindError};
pub use peer_policy::{LoopbackPeer, StatsdPeerPolicy, TransportProtocol};
pub use settings::{IdlePolicy, Percentile, ReceiverThreads, StatsdSettings, StatsdSocketPath};
pub use table::LineOrigin;
