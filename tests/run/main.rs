//! `pegel run`: programs run as if they were not wrapped, and their calls are counted exactly.

mod attach;
mod counted_by_agent;
mod counts;
mod inherited_attributes;
mod kills;
mod languages;
mod mpi;
mod privileges;
mod run_mode;
mod running_calls;
mod same_behaviour;
mod streams;
mod summary;
mod terminal;
mod visible_counts;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
