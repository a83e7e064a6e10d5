//! The filter that a program sets for what it collects: a Python function, called for every update
//! while one is set. Without a filter an update costs one load more.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::drops::{self, ClientDrop};
use crate::series::SeriesArguments;

static IS_SET: AtomicBool = AtomicBool::new(false);
/// A list with the function, or an empty one: only accessed with the interpreter's lock held.
static FUNCTION: PyOnceLock<Py<PyList>> = PyOnceLock::new();

/// Sets the function that decides for every update whether it is stored, or removes it. It is
/// called with name, labels and value; the value of a counter's update is `None`.
#[pyfunction]
pub(crate) fn set_filter(py: Python<'_>, function: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let place = FUNCTION.get_or_init(py, || PyList::empty(py).unbind());
    let place = place.bind(py);
    place.del_slice(0, place.len())?;
    if let Some(function) = function {
        place.append(function)?;
    }
    IS_SET.store(function.is_some(), Relaxed);
    Ok(())
}

/// Returns whether an update is stored; counts it if not.
#[inline]
pub(crate) fn accepts(
    py: Python<'_>,
    series: &SeriesArguments,
    value: Option<f64>,
) -> PyResult<bool> {
    if !IS_SET.load(Relaxed) {
        return Ok(true);
    }
    ask(py, series, value)
}

#[cold]
fn ask(py: Python<'_>, series: &SeriesArguments, value: Option<f64>) -> PyResult<bool> {
    let function = FUNCTION
        .get(py)
        .and_then(|place| place.bind(py).get_item(0).ok());
    let Some(function) = function else {
        return Ok(true);
    };
    let arguments = (series.name.as_str(), series.labels_dict(py)?, value);
    let is_accepted = function.call1(arguments)?.is_truthy()?;
    if !is_accepted {
        drops::count(ClientDrop::Filtered);
    }
    Ok(is_accepted)
}
