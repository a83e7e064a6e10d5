//! Fuzzing of every parser and every reader of files.
//!
//! A target is a function over bytes that panics when a promise is broken: not only that nothing
//! panics, but that what was read is written and read again with the same meaning, that encoders and
//! decoders fit each other, and that memory stays bounded.
//!
//! ```text
//! corpus/TARGET/…   inputs that are worth keeping; `fuzz --seeds` writes the ones named seed-*
//! bin/fuzz.rs       replays them, then changes them at random: what CI runs, with any toolchain
//! bin/libfuzzer.rs  the same targets under libFuzzer, which looks for new paths through the code
//! ```

mod driver;
mod exec;
mod memory;
mod mutate;
mod seeds;
mod source;
mod targets;

pub use driver::{Options, fuzz};
pub use exec::{Broken, execute};
pub use memory::Counting;
pub use seeds::write_seeds;
pub use targets::{TARGETS, Target, find};
