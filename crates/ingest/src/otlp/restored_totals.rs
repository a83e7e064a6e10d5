//! Totals of streams of increases that are not active: those of an earlier agent, which are read
//! from the store, and those of streams that paused. A stream that continues resumes from its
//! total.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Input, Millis, Selector, Series};
use pegel_store::{QueryStep, RangeQuery, StepAggregation, Store};

/// The most totals. A stream that pauses beyond this number restarts from zero, as after a reset.
const TOTALS_MAX: usize = 1 << 17;
/// How long the search for older totals may take, once after the start of the agent.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// A query step so long that all samples are in one bucket.
const WHOLE_TIME: Millis = 1 << 50;

/// A total, and the time of its last sample if it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OtlpTotal {
    pub value: f64,
    pub time: Option<Millis>,
}

/// Totals by the text of their series.
#[derive(Debug, Default)]
pub(super) struct RestoredTotals(HashMap<Box<str>, OtlpTotal>);

impl RestoredTotals {
    /// Reads the last values of all series of this input. If the older ones cannot be read, those
    /// streams start from zero.
    pub(super) fn load(store: &Store, now: Millis) -> RestoredTotals {
        let of_otlp = || Selector::filter(|series| series.family().input == Input::Otlp);
        let mut totals = RestoredTotals::default();
        let retention = Millis::try_from(store.retention().as_millis()).unwrap_or(Millis::MAX);
        let step = QueryStep {
            millis: WHOLE_TIME,
            aggregation: Some(StepAggregation::Last),
        };
        let start = now.saturating_sub(retention).max(0);
        let mut query = RangeQuery::new(of_otlp(), start, now, Some(step));
        query.deadline = Instant::now() + SEARCH_TIME;
        let searched = store.query_range(&query, &mut |series, points| {
            if let Some((_, value)) = points.last() {
                totals.insert(series.text(), *value, None);
            }
        });
        if let Err(error) = searched {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "cannot read older totals of OTLP; they start from zero"
            );
        }
        store.latest(&of_otlp(), 0, &mut |series: &Arc<Series>, latest| {
            totals.insert(series.text(), latest.value, Some(latest.last_sampled));
        });
        totals
    }

    pub(super) fn insert(&mut self, text: &str, value: f64, time: Option<Millis>) {
        let is_known = self.0.contains_key(text);
        if value.is_finite() && (is_known || self.0.len() < TOTALS_MAX) {
            self.0.insert(text.into(), OtlpTotal { value, time });
        }
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.0.contains_key(text)
    }

    pub(super) fn take(&mut self, text: &str) -> Option<OtlpTotal> {
        self.0.remove(text)
    }
}
