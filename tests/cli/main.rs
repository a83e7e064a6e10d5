//! The commands of the binary: output, exit codes, files, terminals.

mod commands;
mod config;
mod doctor;
mod tau;
mod top;

const PEGEL: &str = env!("CARGO_BIN_EXE_pegel");
