//! The state of one series of OTLP: its last value, and the increases that were added last.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pegel_metric::{Millis, Series};

use crate::compensated_sum::CompensatedSum;

/// How many increases are remembered, so that a repeated request is not counted twice. More than
/// one, because several processes may send to one series.
const WINDOWS: usize = 4;

/// A key of maps by which a series is found by its text.
#[derive(Debug, Clone)]
pub(super) struct SeriesByText(pub Arc<Series>);

impl Borrow<str> for SeriesByText {
    fn borrow(&self) -> &str {
        self.0.text()
    }
}

impl Hash for SeriesByText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text().hash(state);
    }
}

impl PartialEq for SeriesByText {
    fn eq(&self, other: &SeriesByText) -> bool {
        self.0.text() == other.0.text()
    }
}

impl Eq for SeriesByText {}

/// The times of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataPointTimes {
    /// The start time as it was sent; 0 if unknown.
    pub start_nanos: u64,
    pub time_nanos: u64,
    /// The time of its samples.
    pub time: Millis,
    /// The oldest time of a sample that the store accepts.
    pub oldest: Millis,
}

impl DataPointTimes {
    /// Returns the time for a sample of zero at the start of a stream, after the sample at `last`;
    /// `None` if the start is unknown or older than the store's samples.
    pub(super) fn zero_time(&self, last: Millis) -> Option<Millis> {
        let start = Millis::try_from(self.start_nanos / 1_000_000).unwrap_or(Millis::MAX);
        let at = start.max(last.saturating_add(1));
        (self.start_nanos > 0 && (self.oldest..self.time).contains(&at)).then_some(at)
    }
}

/// The state of a series.
#[derive(Debug, Clone)]
pub(super) struct OtlpSeriesState {
    /// The last total.
    pub total: CompensatedSum,
    /// The time of the last sample.
    pub time: Millis,
    pub start_nanos: u64,
    pub last_used: Millis,
    /// Start and time of the last increases; only for streams of increases.
    pub windows: Option<Box<[(u64, u64); WINDOWS]>>,
}

impl OtlpSeriesState {
    pub(super) fn new(total: f64, time: Millis, now: Millis) -> OtlpSeriesState {
        OtlpSeriesState {
            total: CompensatedSum::of(total),
            time,
            start_nanos: 0,
            last_used: now,
            windows: None,
        }
    }

    /// Returns whether an increase was added before, and remembers it if not. Of increases that an
    /// earlier agent added, only the time of the last sample is known. Increases without a time
    /// cannot be told apart, and are added.
    pub(super) fn is_repeated(&mut self, times: &DataPointTimes) -> bool {
        let window = (times.start_nanos, times.time_nanos);
        let was_counted = self.windows.is_none() && self.time == times.time;
        let windows = self.windows.get_or_insert_default();
        if times.time_nanos == 0 {
            return false;
        }
        if was_counted || windows.contains(&window) {
            return true;
        }
        windows.rotate_right(1);
        windows[0] = window;
        false
    }
}
