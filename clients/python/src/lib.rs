//! The native part of the Python package `pegel`: series in the lanes of the process, and Dragon's
//! `add_data`. Everything that talks to an agent is in Python, in `python/pegel`.
//!
//! An update is one call of a built-in method: it reads its argument, checks it and runs the atomic
//! instructions of a lane. A value of the wrong type raises `TypeError`. A number that cannot be
//! stored (not finite, negative, too large) is dropped and counted, see `drops`: telemetry does not
//! end a computation because of a value.

mod drops;
mod handles;
mod number;
mod series;
mod statsd_output;
mod telemetry_writer;
mod user_filter;

use pyo3::prelude::*;

/// The module `pegel._native`.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::handles::{
        Counter, FloatCounter, Gauge, Histogram, Point, Timer, counter, float_counter, gauge,
        histogram, point, timer,
    };

    #[pymodule_export]
    use super::telemetry_writer::TelemetryWriter;

    #[pymodule_export]
    use super::drops::{drop_counts, reset_drop_counts};

    #[pymodule_export]
    use super::statsd_output::{
        statsd_counts, statsd_flush, statsd_flush_before_exit, statsd_resume_after_fork,
        statsd_start, statsd_switch,
    };

    #[pymodule_export]
    use super::user_filter::set_filter;

    /// Returns whether an agent can read what this process counts.
    #[pyfunction]
    fn is_published() -> bool {
        pegel_lane::process_lanes().is_published()
    }

    /// Returns the rank of this process in its job, as its launcher states it.
    #[pyfunction]
    fn rank() -> Option<String> {
        pegel_lane::rank()
    }

    /// Returns the job of this process, as its scheduler names it.
    #[pyfunction]
    fn job_id() -> Option<String> {
        pegel_lane::job_id()
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
