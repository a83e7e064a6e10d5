//! What the scenarios share: a CPU meter, a simulated node, and a report with gates.
//!
//! A scenario measures CPU time, not wall time, several times over, and reports median and spread.
//! With `PEGEL_BENCH_ONCE=1` it runs one time and passes whatever it measures.

mod node;
mod report;
mod rusage;

pub use node::Node;
pub use report::{Gate, Report, is_once};
pub use rusage::cpu_time;
