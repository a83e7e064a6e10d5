//! The commands of the binary: output, exit codes, files, terminals.

mod commands;
mod completions;
mod config;
mod doctor;
mod query;
mod rules;
mod running_agent;
mod tau;
mod top;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
