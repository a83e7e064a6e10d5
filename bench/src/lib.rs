//! What the scenarios share: CPU meters, a simulated node and an hour of it in a store, and a report with gates.
//!
//! A scenario measures CPU time, not wall time, several times over, and reports median and spread.
//! With `PEGEL_BENCH_ONCE=1` it runs one time and passes whatever it measures.

mod binary;
mod cpu_meter;
mod cpu_query;
mod recorded_hour;
mod report;
mod simulated_node;

pub use binary::release_binary;
pub use cpu_meter::{cpu_time, process_cpu_time, resident_mb, thread_cpu_time};
pub use cpu_query::sum_of_192;
pub use recorded_hour::RecordedHour;
pub use report::{BenchReport, FigureGate, is_trial_run, median};
pub use simulated_node::SimulatedNode;
