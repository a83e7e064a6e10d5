//! Totals of streams of increases that are not active: those of an earlier agent, which are read
//! from the store, and those of streams that paused. A stream that continues resumes from its
//! total.
//!
//! Totals wait for as long as the store keeps their samples. If there are too many, those that
//! waited longest are removed: their streams restart from zero, as after a reset.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Family, Input, MetricKind, Millis, Selector, Series};
use pegel_store::{QueryStep, RangeQuery, StepAggregation, Store};
use pegel_wire::otlp::buckets::ClassicBucket;

use super::expand::BOUND;

/// The most totals.
const TOTALS_MAX: usize = 1 << 17;
/// The most bytes of the texts of their series. They are not charged to a sender.
const TOTALS_BYTES_MAX: usize = 32 << 20;
/// How long the search for older totals may take, once after the start of the agent.
const SEARCH_TIME: Duration = Duration::from_secs(2);
/// A query step so long that all samples are in one bucket.
const WHOLE_TIME: Millis = 1 << 50;

/// A total, and the time of its last sample if it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OtlpTotal {
    pub value: f64,
    pub time: Option<Millis>,
    /// Since when the total waits.
    since: Millis,
}

/// Totals by the text of their series.
#[derive(Debug, Default)]
pub(super) struct RestoredTotals {
    totals: HashMap<Box<str>, OtlpTotal>,
    text_bytes: usize,
    /// Bounds and totals of buckets, by histogram. Made from `totals` when it is needed.
    buckets: Option<HashMap<String, Vec<(f64, f64)>>>,
}

impl RestoredTotals {
    /// Reads the last values of all series of this input. If the older ones cannot be read, those
    /// streams start from zero.
    pub(super) fn load(store: &Store, now: Millis) -> RestoredTotals {
        let of_otlp = || Selector::filter(|series| series.family().input == Input::Otlp);
        let mut totals = RestoredTotals::default();
        let step = QueryStep {
            millis: WHOLE_TIME,
            aggregation: Some(StepAggregation::Last),
        };
        let start = now.saturating_sub(retention(store)).max(0);
        let mut query = RangeQuery::new(of_otlp(), start, now, Some(step));
        query.deadline = Instant::now() + SEARCH_TIME;
        let searched = store.query_range(&query, &mut |series, points| {
            if let Some((_, value)) = points.last() {
                totals.insert(series.text(), *value, None, now);
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
            totals.insert(series.text(), latest.value, Some(latest.last_sampled), now);
        });
        totals
    }

    /// Adds a total that waits from now on. Values that are not finite are ignored.
    pub(super) fn insert(&mut self, text: &str, value: f64, time: Option<Millis>, now: Millis) {
        if !value.is_finite() {
            return;
        }
        let total = OtlpTotal {
            value,
            time,
            since: now,
        };
        self.buckets = None;
        if self.totals.insert(text.into(), total).is_none() {
            self.text_bytes += text.len();
        }
        while self.totals.len() > TOTALS_MAX || self.text_bytes > TOTALS_BYTES_MAX {
            self.remove_oldest_half();
        }
    }

    /// Removes the totals that wait since before `oldest`.
    pub(super) fn remove_before(&mut self, oldest: Millis) {
        self.remove(|total| total.since < oldest);
    }

    fn remove_oldest_half(&mut self) {
        let age = |total: &OtlpTotal| (total.since, total.time);
        let mut ages: Vec<(Millis, Option<Millis>)> = self.totals.values().map(age).collect();
        let mut surplus = ages.len().div_ceil(2);
        let (_, median, _) = ages.select_nth_unstable(surplus - 1);
        let median = *median;
        // Totals of the same age are counted, so that not all of them are removed.
        self.remove(|total| {
            let is_surplus = surplus > 0 && age(total) <= median;
            surplus -= usize::from(is_surplus);
            is_surplus
        });
    }

    fn remove(&mut self, mut is_removed: impl FnMut(&OtlpTotal) -> bool) {
        let text_bytes = &mut self.text_bytes;
        self.totals.retain(|text, total| {
            let stays = !is_removed(total);
            if !stays {
                *text_bytes -= text.len();
            }
            stays
        });
    }

    pub(super) fn get(&self, text: &str) -> Option<OtlpTotal> {
        self.totals.get(text).copied()
    }

    pub(super) fn take(&mut self, text: &str) -> Option<OtlpTotal> {
        let total = self.totals.remove(text)?;
        self.text_bytes -= text.len();
        Some(total)
    }

    /// Returns the buckets of a histogram by the series of its count, sorted by bound, without the
    /// last one (`+Inf`).
    pub(super) fn buckets_of(&mut self, count_series: &Series) -> Vec<ClassicBucket> {
        let totals = &self.totals;
        let known: &HashMap<_, _> = self
            .buckets
            .get_or_insert_with(|| buckets_by_histogram(totals));
        let key = histogram_key(count_series, "_count");
        let buckets = key.and_then(|key| known.get(&key)).into_iter().flatten();
        let buckets = buckets.map(|(bound, count)| (*bound, *count as u64));
        let mut buckets: Vec<ClassicBucket> = buckets.collect();
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        buckets
    }
}

/// Returns how long the store keeps samples.
pub(super) fn retention(store: &Store) -> Millis {
    Millis::try_from(store.retention().as_millis()).unwrap_or(Millis::MAX)
}

fn buckets_by_histogram(totals: &HashMap<Box<str>, OtlpTotal>) -> HashMap<String, Vec<(f64, f64)>> {
    let family = Arc::new(Family::new("", MetricKind::Counter, "", 0, ""));
    let mut buckets: HashMap<String, Vec<(f64, f64)>> = HashMap::new();
    for (text, total) in totals {
        if !text.contains("_bucket{") {
            continue;
        }
        let Ok(series) = Series::parse(text, |_| family.clone()) else {
            continue;
        };
        let bound: Option<f64> = series.label(BOUND).and_then(|bound| bound.parse().ok());
        let bound = bound.filter(|bound| bound.is_finite());
        if let (Some(key), Some(bound)) = (histogram_key(&series, "_bucket"), bound) {
            buckets.entry(key).or_default().push((bound, total.value));
        }
    }
    buckets
}

/// Returns what the series of a histogram have in common: its name and the labels without `le`.
fn histogram_key(series: &Series, suffix: &str) -> Option<String> {
    let mut key = series.name().strip_suffix(suffix)?.to_owned();
    for (label, value) in series.labels().filter(|(label, _)| *label != BOUND) {
        // Admitted labels have no control characters. Writing to a string cannot fail.
        let _ = write!(key, "\u{1}{label}\u{1}{value}");
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_that_waited_longest_are_removed() {
        let mut totals = RestoredTotals::default();
        let name = |number: usize| format!("series_{number}");
        for number in 0..=TOTALS_MAX {
            let now = Millis::try_from(number).expect("small");
            totals.insert(&name(number), 1.0, None, now);
        }
        assert_eq!(totals.totals.len(), TOTALS_MAX / 2);
        assert_eq!(totals.get(&name(0)), None);
        assert!(totals.get(&name(TOTALS_MAX)).is_some());
        totals.remove_before(Millis::try_from(TOTALS_MAX).expect("small"));
        assert_eq!(totals.totals.len(), 1);
        assert!(totals.take(&name(TOTALS_MAX)).is_some());
        assert_eq!(totals.text_bytes, 0);
    }

    #[test]
    fn totals_of_one_age_are_not_all_removed_and_long_texts_are_bounded() {
        let mut totals = RestoredTotals::default();
        for number in 0..3000 {
            totals.insert(&format!("{number:016384}"), 1.0, None, 7);
            assert!(totals.text_bytes <= TOTALS_BYTES_MAX);
        }
        assert!(totals.totals.len() >= 1000, "{}", totals.totals.len());
        totals.insert("nan", f64::NAN, None, 7);
        assert_eq!(totals.get("nan"), None);
    }
}
