//! Series that are 1 during intervals and absent otherwise, made at each query: jobs. Nothing of
//! this is stored as samples, so that their number does not add up to series in the store.

use std::fmt;

use pegel_metric::{Family, Millis};

use super::error::PromqlError;
use super::labels::{LabelSet, NAME};
use super::mark_series::interval_samples;
use super::series_view::NodeLabels;
use super::source::Selection;

/// One interval, with the labels of its series.
#[derive(Debug, Clone)]
pub struct LabelledInterval {
    pub labels: Vec<(&'static str, String)>,
    pub begin: Millis,
    /// `None` if it is not over.
    pub end: Option<Millis>,
}

/// A source of intervals.
pub trait IntervalSource: fmt::Debug + Send + Sync {
    /// The family of the series.
    fn family(&self) -> &'static Family;

    /// Returns the intervals that overlap a range of time, within a bound of the source.
    fn intervals(&self, start: Millis, end: Millis) -> Vec<LabelledInterval>;
}

type IntervalSamples = Vec<(Millis, f64)>;

/// Returns the series of a source that match and have samples in the range.
pub(super) fn interval_series(
    source: &dyn IntervalSource,
    node: &NodeLabels,
    selection: &Selection<'_>,
) -> Result<Vec<(LabelSet, IntervalSamples)>, PromqlError> {
    let name = &*source.family().name;
    let mut names = { selection.matchers.iter() }.filter(|matcher| matcher.name == NAME);
    if !names.all(|matcher| matcher.accepts(name)) {
        return Ok(Vec::new());
    }
    let mut bytes = 0;
    let mut result = Vec::new();
    for interval in source.intervals(selection.start, selection.end) {
        let own = interval.labels.iter();
        let own = own.map(|(key, value)| (*key, value.as_str()));
        let of_node = [("job", &*node.job), ("instance", &*node.instance)];
        let labels = [(NAME, name)].into_iter().chain(own).chain(of_node);
        let labels = LabelSet::new(labels.map(|(key, value)| (key.to_owned(), value)));
        if !selection
            .matchers
            .iter()
            .all(|matcher| matcher.matches(&labels))
        {
            continue;
        }
        let span = (interval.begin, interval.end.unwrap_or(selection.end));
        let samples = interval_samples(&[span], selection);
        bytes += labels.bytes() + samples.len() * size_of::<(Millis, f64)>();
        if bytes > selection.bytes_max {
            return Err(PromqlError::too_many_samples());
        }
        if !samples.is_empty() {
            result.push((labels, samples));
        }
    }
    Ok(result)
}
