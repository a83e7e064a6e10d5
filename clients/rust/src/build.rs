//! Builders of series: name, help, labels, level, aggregation.

use std::fmt;
use std::marker::PhantomData;

use pegel_client_datagrams::statsd_output;
use pegel_lane::{Aggregation, CreateError, Handle};

use crate::{Gauge, LaneKind, LaneSeriesSpec};

/// A series to be created; ends with [`Builder::build`] or [`Builder::try_build`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder<T> {
    kind: LaneKind,
    name: String,
    help: String,
    labels: Vec<(String, String)>,
    aggregation: Aggregation,
    pub(crate) stripes: u8,
    level: u8,
    with_pid: bool,
    with_rank: bool,
    made: PhantomData<fn() -> T>,
}

/// The reason why a series cannot be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    name: String,
    cause: CreateError,
}

impl Error {
    /// Returns whether the user turned metrics off with `PEGEL_DISABLE`.
    pub fn is_disabled(&self) -> bool {
        self.cause == CreateError::Disabled
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot create series {:?}", self.name)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl<T> Builder<T> {
    pub(crate) fn new(kind: LaneKind, name: &str) -> Builder<T> {
        Builder {
            kind,
            name: name.to_owned(),
            help: String::new(),
            labels: Vec::new(),
            aggregation: Aggregation::Last,
            stripes: 1,
            level: 1,
            with_pid: false,
            with_rank: false,
            made: PhantomData,
        }
    }

    /// Sets the help text: one sentence that describes the metric.
    pub fn help(mut self, help: &str) -> Builder<T> {
        help.clone_into(&mut self.help);
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Builder<T> {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Distinguishes processes by the label `pid`.
    pub fn pid(mut self) -> Builder<T> {
        self.with_pid = true;
        self
    }

    /// Distinguishes the ranks of a parallel job by the label `rank`.
    pub fn rank(mut self) -> Builder<T> {
        self.with_rank = true;
        self
    }

    /// Sets the level of detail: an agent at level N keeps metrics of level N and below. The
    /// default is 1.
    pub fn level(mut self, level: u8) -> Builder<T> {
        self.level = level;
        self
    }
}

impl Builder<Gauge> {
    /// Sets how the values of several programs are combined. The default is the value that was set
    /// last.
    pub fn aggregate(mut self, aggregation: Aggregation) -> Builder<Gauge> {
        self.aggregation = aggregation;
        self
    }
}

impl<T: Handle> Builder<T> {
    /// Returns the handle; if the name or a label is invalid, one that does nothing.
    pub fn build(self) -> T {
        self.try_build().unwrap_or_else(|_| T::none())
    }

    pub fn try_build(self) -> Result<T, Error> {
        let labels: Vec<(&str, &str)> = self
            .labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let spec = LaneSeriesSpec {
            help: &self.help,
            labels: &labels,
            aggregation: self.aggregation,
            stripes: self.stripes,
            level: self.level,
            with_pid: self.with_pid,
            with_rank: self.with_rank,
            ..LaneSeriesSpec::new(self.kind, &self.name)
        };
        let made = T::create(&spec).map_err(|cause| Error {
            name: self.name.clone(),
            cause,
        })?;
        statsd_output::start_from_environment();
        Ok(made)
    }
}
