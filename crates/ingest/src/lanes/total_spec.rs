//! The series that a lane requests from the totals.

use pegel_metric::{Input, Level, MetricKind};

use super::amount::CounterKind;
use crate::admission::SeriesSpec;

pub(super) use pegel_lane::Aggregation;

/// The kind of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TotalKind {
    Counter(CounterKind),
    Gauge(Aggregation),
}

impl TotalKind {
    pub(super) fn kind(self) -> MetricKind {
        match self {
            TotalKind::Counter(_) => MetricKind::Counter,
            TotalKind::Gauge(_) => MetricKind::Gauge,
        }
    }

    pub(super) fn lane_type(self) -> &'static str {
        match self {
            TotalKind::Counter(CounterKind::Whole) => "counter",
            TotalKind::Counter(CounterKind::Float) => "float_counter",
            TotalKind::Counter(CounterKind::Bucket) => "bucket",
            TotalKind::Gauge(_) => "gauge",
        }
    }

    /// Returns whether both can share one name. The aggregation of a gauge is that of the first
    /// lane.
    pub(super) fn is_compatible(self, other: TotalKind) -> bool {
        match (self, other) {
            (TotalKind::Gauge(_), TotalKind::Gauge(_)) => true,
            (a, b) => a == b,
        }
    }
}

/// A series that a lane declares.
#[derive(Debug, Clone, Copy)]
pub(super) struct TotalSeriesSpec<'a> {
    pub name: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    /// The owner of the lane, unless it is the agent's user.
    pub user: Option<&'a str>,
    pub help: &'a str,
    pub level: Level,
    pub role: TotalKind,
}

impl<'a> TotalSeriesSpec<'a> {
    pub(super) fn series_spec(&self, identity: &'a [(&'a str, &'a str)]) -> SeriesSpec<'a> {
        SeriesSpec {
            name: self.name,
            labels: self.labels,
            identity,
            kind: self.role.kind(),
            help: self.help,
            level: self.level,
            input: Input::Lane,
        }
    }
}
