//! Code shared by the benchmark scenarios: CPU meters, a simulated node, a store with one hour of
//! its samples, other stores with the same samples, and a report with gates.
//!
//! A scenario repeats its measurement and reports median and spread. It measures CPU time unless
//! stated otherwise. With `PEGEL_BENCH_ONCE=1` it runs one repetition and ignores the gates.

mod binary;
mod cpu_meter;
mod cpu_query;
mod peer_store;
mod recorded_hour;
mod report;
mod simulated_node;
mod timed_exposition;

pub use binary::release_binary;
pub use cpu_meter::{
    agent_usage, cpu_time, process_cpu_time, resident_mb, thread_cpu_time, thread_cpu_time_of,
    whole_process_cpu_time,
};
pub use cpu_query::sum_of_192;
pub use peer_store::{PeerKind, PeerStore};
pub use recorded_hour::RecordedHour;
pub use report::{BenchReport, FigureGate, is_trial_run, median};
pub use simulated_node::SimulatedNode;
pub use timed_exposition::timed_exposition;
