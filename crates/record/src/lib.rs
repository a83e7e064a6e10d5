//! The record of a task: a sequence of blocks, each with a sequence number, a time range and
//! checksums. docs/record-format.md documents the format.
//!
//! [`RecordWriter`] makes blocks and stores none of them; [`RecordReader`] reads a record from
//! memory and reports every damaged or missing block. Neither performs I/O.
//!
//! Guarantees:
//! - Every prefix of a record is readable up to its last whole block.
//! - Damage costs the damaged blocks and, for samples, those up to the next key block, at most
//!   [`KEY_INTERVAL`] later. Everything else is read.
//! - Values are read back bit for bit.
//! - Any bytes can be read: time is linear in their number, and memory is limited.

mod block;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod number_coder;
mod range_coder;
mod reader;
mod sample_coder;
mod split_samples;
mod text;
mod value_coder;
mod writer;

pub use block::{BlockDamage, RecordBlockHeader, RecordBlockKind};
pub use reader::{BlockContent, RecordEvent, RecordReader};
pub use sample_coder::{MalformedBlock, RecordSamples};
pub use writer::{RecordBlock, RecordWriter};

use pegel_metric::Millis;

/// The time between two key blocks.
pub const KEY_INTERVAL: Millis = 300_000;
