//! The state of all streams: adds increases to totals and detects resets and series that end.
//!
//! A stream of increases (delta temporality) becomes a running total. Increases of several senders
//! to one series are added; a duplicate, with the same start and time, is not. A cumulative stream
//! is stored as it is; if its start changed and its value did not fall, a sample of zero is
//! inserted, so that readers see the reset.
//!
//! A request changes the state before its samples are stored. If storing fails,
//! [`OtlpStreams::roll_back`] restores the state, so that a retry adds every increase once.

use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::{MetricKind, Millis, Point, STALE_NAN, Series, is_stale};
use pegel_store::Store;
use pegel_wire::otlp::ExponentialBuckets;
use pegel_wire::otlp::buckets::{BucketError, add_buckets, exponential_buckets};

use super::expand::ValueMode;
use super::restored_totals::RestoredTotals;
use super::series_state::{DataPointTimes, OtlpSeriesState, SeriesByText};
use crate::compensated_sum::CompensatedSum;

/// A series without points for this long is forgotten; its total is in the store.
const UNUSED_MS: Millis = 10 * 60 * 1000;
/// The interval between searches for such series.
const SWEEP_MS: Millis = 60 * 1000;

/// A sample of a point whose series is known.
#[derive(Debug, Clone)]
pub(super) struct SeriesSample {
    pub series: Arc<Series>,
    pub value: f64,
    /// The bound or quantile; NaN for samples without one.
    pub bound: f64,
}

/// The series of a histogram or summary, found by its `_count`.
#[derive(Debug, Clone, Default)]
struct CompositeState {
    members: Vec<(f64, Arc<Series>)>,
    time: Millis,
    last_used: Millis,
    /// The total of the increases of an exponential histogram.
    exponential: Option<Box<ExponentialTotal>>,
}

/// The total of an exponential histogram's increases.
#[derive(Debug, Clone)]
pub(super) struct ExponentialTotal {
    pub buckets: ExponentialBuckets,
    pub count: u64,
    pub sum: Option<f64>,
    /// Whether this is the first point, so that its series begin at zero.
    pub is_first: bool,
}

/// A value to restore if the request fails.
#[derive(Debug)]
enum ReplacedState {
    Series(SeriesByText, Option<OtlpSeriesState>),
    Composite(SeriesByText, Option<CompositeState>),
}

/// The change of the series of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MembersChange {
    None,
    First,
    Changed,
}

#[derive(Debug, Default)]
pub(super) struct OtlpStreams {
    series: HashMap<SeriesByText, OtlpSeriesState>,
    composites: HashMap<SeriesByText, CompositeState>,
    /// Loaded with the first increase.
    restored: Option<RestoredTotals>,
    replaced: Vec<ReplacedState>,
    last_swept: Millis,
    /// The number of resets that were inserted since the agent started.
    pub resets: u64,
}

impl OtlpStreams {
    /// Begins a request. The store keeps samples for the time `retention`.
    pub(super) fn begin(&mut self, now: Millis, retention: Millis) {
        self.replaced.clear();
        if (now - self.last_swept).abs() >= SWEEP_MS {
            self.last_swept = now;
            self.remove_unused(now, retention);
        }
    }

    /// Forgets streams that are not active; totals of increases wait until they continue.
    fn remove_unused(&mut self, now: Millis, retention: Millis) {
        let is_unused = |last_used: Millis| now - last_used >= UNUSED_MS;
        if let Some(restored) = &mut self.restored {
            restored.remove_before(now.saturating_sub(retention));
            let paused = self.composites.values();
            let paused =
                paused.filter(|state| state.exponential.is_some() && is_unused(state.last_used));
            let members = paused.flat_map(|state| &state.members);
            let members =
                members.filter_map(|(_, series)| self.series.get_key_value(series.text()));
            let increases = self.series.iter();
            let increases = increases
                .filter(|(_, state)| state.windows.is_some() && is_unused(state.last_used));
            for (series, state) in members.chain(increases) {
                restored.insert(series.0.text(), state.total.value(), Some(state.time), now);
            }
        }
        self.series.retain(|_, state| !is_unused(state.last_used));
        self.composites
            .retain(|_, state| !is_unused(state.last_used));
    }

    /// Undoes what the request changed.
    pub(super) fn roll_back(&mut self) {
        for replaced in self.replaced.drain(..).rev() {
            match replaced {
                ReplacedState::Series(series, Some(state)) => {
                    drop(self.series.insert(series, state))
                }
                ReplacedState::Series(series, None) => drop(self.series.remove(&series)),
                ReplacedState::Composite(series, Some(state)) => {
                    self.composites.insert(series, state);
                }
                ReplacedState::Composite(series, None) => drop(self.composites.remove(&series)),
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// Loads the totals of an earlier agent, once.
    pub(super) fn load_totals(&mut self, store: &Store, now: Millis) {
        self.restored
            .get_or_insert_with(|| RestoredTotals::load(store, now));
    }

    /// Applies a point: adds its samples to `out`, with the samples of zero and stale markers that
    /// they require. Returns false if the point is a duplicate.
    pub(super) fn apply(
        &mut self,
        times: DataPointTimes,
        mode: ValueMode,
        samples: &[SeriesSample],
        now: Millis,
        out: &mut Vec<Point>,
    ) -> bool {
        let Some(first) = samples.first() else {
            return true;
        };
        if is_stale(first.value) {
            self.end(times, samples, out);
            return true;
        }
        if mode == ValueMode::Delta && self.state(&first.series, now).is_repeated(&times) {
            return false;
        }
        let change = match samples.len() {
            1 => MembersChange::None,
            _ => self.update_members(times, mode, samples, now, out),
        };
        match mode {
            ValueMode::Plain => out.extend(samples.iter().map(|sample| sample.at(times.time))),
            ValueMode::Cumulative => {
                for sample in samples {
                    self.add_cumulative(times, sample, now, out);
                }
            }
            ValueMode::Delta => {
                let starts_again = match change {
                    MembersChange::None => false,
                    MembersChange::Changed => true,
                    MembersChange::First => !self.has_all_totals(samples),
                };
                for sample in samples {
                    self.add_increase(times, sample, starts_again, now, out);
                }
            }
        }
        true
    }

    /// Adds the increase of an exponential histogram to its total; `None` if it is a duplicate.
    /// `sum_series` is the series of its sum, if the increase has one.
    pub(super) fn add_exponential(
        &mut self,
        times: DataPointTimes,
        (count_series, sum_series): (&Arc<Series>, Option<&Arc<Series>>),
        increase: &ExponentialTotal,
        now: Millis,
    ) -> Result<Option<ExponentialTotal>, BucketError> {
        let key = SeriesByText(count_series.clone());
        let known = self.composites.get(count_series.text()).cloned();
        let known_total = match &known {
            Some(state) => state.exponential.as_deref().cloned(),
            None => {
                let zero_threshold = increase.buckets.zero_threshold;
                self.earlier_total((count_series, sum_series), zero_threshold, now)
            }
        };
        let empty = ExponentialBuckets::empty();
        let buckets = known_total.as_ref().map_or(&empty, |total| &total.buckets);
        let buckets = add_buckets(buckets, &increase.buckets)?;
        let count = known_total.as_ref().map_or(0, |total| total.count);
        let count = count
            .checked_add(increase.count)
            .ok_or(BucketError::Count)?;
        let total = ExponentialTotal {
            buckets,
            count,
            sum: match &known_total {
                None => increase.sum,
                Some(total) => total.sum.zip(increase.sum).map(|(a, b)| a + b),
            },
            is_first: known_total.is_none(),
        };
        if self.state(count_series, now).is_repeated(&times) {
            return Ok(None);
        }
        let mut state = known.clone().unwrap_or_default();
        state.exponential = Some(Box::new(total.clone()));
        state.last_used = now;
        self.replaced
            .push(ReplacedState::Composite(key.clone(), known));
        self.composites.insert(key, state);
        Ok(Some(total))
    }

    /// Returns the total of an exponential histogram from before the start of the agent or before a
    /// pause, as its series have it; `None` if it has no values.
    fn earlier_total(
        &mut self,
        (count_series, sum_series): (&Arc<Series>, Option<&Arc<Series>>),
        zero_threshold: f64,
        now: Millis,
    ) -> Option<ExponentialTotal> {
        let count = self.state(count_series, now).total.value() as u64;
        let restored = self.restored.as_mut().filter(|_| count > 0)?;
        let mut buckets = restored.buckets_of(count_series);
        for (_, below) in &mut buckets {
            *below = (*below).min(count);
        }
        let sum = sum_series.and_then(|series| {
            let known = self.series.get(series.text());
            let known = known.map(|state| state.total.value());
            known.or_else(|| Some(restored.get(series.text())?.value))
        });
        Some(ExponentialTotal {
            buckets: exponential_buckets(&buckets, zero_threshold),
            count,
            sum: Some(sum.unwrap_or_default()),
            is_first: false,
        })
    }

    /// Returns the state of a series, which the request may change.
    fn state(&mut self, series: &Arc<Series>, now: Millis) -> &mut OtlpSeriesState {
        let key = SeriesByText(series.clone());
        let known = self.series.get(series.text()).cloned();
        let is_new = known.is_none();
        self.replaced
            .push(ReplacedState::Series(key.clone(), known));
        let restored = match (is_new, &mut self.restored) {
            (true, Some(restored)) => restored.take(series.text()),
            _ => None,
        };
        if let Some(total) = restored {
            // If the request fails, the total is restored from here.
            let restored =
                OtlpSeriesState::new(total.value, total.time.unwrap_or(Millis::MIN), now);
            self.replaced.pop();
            let known = Some(restored.clone());
            self.replaced
                .push(ReplacedState::Series(key.clone(), known));
            self.series.insert(key.clone(), restored);
        }
        let state = self.series.entry(key);
        let state = state.or_insert_with(|| OtlpSeriesState::new(0.0, Millis::MIN, now));
        state.last_used = now;
        state
    }

    fn add_increase(
        &mut self,
        times: DataPointTimes,
        sample: &SeriesSample,
        starts_again: bool,
        now: Millis,
        out: &mut Vec<Point>,
    ) {
        let state = self.state(&sample.series, now);
        if starts_again {
            state.total = CompensatedSum::default();
            if let Some(at) = times.zero_time(state.time) {
                out.push(sample.zero_at(at));
            }
        }
        // An increase that would overflow to infinity is ignored.
        state.total = state.total.plus(sample.value).unwrap_or(state.total);
        // Increases of several senders are not in order of time; the total must not decrease.
        state.time = state.time.max(times.time);
        state.windows.get_or_insert_default();
        let value = state.total.value();
        out.push(
            SeriesSample {
                value,
                ..sample.clone()
            }
            .at(state.time),
        );
    }

    fn add_cumulative(
        &mut self,
        times: DataPointTimes,
        sample: &SeriesSample,
        now: Millis,
        out: &mut Vec<Point>,
    ) {
        out.push(sample.at(times.time));
        if sample.series.family().kind != MetricKind::Counter || is_stale(sample.value) {
            return;
        }
        let is_known = self.series.contains_key(sample.series.text());
        let state = self.state(&sample.series, now);
        let is_reset = state.start_nanos > 0 && times.start_nanos > state.start_nanos;
        let hides_reset = is_known && is_reset && sample.value >= state.total.value();
        let zero = times.zero_time(state.time).filter(|_| hides_reset);
        if times.time >= state.time {
            state.total = CompensatedSum::of(sample.value);
            state.time = times.time;
            state.start_nanos = times.start_nanos;
        }
        if let Some(at) = zero {
            self.resets += 1;
            out.push(sample.zero_at(at));
        }
    }

    /// Records which series a histogram or summary has. Those that it no longer has end.
    fn update_members(
        &mut self,
        times: DataPointTimes,
        mode: ValueMode,
        samples: &[SeriesSample],
        now: Millis,
        out: &mut Vec<Point>,
    ) -> MembersChange {
        let key = SeriesByText(samples[0].series.clone());
        if let Some(state) = self.composites.get_mut(key.0.text())
            && state.has_members(samples)
        {
            state.time = state.time.max(times.time);
            state.last_used = now;
            return MembersChange::None;
        }
        let known = self.composites.get(key.0.text()).cloned();
        let before = known.clone().unwrap_or_default();
        if mode == ValueMode::Cumulative {
            self.add_earlier_values(times, &before, samples, out);
        }
        for (_, series) in &before.members {
            let is_left = samples.iter().any(|sample| sample.is_of(series));
            if !is_left && before.time < times.time {
                out.push(Point {
                    series: series.clone(),
                    time: times.time,
                    value: STALE_NAN,
                });
            }
        }
        let change = match before.members.is_empty() {
            true => MembersChange::First,
            false => MembersChange::Changed,
        };
        let members = samples
            .iter()
            .map(|sample| (sample.bound, sample.series.clone()));
        let state = CompositeState {
            members: members.collect(),
            time: times.time.max(before.time),
            last_used: now,
            exponential: before.exponential,
        };
        self.replaced
            .push(ReplacedState::Composite(key.clone(), known));
        self.composites.insert(key, state);
        change
    }

    /// Adds samples at the time of the last point for buckets that are new, with the count of the
    /// bucket below. Without them, `rate()` would miss the first increase of a new bucket.
    fn add_earlier_values(
        &self,
        times: DataPointTimes,
        before: &CompositeState,
        samples: &[SeriesSample],
        out: &mut Vec<Point>,
    ) {
        let count = self.series.get(samples[0].series.text());
        let goes_on = count.is_some_and(|state| state.start_nanos == times.start_nanos);
        if before.members.is_empty() || !goes_on || before.time >= times.time {
            return;
        }
        let new = samples.iter().filter(|sample| {
            let is_known = before
                .members
                .iter()
                .any(|(_, series)| sample.is_of(series));
            sample.bound.is_finite()
                && sample.series.family().kind == MetricKind::Counter
                && !is_known
        });
        for sample in new {
            let below = before
                .members
                .iter()
                .filter(|(bound, _)| *bound < sample.bound);
            let below = below.max_by(|(a, _), (b, _)| a.total_cmp(b));
            let below = below.and_then(|(_, series)| self.series.get(series.text()));
            let value = below.map_or(0.0, |state| state.total.value());
            out.push(
                SeriesSample {
                    value,
                    ..sample.clone()
                }
                .at(before.time),
            );
        }
    }

    /// Returns whether the totals of all series are known, or of none. If only some are, the bounds
    /// of the histogram changed while no agent ran.
    fn has_all_totals(&self, samples: &[SeriesSample]) -> bool {
        let restored = self.restored.as_ref();
        let is_known = |sample: &SeriesSample| {
            let text = sample.series.text();
            let state = self.series.get(text);
            state.is_some_and(|state| state.time > Millis::MIN)
                || restored.is_some_and(|restored| restored.get(text).is_some())
        };
        let known = samples.iter().filter(|sample| is_known(sample)).count();
        known == 0 || known == samples.len()
    }

    /// Ends the series of a point, and all members of its histogram.
    fn end(&mut self, times: DataPointTimes, samples: &[SeriesSample], out: &mut Vec<Point>) {
        let key = SeriesByText(samples[0].series.clone());
        if let Some(known) = self.composites.remove(&key) {
            let members = known.members.iter();
            let others =
                members.filter(|(_, series)| !samples.iter().any(|sample| sample.is_of(series)));
            out.extend(others.map(|(_, series)| Point {
                series: series.clone(),
                time: times.time,
                value: STALE_NAN,
            }));
            // The total of increases goes on, as that of a sum does.
            if known.exponential.is_some() {
                let ended = CompositeState {
                    members: Vec::new(),
                    ..known.clone()
                };
                self.composites.insert(key.clone(), ended);
            }
            self.replaced
                .push(ReplacedState::Composite(key, Some(known)));
        }
        for sample in samples {
            out.push(
                SeriesSample {
                    value: STALE_NAN,
                    ..sample.clone()
                }
                .at(times.time),
            );
        }
    }
}

impl CompositeState {
    fn has_members(&self, samples: &[SeriesSample]) -> bool {
        self.members.len() == samples.len() && { self.members.iter().zip(samples) }
            .all(|((_, series), sample)| sample.is_of(series))
    }
}

impl SeriesSample {
    fn is_of(&self, series: &Arc<Series>) -> bool {
        Arc::ptr_eq(&self.series, series) || self.series.text() == series.text()
    }

    fn at(&self, time: Millis) -> Point {
        Point {
            series: self.series.clone(),
            time,
            value: self.value,
        }
    }

    pub(super) fn zero_at(&self, time: Millis) -> Point {
        Point {
            value: 0.0,
            ..self.at(time)
        }
    }
}
