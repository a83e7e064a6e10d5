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
//! An update is a few atomic instructions in shared memory: no system call, no lock, no allocation. It
//! never fails, blocks or panics, and may be done in a signal handler. Build a handle once and keep it:
//! building looks the series up, and may wait for other threads that build.
//!
//! With no agent on the node the program runs all the same, and an agent that starts later finds the
//! totals so far. When the program is killed, everything that it counted is there. `PEGEL_DISABLE=1` in
//! the environment turns everything off; `PEGEL_LANES` names another directory for the shared memory.
//!
//! The agent adds up what all programs of the node count under one name, and adds the label `jobid` where
//! a scheduler has set one. Ask for `pid` or `rank` to tell processes apart. A child of `fork` counts for
//! itself from its first update on.

mod build;
mod timing;

use pegel_lane::{LaneKind, LaneSeriesSpec};

pub use build::{Builder, Error};
pub use pegel_lane::{
    Aggregation, Counter, FloatCounter, Gauge, Histogram, Points, StripedCounter,
};
pub use timing::{Running, Timer};

/// A whole number that only grows.
pub fn counter(name: &str) -> Builder<Counter> {
    Builder::new(LaneKind::Counter, name)
}

/// A counter that many threads update all the time: eight cache lines share its updates.
pub fn striped_counter(name: &str) -> Builder<StripedCounter> {
    let mut builder = Builder::new(LaneKind::Counter, name);
    builder.stripes = 8;
    builder
}

/// A number with a fraction that only grows: seconds, joules.
pub fn float_counter(name: &str) -> Builder<FloatCounter> {
    Builder::new(LaneKind::FloatCounter, name)
}

/// A number that goes up and down. It disappears when the program ends.
pub fn gauge(name: &str) -> Builder<Gauge> {
    Builder::new(LaneKind::Gauge, name)
}

/// How long something takes: count, sum, smallest, largest and buckets, in seconds.
pub fn timer(name: &str) -> Builder<Timer> {
    Builder::new(LaneKind::Timer, name)
}

/// How large something is: count, sum, smallest, largest and buckets.
pub fn histogram(name: &str) -> Builder<Histogram> {
    Builder::new(LaneKind::Histogram, name)
}

/// Single values with their own times.
pub fn point(name: &str) -> Builder<Points> {
    Builder::new(LaneKind::Point, name)
}

/// Whether an agent can see what this program counts. False before the first series, and when there is no
/// room for shared memory or everything is turned off.
pub fn is_published() -> bool {
    pegel_lane::process_lanes().is_published()
}
