//! IN: what programs send. Lanes, statsd, HTTP and the socket all pass the same [`gate`]: it knows the
//! senders and their limits, applies the rules, and keeps the books.
//!
//! ```text
//! statsd lines, lanes ──► gate ──► board ──tick──► store        values that add up or replace each other
//! points with a time  ──► gate ──────────push───► store        every one of them is kept
//! ```

pub mod batch;
pub mod board;
pub mod gate;
mod intake;
pub mod lanes;
pub mod owners;
pub mod points;
pub mod pulse;
pub mod reserved;
pub mod rules;
pub mod senders;
pub mod statsd;
pub mod users;

pub use intake::{Intake, StartError};
