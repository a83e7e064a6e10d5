//! Tests of the store that start processes.
//!
//! They are separate from the others: between fork and exec a child holds the locks of every store
//! that is open in its parent, and a test that closes and opens a store at that moment would find
//! it locked.

mod kill;
mod memory;
