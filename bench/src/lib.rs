//! What the scenarios share: CPU meters, a simulated node and an hour of it in a store, and a report with gates.
//!
//! A scenario measures CPU time, not wall time, several times over, and reports median and spread.
//! With `PEGEL_BENCH_ONCE=1` it runs one time and passes whatever it measures.

mod binary;
mod hour;
mod meter;
mod node;
mod question;
mod report;

pub use binary::release_binary;
pub use hour::Hour;
pub use meter::{cpu_time, process_cpu_time, resident_mb, thread_cpu_time};
pub use node::Node;
pub use question::sum_of_192;
pub use report::{Gate, Report, is_once, median};
