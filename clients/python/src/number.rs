//! Numbers of Python programs: integers, floats, and everything that converts to one of them, such
//! as NumPy's scalars and tensors with one element.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::drops::{self, ClientDrop};

/// The amount by which a counter grows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WholeNumber {
    Usable(u64),
    /// Counted under its reason.
    Dropped,
}

/// The value of a gauge, histogram, timer or point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RealNumber {
    Usable(f64),
    /// Counted under its reason.
    Dropped,
}

impl<'a, 'py> FromPyObject<'a, 'py> for WholeNumber {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<WholeNumber> {
        match value.extract::<u64>() {
            Ok(amount) if amount >> 63 == 0 => Ok(WholeNumber::Usable(amount)),
            Ok(_) => Ok(dropped_whole(ClientDrop::TooLarge)),
            Err(error) => explain_whole(value, error),
        }
    }
}

fn dropped_whole(reason: ClientDrop) -> WholeNumber {
    drops::count(reason);
    WholeNumber::Dropped
}

/// Tells a number out of range, which is dropped, from something that is no whole number.
#[cold]
fn explain_whole(value: Borrowed<'_, '_, PyAny>, error: PyErr) -> PyResult<WholeNumber> {
    let py = value.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        let is_negative = value.lt(0).unwrap_or(false);
        return Ok(dropped_whole(if is_negative {
            ClientDrop::Negative
        } else {
            ClientDrop::TooLarge
        }));
    }
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error);
    }
    let kind = value.get_type();
    let kind = kind.name()?;
    let hint = if value.extract::<f64>().is_ok() {
        "; use float_counter for fractions"
    } else {
        ""
    };
    Err(PyTypeError::new_err(format!(
        "must be a whole number, not {kind}{hint}"
    )))
}

impl<'a, 'py> FromPyObject<'a, 'py> for RealNumber {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<RealNumber> {
        match value.extract::<f64>() {
            Ok(number) if number.is_finite() => Ok(RealNumber::Usable(number)),
            Ok(_) => Ok(dropped_real(ClientDrop::NotFinite)),
            Err(error) => explain_real(value, error),
        }
    }
}

fn dropped_real(reason: ClientDrop) -> RealNumber {
    drops::count(reason);
    RealNumber::Dropped
}

#[cold]
fn explain_real(value: Borrowed<'_, '_, PyAny>, error: PyErr) -> PyResult<RealNumber> {
    let py = value.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        return Ok(dropped_real(ClientDrop::TooLarge));
    }
    if !error.is_instance_of::<PyTypeError>(py) {
        return Err(error);
    }
    let kind = value.get_type();
    let kind = kind.name()?;
    Err(PyTypeError::new_err(format!(
        "must be a number, not {kind}"
    )))
}

impl RealNumber {
    /// Drops and counts a negative number.
    pub(crate) fn unless_negative(self) -> RealNumber {
        match self {
            RealNumber::Usable(number) if number < 0.0 => dropped_real(ClientDrop::Negative),
            other => other,
        }
    }
}

/// The largest number of seconds that is not taken for milliseconds: the year 5138.
const SECONDS_MAX: f64 = 1e11;
/// The year 5138 in milliseconds.
const MILLISECONDS_MAX: f64 = 1e14;

/// The time of a point, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PointTime {
    Now,
    Millis(i64),
    /// Counted under its reason.
    Dropped,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PointTime {
    type Error = PyErr;

    /// Accepts `None` (the current time), seconds or milliseconds since 1970 (by magnitude), and
    /// `datetime`.
    fn extract(time: Borrowed<'a, 'py, PyAny>) -> PyResult<PointTime> {
        if time.is_none() {
            return Ok(PointTime::Now);
        }
        let number = match time.extract::<f64>() {
            Ok(number) => number,
            Err(error) => {
                if let Ok(seconds) = time.call_method0("timestamp") {
                    seconds.extract::<f64>()?
                } else if error.is_instance_of::<PyOverflowError>(time.py()) {
                    f64::INFINITY
                } else {
                    let kind = time.get_type();
                    let kind = kind.name()?;
                    return Err(PyTypeError::new_err(format!(
                        "must be seconds since 1970 or a datetime, not {kind}"
                    )));
                }
            }
        };
        let millis = if number < SECONDS_MAX {
            number * 1000.0
        } else {
            number
        };
        if (0.0..MILLISECONDS_MAX).contains(&millis) {
            return Ok(PointTime::Millis(millis.round() as i64));
        }
        drops::count(ClientDrop::BadTime);
        Ok(PointTime::Dropped)
    }
}
