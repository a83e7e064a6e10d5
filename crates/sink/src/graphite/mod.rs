//! Sends current values to Graphite servers.
//!
//! ```text
//! store ──current values──► Flush ──batch──► connection ──► carbon
//!                           paths,            │ fails
//!                           rates             ▼
//!                                           spool: files on disk, oldest first
//! ```
//!
//! Every server has a thread of its own. A batch that cannot be sent waits in the spool, whose size
//! is bounded; when it is full, the oldest batches are dropped and their values counted.

mod connection;
mod flush;
mod output;
mod path;
mod pickle;
mod settings;
mod spool;

pub use flush::Flush;
pub use output::{GraphiteCounts, GraphiteOutput, GraphiteOutputOptions};
pub use settings::{GraphiteServer, GraphiteSettings};
