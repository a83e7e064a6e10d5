//! Counts of values that were not stored, by reason. `pegel.dropped()` shows them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The reason why a value was not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientDrop {
    /// NaN or infinite.
    NotFinite,
    /// A negative amount of a counter, or a negative duration.
    Negative,
    /// An integer that exceeds the range of the series.
    TooLarge,
    /// A timestamp that is no time since 1970.
    BadTime,
    /// The lanes of the process have no room for the series.
    NoRoom,
    /// A filter removed it.
    Filtered,
}

const REASONS: [&str; 6] = [
    "not_finite",
    "negative",
    "too_large",
    "bad_time",
    "no_room",
    "filtered",
];

static COUNTS: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

pub(crate) fn count(reason: ClientDrop) {
    if let Some(count) = COUNTS.get(reason as usize) {
        count.fetch_add(1, Relaxed);
    }
}

/// Returns the counts that are not zero.
#[pyfunction]
pub(crate) fn drop_counts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counts = PyDict::new(py);
    for (reason, count) in REASONS.iter().zip(&COUNTS) {
        match count.load(Relaxed) {
            0 => {}
            count => counts.set_item(reason, count)?,
        }
    }
    Ok(counts)
}

/// Sets all counts to zero: a child of `fork` counts its own drops.
#[pyfunction]
pub(crate) fn reset_drop_counts() {
    for count in &COUNTS {
        count.store(0, Relaxed);
    }
}
