//! Values for another statsd server: the functions of `pegel.statsd`.

use pegel_client_datagrams::statsd_output::{
    StatsdConfig, counts, flush, flush_before_exit, resume_after_fork, start, switch,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Starts to send the values of this process to a server, or changes the server.
#[pyfunction]
pub(crate) fn statsd_start(py: Python<'_>, address: &str) -> PyResult<()> {
    // The thread of the output may hold the lock while it resolves a name.
    let started = py.detach(|| StatsdConfig::new(address).and_then(start));
    started.map_err(|error| PyValueError::new_err(error.text()))
}

/// Turns the series on or off whose names match a pattern.
#[pyfunction]
pub(crate) fn statsd_switch(pattern: &str, on: bool) {
    switch(pattern, on);
}

/// Sends what changed, now.
#[pyfunction]
pub(crate) fn statsd_flush(py: Python<'_>) {
    py.detach(flush);
}

/// Sends what changed before the process ends.
#[pyfunction]
pub(crate) fn statsd_flush_before_exit(py: Python<'_>) {
    py.detach(flush_before_exit);
}

/// Continues in a child of `fork`. Returns whether the parent sent values.
#[pyfunction]
pub(crate) fn statsd_resume_after_fork() -> bool {
    resume_after_fork()
}

/// Returns what was sent since the start.
#[pyfunction]
pub(crate) fn statsd_counts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let sent = counts();
    let result = PyDict::new(py);
    result.set_item("lines", sent.lines)?;
    result.set_item("datagrams", sent.datagrams)?;
    result.set_item("errors", sent.errors)?;
    Ok(result)
}
