//! Metrics of your program, for the Pegel agent on its node.
//!
//! ```no_run
//! let iterations = pegel::counter("solver_iterations_total")
//!     .help("Iterations of the solver.")
//!     .label("phase", "assembly")
//!     .build();
//! iterations.add(1);
//!
//! let step = pegel::timer("solver_step_seconds").build();
//! {
//!     let _running = step.start();
//!     // … the work; the time is recorded at the end of the block.
//! }
//! ```
//!
//! An update is a few atomic instructions in shared memory: no system call, no lock, no allocation.
//! It never fails, blocks or panics, and is safe in a signal handler. Build a handle once and keep
//! it: building looks the series up, and may wait for other threads that build.
//!
//! Without an agent on the node the program runs unchanged, and an agent that starts later finds
//! the totals so far. Counts survive a kill of the program. `PEGEL_DISABLE=1` in the environment
//! turns metrics off; `PEGEL_LANES` sets another directory for the shared memory.
//!
//! [`mark`] and [`phase`] set marks and phases, which every chart shows. [`statsd`] sends values to
//! another statsd server as well.
//!
//! The agent sums what all programs of the node count under one name, and adds the label `jobid` if
//! a scheduler has set a job. Request `pid` or `rank` to distinguish processes. A child of `fork`
//! counts separately from its first update on.

mod build;
mod phase;
pub mod statsd;
mod timing;

use pegel_lane::{LaneKind, LaneSeriesSpec};

pub use build::{Builder, Error};
pub use pegel_client_datagrams::marks::{lost_marks, mark};
pub use pegel_lane::{
    Aggregation, Counter, FloatCounter, Gauge, Histogram, Points, StripedCounter,
};
pub use phase::{Phase, phase};
pub use timing::{Running, Timer};

/// A whole number that only grows.
pub fn counter(name: &str) -> Builder<Counter> {
    Builder::new(LaneKind::Counter, name)
}

/// A counter that many threads update constantly: its updates are spread over eight cache lines.
pub fn striped_counter(name: &str) -> Builder<StripedCounter> {
    let mut builder = Builder::new(LaneKind::Counter, name);
    builder.stripes = 8;
    builder
}

/// A floating point number that only grows: seconds, joules.
pub fn float_counter(name: &str) -> Builder<FloatCounter> {
    Builder::new(LaneKind::FloatCounter, name)
}

/// A number that goes up and down. It disappears when the program ends.
pub fn gauge(name: &str) -> Builder<Gauge> {
    Builder::new(LaneKind::Gauge, name)
}

/// The duration of an operation: count, sum, smallest, largest and buckets, in seconds.
pub fn timer(name: &str) -> Builder<Timer> {
    Builder::new(LaneKind::Timer, name)
}

/// The distribution of a size: count, sum, smallest, largest and buckets.
pub fn histogram(name: &str) -> Builder<Histogram> {
    Builder::new(LaneKind::Histogram, name)
}

/// Single values with their own timestamps.
pub fn point(name: &str) -> Builder<Points> {
    Builder::new(LaneKind::Point, name)
}

/// Returns whether an agent can read what this program counts. False before the first series, if
/// there is no space in shared memory, and if metrics are turned off.
pub fn is_published() -> bool {
    pegel_lane::process_lanes().is_published()
}
