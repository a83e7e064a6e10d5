//! The messages, as structs.
//!
//! The code is generated from `crates/tree-protocol/proto` and checked in. The test `generated`
//! generates it again and compares; `PEGEL_BLESS=1` writes it.

pub use v1::*;

#[rustfmt::skip]
#[allow(clippy::all, missing_docs, unreachable_pub, unused_qualifications)]
#[path = "../generated/pegel.tree.v1.rs"]
mod v1;
