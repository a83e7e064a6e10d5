//! The series that a Python program creates: its arguments, checks, and how a handle is pickled.

use pegel_lane::{Aggregation, CreateError, Handle, LaneKind, LaneSeriesSpec};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::drops::{self, ClientDrop};

/// The arguments of the functions that create series.
#[derive(Debug, Clone)]
pub(crate) struct SeriesArguments {
    pub name: String,
    pub help: String,
    pub labels: Vec<(String, String)>,
    pub aggregation: Aggregation,
    pub level: u8,
    pub with_pid: bool,
    pub with_rank: bool,
}

/// The optional arguments of the functions that create series.
#[derive(Debug)]
pub(crate) struct SeriesOptions<'a, 'py> {
    pub help: Option<&'a str>,
    pub labels: Option<&'a Bound<'py, PyDict>>,
    pub level: Option<i64>,
    pub with_pid: bool,
    pub with_rank: bool,
}

impl SeriesOptions<'_, '_> {
    pub(crate) fn are_defaults(&self) -> bool {
        let is_plain = self.help.is_none() && self.labels.is_none() && self.level.is_none();
        is_plain && !self.with_pid && !self.with_rank
    }

    pub(crate) fn with_name(&self, name: &str) -> PyResult<SeriesArguments> {
        Ok(SeriesArguments {
            name: name.to_owned(),
            help: self.help.unwrap_or_default().to_owned(),
            labels: labels_from(self.labels)?,
            aggregation: Aggregation::Last,
            level: level_from(self.level.unwrap_or(1))?,
            with_pid: self.with_pid,
            with_rank: self.with_rank,
        })
    }
}

impl SeriesArguments {
    /// Creates the series. An invalid name or label is an error of the program. Returns `None` if
    /// there is no room for another series, or if metrics are turned off.
    pub(crate) fn create<T: Handle>(&self, kind: LaneKind) -> PyResult<Option<T>> {
        let labels: Vec<(&str, &str)> = self
            .labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let spec = LaneSeriesSpec {
            help: &self.help,
            labels: &labels,
            aggregation: self.aggregation,
            level: self.level,
            with_pid: self.with_pid,
            with_rank: self.with_rank,
            ..LaneSeriesSpec::new(kind, &self.name)
        };
        match T::create(&spec) {
            Ok(handle) => {
                pegel_client_datagrams::statsd_output::start_from_environment();
                Ok(Some(handle))
            }
            Err(CreateError::Disabled) => Ok(None),
            Err(CreateError::Full | CreateError::Memory) => {
                drops::count(ClientDrop::NoRoom);
                Ok(None)
            }
            // The beginning of a name that is too long identifies it.
            Err(error) => Err(PyValueError::new_err(format!(
                "metric \"{:.64}\": {error}",
                self.name.escape_debug().to_string()
            ))),
        }
    }

    /// Returns the name with its labels, as the agent shows it.
    pub(crate) fn text(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        match labels.as_slice() {
            [] => self.name.clone(),
            labels => format!("{}{{{}}}", self.name, labels.join(",")),
        }
    }

    pub(crate) fn labels_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(py);
        for (key, value) in &self.labels {
            labels.set_item(key, value)?;
        }
        Ok(labels)
    }

    /// Returns the keyword arguments that create the series again, in another process.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("help", &self.help)?;
        keywords.set_item("labels", self.labels_dict(py)?)?;
        keywords.set_item("level", self.level)?;
        keywords.set_item("pid", self.with_pid)?;
        keywords.set_item("rank", self.with_rank)?;
        Ok(keywords)
    }
}

/// Reads labels. Values that are not text are converted with `str`: `{"gpu": 0}` is `gpu="0"`.
fn labels_from(labels: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let Some(labels) = labels else {
        return Ok(Vec::new());
    };
    let pairs = labels.iter().map(|(key, value)| {
        let key = key.cast::<PyString>().map_err(|_| {
            PyTypeError::new_err("labels must be a dict whose keys are of type str")
        })?;
        Ok((key.to_str()?.to_owned(), label_value(key, &value)?))
    });
    pairs.collect()
}

pub(crate) fn label_value(key: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_none() {
        let message = format!("label {:?} has the value None", key.to_str()?);
        return Err(PyTypeError::new_err(message));
    }
    Ok(value.str()?.to_str()?.to_owned())
}

/// Parses a level: an agent at level N keeps metrics of level N and below.
pub(crate) fn level_from(level: i64) -> PyResult<u8> {
    match level {
        0..=255 => Ok(level as u8),
        _ => Err(PyValueError::new_err(format!(
            "level {level} is not between 0 and 255"
        ))),
    }
}
