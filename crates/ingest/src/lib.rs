//! IN: what programs send. Lanes, statsd, HTTP and the socket all pass the same [`gate`]: it knows the
//! senders and their limits, applies the rules, and keeps the books.
//!
//! ```text
//! statsd lines, lanes ──► gate ──► board ──tick──► store        values that add up or replace each other
//! points with a time  ──► gate ──────────push───► store        every one of them is kept
//! ```

pub mod admission;
pub mod current_values;
mod ingest;
pub mod lanes;
pub mod name_owners;
pub mod point_batch;
pub mod point_writer;
pub mod program_sampler;
pub mod reserved_names;
pub mod rules;
pub mod senders;
pub mod statsd;
pub mod user_names;

pub use ingest::{Ingest, IngestStartError};
