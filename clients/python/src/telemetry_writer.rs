//! Dragon's `add_data`: a name, a value, and perhaps a tag; the series is found in a table.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use pegel_lane::{Aggregation, LaneKind, Points};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::handles::add_point;
use crate::number::{PointTime, RealNumber};
use crate::series::{SeriesArguments, label_value, level_from};
use crate::user_filter;

/// A series of points in the table of a writer.
#[pyclass(frozen)]
#[derive(Debug)]
struct WriterSeries {
    points: Points,
    arguments: SeriesArguments,
}

/// Writes points by name: the base of `Telemetry`.
#[pyclass(frozen, subclass, module = "pegel")]
#[derive(Debug)]
pub(crate) struct TelemetryWriter {
    level: AtomicI64,
    /// The series by name, or by name, tag key and tag value.
    series: Py<PyDict>,
    with_pid: bool,
    with_rank: bool,
}

#[pymethods]
impl TelemetryWriter {
    #[new]
    #[pyo3(signature = (*, level=5, pid=false, rank=false))]
    fn new(py: Python<'_>, level: i64, pid: bool, rank: bool) -> TelemetryWriter {
        TelemetryWriter {
            level: AtomicI64::new(level),
            series: PyDict::new(py).unbind(),
            with_pid: pid,
            with_rank: rank,
        }
    }

    /// The highest level of data that is written; 0: none.
    #[getter]
    fn level(&self) -> i64 {
        self.level.load(Relaxed)
    }

    /// Sets the highest level of data that is written.
    fn set_level(&self, level: i64) {
        self.level.store(level, Relaxed);
    }

    /// Adds a value of a metric. Does nothing if `telemetry_level` exceeds the level of this
    /// object.
    #[pyo3(signature = (ts_metric_name, ts_data, timestamp=PointTime::Now, telemetry_level=1, tagk=None, tagv=None))]
    #[allow(clippy::too_many_arguments)] // Dragon's interface.
    fn add_data<'py>(
        &self,
        py: Python<'py>,
        ts_metric_name: &Bound<'py, PyString>,
        ts_data: RealNumber,
        timestamp: PointTime,
        telemetry_level: i64,
        tagk: Option<&Bound<'py, PyString>>,
        tagv: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let RealNumber::Usable(value) = ts_data else {
            return Ok(());
        };
        if telemetry_level > self.level() {
            return Ok(());
        }
        // As in Dragon, a tag needs a key and a value.
        let tag = tagk.zip(tagv.filter(|value| !value.is_none()));
        let Some(found) = self.find(py, ts_metric_name, tag, telemetry_level)? else {
            return Ok(());
        };
        let found = found.get();
        if user_filter::accepts(py, &found.arguments, Some(value))? {
            add_point(&found.points, value, timestamp);
        }
        Ok(())
    }
}

impl TelemetryWriter {
    /// Returns the series; creates it the first time. `None` if there is no room for it, or if
    /// metrics are turned off.
    fn find<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
        tag: Option<(&Bound<'py, PyString>, &Bound<'py, PyAny>)>,
        level: i64,
    ) -> PyResult<Option<Bound<'py, WriterSeries>>> {
        let table = self.series.bind(py);
        let key = match tag {
            None => name.clone().into_any(),
            Some((key, value)) => (name, key, value).into_pyobject(py)?.into_any(),
        };
        if let Some(found) = table.get_item(&key)? {
            let found = found.cast_into::<WriterSeries>();
            return found.map(Some).map_err(PyErr::from);
        }
        let labels = match tag {
            None => Vec::new(),
            Some((key, value)) => vec![(key.to_str()?.to_owned(), label_value(key, value)?)],
        };
        let arguments = SeriesArguments {
            name: name.to_str()?.to_owned(),
            help: String::new(),
            labels,
            aggregation: Aggregation::Last,
            level: level_from(level)?,
            with_pid: self.with_pid,
            with_rank: self.with_rank,
        };
        let Some(points) = arguments.create(LaneKind::Point)? else {
            return Ok(None);
        };
        let created = Bound::new(py, WriterSeries { points, arguments })?;
        table.set_item(key, &created)?;
        Ok(Some(created))
    }
}
