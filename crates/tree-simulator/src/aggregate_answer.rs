//! Answers to `/tree/aggregate`: an agent evaluates aggregations over its own series.

use std::sync::Arc;

use bytes::Bytes;
use pegel_query::promql::{
    LabelSet, PromqlError, PromqlLimits, SelectedSamples, Selection, SeriesSampleVisitor,
    SeriesSource, decode_pushed_request, encode_pushed_series, evaluate_pushed,
};
use pegel_tree_protocol::{SelectEnd, SeriesDefinition};

/// The time between two samples of a series, and the most samples of an answer.
const SAMPLE_MS: i64 = 1000;
const SAMPLES_MAX: i64 = 4000;

/// The labels of all series of a child, in the order of their definitions.
pub(crate) fn labels(definitions: &[SeriesDefinition]) -> Vec<LabelSet> {
    let labels = definitions.iter().map(|series| {
        let (name, labels) = series.text.split_once('{').unwrap_or((&series.text, ""));
        let pairs = labels.trim_end_matches('}').split(',');
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(key, value)| (key, value.trim_matches('"')));
        LabelSet::new(std::iter::once(("__name__", name)).chain(pairs))
    });
    labels.collect()
}

/// The series of one child, which have had their current values forever.
pub(crate) struct SimulatedChildSeries<'a> {
    pub labels: &'a [LabelSet],
    pub values: &'a [f64],
}

impl SeriesSource for SimulatedChildSeries<'_> {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        let last = selection.end.div_euclid(SAMPLE_MS);
        let first = (selection.start - 1).div_euclid(SAMPLE_MS) + 1;
        let first = first.max(last - SAMPLES_MAX);
        let times: Arc<[i64]> = (first..=last).map(|time| time * SAMPLE_MS).collect();
        for (labels, value) in self.labels.iter().zip(self.values) {
            let mut matchers = selection.matchers.iter();
            if matchers.all(|matcher| matcher.matches(labels)) {
                let values = vec![*value; times.len()];
                let samples = SelectedSamples {
                    times: &times,
                    values: &values,
                    is_of_rule: false,
                };
                visit(labels.clone(), samples)?;
            }
        }
        Ok(())
    }
}

impl SimulatedChildSeries<'_> {
    /// Returns status and body of the answer.
    pub(crate) fn answer(&self, request: &[u8]) -> (u32, Bytes) {
        let evaluated = decode_pushed_request(request).and_then(|request| {
            let limits = PromqlLimits::default();
            evaluate_pushed(self, &request, None, &limits)
        });
        let end = SelectEnd {
            answered: 1,
            expected: 1,
            late: Vec::new(),
            nodes: Vec::new(),
        };
        match evaluated {
            Ok(series) => (200, encode_pushed_series(series, end).into()),
            Err(error) => (422, error.to_string().into()),
        }
    }
}
