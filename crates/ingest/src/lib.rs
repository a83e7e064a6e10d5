//! Input from programs. Lanes, statsd, HTTP and the socket all pass the same [`admission`]: it
//! knows the senders and their limits, applies the rules, and counts every sample in the ledger.
//! Nothing reaches the store without it.
//!
//! ```text
//! statsd lines, lanes ──► admission ──► current values ──tick──► store     values that add up or replace each other
//! pull inputs         ──► admission ─────────────────────push──► store     samples that the agent reads by itself
//! points with a time  ──► admission ─────────────────────push──► store     each point is kept
//! remote write        ──► admission ─────────────────────push──► store     each sample is kept
//! OTLP                ──► admission ──► totals ──────────push──► store     increases are added up
//! ```

pub mod admission;
mod compensated_sum;
pub mod current_values;
pub mod handlers;
mod ingest;
mod keyed_hasher;
pub mod lanes;
pub mod marks;
pub mod name_owners;
pub mod otlp;
pub mod point_batch;
pub mod point_writer;
pub mod program_sampler;
pub mod pull;
pub mod push_groups;
pub mod remote_write;
pub mod reserved_names;
pub mod restored_charges;
pub mod rules;
pub mod senders;
mod slab;
pub mod statsd;

pub use ingest::{Ingest, IngestStartError};
