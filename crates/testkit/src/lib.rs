//! What tests need: the built agent as a process, an HTTP client, a clock and a file system that do as
//! they are told, seeded random numbers, and golden files. Functions panic where a test would fail anyway.

mod agent_process;
mod conservation;
mod fake_clock;
mod faulty_files;
mod forked;
mod golden;
mod hooked_files;
mod http;
mod island;
mod lanes;
mod need;
mod neighbour;
mod planted;
mod poll;
mod process;
mod readings;
mod rng;
mod samples;
mod sim_files;
mod small_disk;
mod stranger;
mod temp_dir;

pub use agent_process::{AgentBuilder, AgentProcess, Endpoint};
pub use conservation::check_conserved;
pub use fake_clock::FakeClock;
pub use faulty_files::{Fault, Faults, FaultyFiles};
pub use forked::Forked;
pub use golden::assert_golden;
pub use hooked_files::{Failing, Hook, HookedFiles, Operation};
pub use http::{Address, Answer, get, get_with, post, send_raw};
pub use island::Island;
pub use lanes::{lanes, lanes_so_far};
pub use need::{need, need_hardware, need_peer};
pub use neighbour::Neighbour;
pub use pegel_wire::MetricType;
pub use planted::{PLANTED_TOKEN, assert_not_shown};
pub use poll::{eventually, eventually_within};
pub use process::{Finished, Process};
pub use readings::Readings;
pub use rng::Rng;
pub use samples::Samples;
pub use sim_files::{Done, SimFiles};
pub use small_disk::SmallDisk;
pub use stranger::{Stranger, curl};
pub use temp_dir::TempDir;
