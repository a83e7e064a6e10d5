//! Fuzzes every parser and every file reader.
//!
//! A target is a function over bytes that panics if a property is violated. Properties are not only
//! the absence of panics, but also round trips through parser and writer, agreement of encoders and
//! decoders, and bounded memory.
//!
//! ```text
//! corpus/TARGET/…   interesting inputs; `fuzz --seeds` writes the ones named seed-*
//! bin/fuzz.rs       replays them, then mutates them at random; runs in CI, with any toolchain
//! bin/libfuzzer.rs  the same targets under libFuzzer, guided by code coverage
//! ```

mod driver;
mod exec;
mod fixed_clock;
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
