//! The agent as a process: its life, its limits, its secrets, and faults that it survives.

mod faults;
mod kernel_files;
mod kills;
mod lifecycle;
mod limits;
mod login;
mod logs;
mod other_users;
mod secrets;
mod squatted_paths;
mod systemd;
mod tls;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
