//! The commands of the binary: output, exit codes, files, terminals.

mod bundle;
mod commands;
mod completions;
mod config;
mod doctor;
mod fake_pegel;
mod hook;
mod query;
mod record;
mod rules;
mod running_agent;
mod tau;
mod top;
mod tree;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
