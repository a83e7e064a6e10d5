//! The classes of series, and the functions that create them.
//!
//! A handle is immutable and may be shared by threads. `pegel.counter("name")` without options
//! returns the same object each time, so that a program may call it in a loop.

use pegel_lane::{Aggregation, LaneKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::number::{PointTime, RealNumber, WholeNumber};
use crate::series::{SeriesArguments, SeriesOptions};
use crate::user_filter;

/// The handles without options by name.
type HandleTable = PyOnceLock<Py<PyDict>>;

/// Returns the handle of a name from the table; creates it the first time. The table is bounded by
/// the room in the lanes: a handle without a series is not kept.
fn remembered<'py, T>(
    py: Python<'py>,
    table: &HandleTable,
    name: &Bound<'py, PyString>,
    create: impl FnOnce() -> PyResult<(T, bool)>,
) -> PyResult<Py<PyAny>>
where
    T: pyo3::PyClass + Into<PyClassInitializer<T>>,
{
    let table = table.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(found) = table.get_item(name)? {
        return Ok(found.unbind());
    }
    let (created, is_stored) = create()?;
    let created = Py::new(py, created)?.into_any();
    if is_stored {
        table.set_item(name, &created)?;
    }
    Ok(created)
}

/// Defines a class and what all classes have in common.
macro_rules! series_class {
    ($(#[$doc:meta])* $class:ident($lane:ident), $kind:expr, $function:literal, { $($methods:tt)* }) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "pegel")]
        #[derive(Debug)]
        pub(crate) struct $class {
            handle: pegel_lane::$lane,
            series: SeriesArguments,
        }

        impl $class {
            fn create(series: SeriesArguments) -> PyResult<($class, bool)> {
                let handle = series.create($kind)?;
                let is_stored = handle.is_some();
                let handle = handle.unwrap_or_else(pegel_lane::Handle::none);
                Ok(($class { handle, series }, is_stored))
            }
        }

        #[pymethods]
        impl $class {
            /// The name of the metric.
            #[getter]
            fn name(&self) -> &str {
                &self.series.name
            }

            /// The labels that the program gave.
            #[getter]
            fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                self.series.labels_dict(py)
            }

            fn __repr__(&self) -> String {
                format!("<pegel.{} {}>", stringify!($class), self.series.text())
            }

            /// Pickles the arguments: the copy counts in the lanes of its own process.
            fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let create = py.import("pegel._native")?.getattr($function)?;
                let keywords = self.series.keywords(py)?;
                if $kind == LaneKind::Gauge {
                    let aggregation = aggregation_name(self.series.aggregation);
                    keywords.set_item("aggregation", aggregation)?;
                }
                let rebuild = py.import("functools")?.getattr("partial")?;
                let rebuild = rebuild.call((create,), Some(&keywords))?;
                let pickled = (rebuild, (self.series.name.as_str(),)).into_pyobject(py)?;
                Ok(pickled.into_any())
            }

            $($methods)*
        }
    };
}

/// Defines the function that creates the series of a class.
macro_rules! series_function {
    ($(#[$doc:meta])* $function:ident, $class:ident) => {
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(signature = (name, *, help=None, labels=None, level=None, pid=false, rank=false))]
        pub(crate) fn $function<'py>(
            py: Python<'py>,
            name: &Bound<'py, PyString>,
            help: Option<&str>,
            labels: Option<&Bound<'py, PyDict>>,
            level: Option<i64>,
            pid: bool,
            rank: bool,
        ) -> PyResult<Py<PyAny>> {
            static TABLE: HandleTable = PyOnceLock::new();
            let options = SeriesOptions { help, labels, level, with_pid: pid, with_rank: rank };
            let create = || $class::create(options.with_name(name.to_str()?)?);
            if options.are_defaults() {
                return remembered(py, &TABLE, name, create);
            }
            Ok(Py::new(py, create()?.0)?.into_any())
        }
    };
}

series_class!(
    /// A whole number that only grows.
    Counter(Counter), LaneKind::Counter, "counter", {
        /// Adds to the counter.
        #[pyo3(signature = (amount=WholeNumber::Usable(1)))]
        fn add(&self, py: Python<'_>, amount: WholeNumber) -> PyResult<()> {
            if let WholeNumber::Usable(amount) = amount
                && user_filter::accepts(py, &self.series, None)?
            {
                self.handle.add(amount);
            }
            Ok(())
        }
    }
);

series_class!(
    /// A floating point number that only grows: seconds, joules.
    FloatCounter(FloatCounter), LaneKind::FloatCounter, "float_counter", {
        /// Adds to the counter.
        fn add(&self, py: Python<'_>, amount: RealNumber) -> PyResult<()> {
            if let RealNumber::Usable(amount) = amount.unless_negative()
                && user_filter::accepts(py, &self.series, None)?
            {
                self.handle.add(amount);
            }
            Ok(())
        }
    }
);

series_class!(
    /// A number that goes up and down.
    Gauge(Gauge), LaneKind::Gauge, "gauge", {
        /// Sets the value.
        fn set(&self, py: Python<'_>, value: RealNumber) -> PyResult<()> {
            if let RealNumber::Usable(value) = value
                && user_filter::accepts(py, &self.series, Some(value))?
            {
                self.handle.set(value);
            }
            Ok(())
        }

        /// Adds to the current value; starts at zero.
        fn add(&self, py: Python<'_>, amount: RealNumber) -> PyResult<()> {
            if let RealNumber::Usable(amount) = amount
                && user_filter::accepts(py, &self.series, None)?
            {
                self.handle.add(amount);
            }
            Ok(())
        }
    }
);

series_class!(
    /// The distribution of a size: count, sum, smallest, largest and buckets.
    Histogram(Histogram), LaneKind::Histogram, "histogram", {
        /// Records one value.
        fn record(&self, py: Python<'_>, value: RealNumber) -> PyResult<()> {
            if let RealNumber::Usable(value) = value
                && user_filter::accepts(py, &self.series, Some(value))?
            {
                self.handle.record(value);
            }
            Ok(())
        }
    }
);

series_class!(
    /// The duration of an operation in seconds: count, sum, smallest, largest and buckets.
    Timer(Timer), LaneKind::Timer, "timer", {
        /// Records one duration in seconds.
        fn record(&self, py: Python<'_>, seconds: RealNumber) -> PyResult<()> {
            if let RealNumber::Usable(seconds) = seconds.unless_negative()
                && user_filter::accepts(py, &self.series, Some(seconds))?
            {
                self.handle.record_seconds(seconds);
            }
            Ok(())
        }
    }
);

series_class!(
    /// Single values with their own times.
    Point(Points), LaneKind::Point, "point", {
        /// Adds a point, at the current time or at a time of the program.
        #[pyo3(signature = (value, time=PointTime::Now))]
        fn add(&self, py: Python<'_>, value: RealNumber, time: PointTime) -> PyResult<()> {
            let RealNumber::Usable(value) = value else {
                return Ok(());
            };
            if user_filter::accepts(py, &self.series, Some(value))? {
                add_point(&self.handle, value, time);
            }
            Ok(())
        }
    }
);

pub(crate) fn add_point(points: &pegel_lane::Points, value: f64, time: PointTime) {
    match time {
        PointTime::Now => points.add(value),
        PointTime::Millis(millis) => points.add_at(value, millis),
        PointTime::Dropped => {}
    }
}

series_function!(
    /// Returns a whole number that only grows.
    counter,
    Counter
);
series_function!(
    /// Returns a floating point number that only grows: seconds, joules.
    float_counter,
    FloatCounter
);
series_function!(
    /// Returns the distribution of a size.
    histogram,
    Histogram
);
series_function!(
    /// Returns the duration of an operation, in seconds.
    timer,
    Timer
);
series_function!(
    /// Returns a series of single values with their own times.
    point,
    Point
);

/// Returns a number that goes up and down. `aggregation` is how the values of several programs are
/// combined: `last`, `min`, `max` or `sum`.
#[pyfunction]
#[pyo3(signature = (name, *, help=None, labels=None, level=None, pid=false, rank=false, aggregation=None))]
#[allow(clippy::too_many_arguments)] // They are keywords in Python.
pub(crate) fn gauge<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    help: Option<&str>,
    labels: Option<&Bound<'py, PyDict>>,
    level: Option<i64>,
    pid: bool,
    rank: bool,
    aggregation: Option<&str>,
) -> PyResult<Py<PyAny>> {
    static TABLE: HandleTable = PyOnceLock::new();
    let options = SeriesOptions {
        help,
        labels,
        level,
        with_pid: pid,
        with_rank: rank,
    };
    let create = || {
        let mut series = options.with_name(name.to_str()?)?;
        series.aggregation = aggregation_from(aggregation)?;
        Gauge::create(series)
    };
    if options.are_defaults() && aggregation.is_none() {
        return remembered(py, &TABLE, name, create);
    }
    Ok(Py::new(py, create()?.0)?.into_any())
}

fn aggregation_from(name: Option<&str>) -> PyResult<Aggregation> {
    let name = name.unwrap_or("last");
    Aggregation::from_name(name).ok_or_else(|| {
        PyValueError::new_err(format!(
            "aggregation {name:?} is not one of last, min, max, sum"
        ))
    })
}

fn aggregation_name(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Last => "last",
        Aggregation::Min => "min",
        Aggregation::Max => "max",
        Aggregation::Sum => "sum",
    }
}
