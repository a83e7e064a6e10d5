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

mod batch;
mod door;
mod figures;
mod net;
mod running;
mod settings;
mod source;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod timed;

pub use door::{Door, Peer, Protocol};
pub use net::{BindError, Bound};
pub use running::{Listening, Plan, Statsd, StatsdStatus};
pub use settings::{Idle, Percent, Place, StatsdKeys, Threads};
pub use table::Origin;
