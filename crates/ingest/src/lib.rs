//! Input from programs. Lanes, statsd, HTTP and the socket all pass the same [`admission`]: it
//! knows the senders and their limits, applies the rules, and counts every sample in the ledger.
//! Nothing reaches the store without it.
//!
//! ```text
//! statsd lines, lanes ──► admission ──► current values ──tick──► store     values that add up or replace each other
//! points with a time  ──► admission ─────────────────────push──► store     each point is kept
//! ```

pub mod admission;
pub mod current_values;
pub mod handlers;
mod ingest;
pub mod lanes;
pub mod name_owners;
pub mod point_batch;
pub mod point_writer;
pub mod program_sampler;
pub mod reserved_names;
pub mod restored_charges;
pub mod rules;
pub mod senders;
mod slab;
pub mod statsd;

pub use ingest::{Ingest, IngestStartError};
