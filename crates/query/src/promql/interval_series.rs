//! Series that are 1 during intervals and absent otherwise, made at each query: jobs. Nothing of
//! this is stored as samples, so that their number does not add up to series in the store.

use std::fmt;

use pegel_metric::{Family, Millis};

use super::error::PromqlError;
use super::labels::{LabelSet, NAME};
use super::mark_series::{PHASE_INTERVAL, interval_samples};
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

/// Returns the intervals of a source that match and overlap the range, with their labels. Makes no
/// samples: a request for labels may have no limits of time.
pub(super) fn matching_intervals(
    source: &dyn IntervalSource,
    node: &NodeLabels,
    selection: &Selection<'_>,
) -> Vec<(LabelSet, LabelledInterval)> {
    let name = &*source.family().name;
    let mut names = { selection.matchers.iter() }.filter(|matcher| matcher.name == NAME);
    if !names.all(|matcher| matcher.accepts(name)) {
        return Vec::new();
    }
    let intervals = source.intervals(selection.start, selection.end);
    let with_labels = intervals.into_iter().map(|interval| {
        let own = interval.labels.iter();
        let own = own.map(|(key, value)| (*key, value.as_str()));
        let of_node = [("job", &*node.job), ("instance", &*node.instance)];
        let labels = [(NAME, name)].into_iter().chain(own).chain(of_node);
        let labels = LabelSet::new(labels.map(|(key, value)| (key.to_owned(), value)));
        (labels, interval)
    });
    let is_selected = |labels: &LabelSet| {
        let mut matchers = selection.matchers.iter();
        matchers.all(|matcher| matcher.matches(labels))
    };
    with_labels
        .filter(|(labels, _)| is_selected(labels))
        .collect()
}

/// Returns the series of a source that match and have samples in the range.
pub(super) fn interval_series(
    source: &dyn IntervalSource,
    node: &NodeLabels,
    selection: &Selection<'_>,
) -> Result<Vec<(LabelSet, IntervalSamples)>, PromqlError> {
    let mut bytes = 0;
    let mut result = Vec::new();
    for (labels, interval) in matching_intervals(source, node, selection) {
        let span = (interval.begin, interval.end.unwrap_or(selection.end));
        let start = span.0.max(selection.start);
        let length = span.1.min(selection.end).saturating_sub(start).max(0);
        let count = usize::try_from(length / PHASE_INTERVAL).unwrap_or(usize::MAX);
        let sample_bytes = count.saturating_mul(size_of::<(Millis, f64)>());
        bytes = labels
            .bytes()
            .saturating_add(sample_bytes)
            .saturating_add(bytes);
        if bytes > selection.bytes_max {
            return Err(PromqlError::too_many_samples());
        }
        let samples = interval_samples(&[span], selection);
        if !samples.is_empty() {
            result.push((labels, samples));
        }
    }
    Ok(result)
}
