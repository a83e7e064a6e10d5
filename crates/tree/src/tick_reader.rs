//! The values of this node's own series at the times of ticks, read from the store: the newest
//! sample at or before the time, unless the series ended or the sample is older than five minutes.
//! A sample that was due at the time of a tick may have been read a little later, and has that time
//! then: samples up to a tenth of the interval after the tick belong to it.
//!
//! A [`TickReader`] follows the present. [`select_partials`] computes the same for times in the
//! past.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pegel_metric::{Input, MetricKind, Millis, Selector, Series, is_stale};
use pegel_reduction::{NodeCounterRates, Partial, is_reducible_name};
use pegel_store::{QueryError, RangeQuery, Store, TickCompletion};
use pegel_tree_protocol::{
    Kind, PartialCell, SelectRequest, SelectedSeries, encode_partials, encode_times,
};

/// The age up to which the last sample of a series is its value.
const LOOKBACK: Millis = 5 * 60 * 1000;
/// Samples belong to a tick up to this part of an interval after it: a tenth.
const READING_PART: Millis = 10;
/// The memory of one query.
const QUERY_BYTES_MAX: usize = 64 << 20;
/// The most ticks of one request for partial results.
const TICKS_MAX: i64 = 3600;

/// Returns the time of the last sample that belongs to a tick.
fn samples_end(tick: Millis, interval: Millis) -> Millis {
    tick.saturating_add(interval / READING_PART)
}

/// Returns whether a series is sent to parents: a series of this node that is not a reduction.
fn is_sent(series: &Series) -> bool {
    series.family().input != Input::Tree && !series.is_remote() && is_reducible_name(series.name())
}

fn tick_query(
    selector: Selector,
    (start, end): (Millis, Millis),
    sample_interval: Millis,
    time: Duration,
) -> RangeQuery {
    RangeQuery {
        bytes_max: QUERY_BYTES_MAX,
        deadline: Instant::now() + time,
        ticks: Some(TickCompletion {
            interval: sample_interval,
        }),
        ..RangeQuery::new(selector, start, end, None)
    }
}

/// Reads the own series of this node tick by tick.
///
/// The current values of the store are those of the tick unless they changed since, which is so if
/// samples are taken between the tick and its reading. Only the samples of such series are read.
#[derive(Debug)]
pub(crate) struct TickReader {
    store: Store,
    sample_interval: Millis,
    values: Vec<(Arc<Series>, f64)>,
}

impl TickReader {
    pub(crate) fn new(store: Store, sample_interval: Duration) -> TickReader {
        TickReader {
            store,
            sample_interval: millis(sample_interval).max(1),
            values: Vec::new(),
        }
    }

    /// Reads the values at `time`.
    pub(crate) fn read(&mut self, time: Millis, interval: Millis) -> Result<(), QueryError> {
        self.values.clear();
        let end = samples_end(time, interval);
        let mut changed_after = HashSet::new();
        let values = &mut self.values;
        self.store
            .latest_without(Input::Tree, &mut |series, latest| {
                if !is_sent(series) || time - latest.last_sampled > LOOKBACK {
                    return;
                }
                if latest.last_changed <= end {
                    values.push((series.clone(), latest.value));
                } else {
                    changed_after.insert(series.clone());
                }
            });
        // Most of them have samples shortly before the time.
        let shortly = interval.max(2 * self.sample_interval).min(LOOKBACK);
        for lookback in [shortly, LOOKBACK] {
            if !changed_after.is_empty() {
                changed_after = self.read_before(end, lookback, changed_after)?;
            }
        }
        Ok(())
    }

    /// Reads the samples of some series up to `end`. Returns those that have none.
    fn read_before(
        &mut self,
        end: Millis,
        lookback: Millis,
        wanted: HashSet<Arc<Series>>,
    ) -> Result<HashSet<Arc<Series>>, QueryError> {
        let limit = Duration::from_secs(10);
        let mut left = wanted.clone();
        let is_wanted =
            move |series: &Series| series.family().input != Input::Tree && wanted.contains(series);
        let selector = Selector::filter(is_wanted);
        let query = tick_query(selector, (end - lookback, end), self.sample_interval, limit);
        let values = &mut self.values;
        self.store.query_columns(&query, &mut |series, column| {
            left.remove(series);
            if let Some(&value) = column.values.last()
                && !is_stale(value)
            {
                values.push((series.clone(), value));
            }
        })?;
        Ok(left)
    }

    /// Returns the values at the time that was read last.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Arc<Series>, f64)> {
        self.values.iter().map(|(series, value)| (series, *value))
    }
}

pub(crate) fn millis(duration: Duration) -> Millis {
    duration.as_millis().try_into().unwrap_or(Millis::MAX)
}

/// Returns the kind as the protocol has it.
pub(crate) fn wire_kind(kind: MetricKind) -> Kind {
    match kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Unknown => Kind::Unknown,
    }
}

pub(crate) fn metric_kind(kind: i32) -> MetricKind {
    match Kind::try_from(kind) {
        Ok(Kind::Counter) => MetricKind::Counter,
        Ok(Kind::Gauge) => MetricKind::Gauge,
        Ok(Kind::Unknown) | Err(_) => MetricKind::Unknown,
    }
}

pub(crate) fn encode_partial(partial: &Partial) -> PartialCell {
    PartialCell {
        count: partial.count,
        sum: partial.sum,
        min: partial.min,
        max: partial.max,
        total: partial.total,
        sketch: Bytes::from(partial.sketch.encode()),
    }
}

/// Why partial results cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum SelectPartialsError {
    #[error(
        "a request for partial results needs a step of 1 ms or more and at most {TICKS_MAX} steps"
    )]
    Range,
    #[error("a request for partial results cannot have matchers; use selectors")]
    Matchers,
    #[error("selector {0}")]
    Selector(String),
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Returns the ticks of a request: the multiples of its step between start and end.
pub(crate) fn requested_ticks(request: &SelectRequest) -> Result<Vec<Millis>, SelectPartialsError> {
    let step = request.step_ms;
    if step < 1 || request.end_ms < request.start_ms {
        return Err(SelectPartialsError::Range);
    }
    let first = request.start_ms.div_euclid(step);
    let first = first + i64::from(request.start_ms.rem_euclid(step) != 0);
    let last = request.end_ms.div_euclid(step);
    if last.saturating_sub(first) >= TICKS_MAX || last.checked_mul(step).is_none() {
        return Err(SelectPartialsError::Range);
    }
    Ok((first..=last).map(|tick| tick * step).collect())
}

fn request_selector(request: &SelectRequest) -> Result<Selector, SelectPartialsError> {
    if !request.matchers.is_empty() {
        return Err(SelectPartialsError::Matchers);
    }
    if request.selectors.is_empty() {
        return Ok(Selector::all());
    }
    let parsed = request.selectors.iter().map(|text| Selector::parse(text));
    let parsed = parsed.collect::<Result<Vec<_>, _>>();
    let parsed = parsed.map_err(|error| SelectPartialsError::Selector(error.to_string()))?;
    Ok(Selector::any(parsed))
}

/// Computes the partial results of this node's own series, without the nodes below it.
pub fn select_partials(
    store: &Store,
    sample_interval: Duration,
    request: &SelectRequest,
    time_max: Duration,
) -> Result<Vec<SelectedSeries>, SelectPartialsError> {
    let ticks = requested_ticks(request)?;
    let Some((&first, &last)) = ticks.first().zip(ticks.last()) else {
        return Ok(Vec::new());
    };
    // One tick more, for the rates at the first.
    let before = first - request.step_ms;
    let interval = millis(sample_interval).max(1);
    let end = samples_end(last, request.step_ms);
    let requested = request_selector(request)?;
    let selector = Selector::filter(move |series| is_sent(series) && requested.matches(series));
    let query = tick_query(selector, (before - LOOKBACK, end), interval, time_max);
    let mut selected = Vec::new();
    store.query_columns(&query, &mut |series, column| {
        let family = series.family();
        let is_counter = family.kind == MetricKind::Counter;
        let mut rates = NodeCounterRates::new();
        let (mut times, mut cells) = (Vec::new(), Vec::new());
        let mut next = 0;
        for &tick in std::iter::once(&before).chain(&ticks) {
            let end = samples_end(tick, request.step_ms);
            while column.times.get(next).is_some_and(|time| *time <= end) {
                next += 1;
            }
            let Some(newest) = next.checked_sub(1) else {
                continue;
            };
            let (time, value) = (column.times[newest], column.values[newest]);
            if is_stale(value) || tick - time > LOOKBACK {
                continue;
            }
            let partial = if is_counter {
                Partial::of_counter(rates.rate(0, tick, value, 0), value)
            } else {
                Partial::of_gauge(value)
            };
            if tick >= first {
                times.push(tick);
                cells.push(encode_partial(&partial));
            }
        }
        if !times.is_empty() {
            selected.push(SelectedSeries {
                text: series.text().to_owned(),
                kind: wire_kind(family.kind) as u32,
                unit: family.unit.clone().into_owned(),
                help: family.help.clone().into_owned(),
                times: encode_times(&times).into(),
                partials: encode_partials(&cells).into(),
                ..SelectedSeries::default()
            });
        }
    })?;
    Ok(selected)
}

#[cfg(test)]
mod tests;
