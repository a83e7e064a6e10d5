//! The values of this node's own series at the times of ticks, read from the store: the newest
//! sample at or before the time, unless the series ended or the sample is older than five minutes.
//!
//! A [`TickReader`] follows the present and reads each sample once. [`select_partials`] computes
//! the same for times in the past.

use std::collections::HashMap;
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
/// The memory of one query.
const QUERY_BYTES_MAX: usize = 64 << 20;
/// Series without a value for this time are forgotten.
const FORGET_AFTER: Millis = 2 * LOOKBACK;
/// The most ticks of one request for partial results.
const TICKS_MAX: i64 = 3600;

/// Returns whether a series is sent to parents: a series of this node that is not a reduction.
fn is_sent(series: &Series) -> bool {
    series.family().input != Input::Tree && !series.is_remote() && is_reducible_name(series.name())
}

/// Reduced series are left out while series are matched: collecting them first took most of the
/// time of a parent.
fn tick_query(start: Millis, end: Millis, sample_interval: Millis, time: Duration) -> RangeQuery {
    RangeQuery {
        bytes_max: QUERY_BYTES_MAX,
        deadline: Instant::now() + time,
        ticks: Some(TickCompletion {
            interval: sample_interval,
        }),
        ..RangeQuery::new(Selector::filter(is_sent), start, end, None)
    }
}

/// The newest sample of a series.
#[derive(Debug)]
pub(crate) struct CurrentSample {
    pub(crate) time: Millis,
    /// NaN with the mark of the end: the series ended.
    pub(crate) value: f64,
}

/// Reads the own series of this node tick by tick.
#[derive(Debug)]
pub(crate) struct TickReader {
    store: Store,
    sample_interval: Millis,
    samples: HashMap<Arc<Series>, CurrentSample>,
    /// Samples up to this time were read.
    read_until: Option<Millis>,
}

impl TickReader {
    pub(crate) fn new(store: Store, sample_interval: Duration) -> TickReader {
        TickReader {
            store,
            sample_interval: millis(sample_interval).max(1),
            samples: HashMap::new(),
            read_until: None,
        }
    }

    /// Reads the samples up to `time`. A part before the last time is read again: samples may be
    /// stored late, by a busy machine or with times in the past. Returns the last time if a value
    /// at that time was different from what is stored now.
    pub(crate) fn read(
        &mut self,
        time: Millis,
        interval: Millis,
    ) -> Result<Option<Millis>, QueryError> {
        let lookback = time - LOOKBACK;
        if self.read_until.is_some_and(|until| until > time) {
            // The clock was set back.
            self.read_until = None;
            self.samples.clear();
        }
        let start = match self.read_until {
            Some(until) => (until - interval + 1).max(lookback),
            None => lookback,
        };
        let limit = Duration::from_secs(10);
        let query = tick_query(start, time, self.sample_interval, limit);
        let (samples, read_until) = (&mut self.samples, self.read_until);
        let mut is_changed = false;
        self.store.query_columns(&query, &mut |series, column| {
            if let Some(until) = read_until {
                let known = samples.get(series);
                is_changed |= is_late_sample(known, until, column.times, column.values);
            }
            let (Some(&time), Some(&value)) = (column.times.last(), column.values.last()) else {
                return;
            };
            match samples.get_mut(series) {
                Some(sample) if sample.time <= time => *sample = CurrentSample { time, value },
                Some(_) => {}
                None => {
                    samples.insert(series.clone(), CurrentSample { time, value });
                }
            }
        })?;
        self.read_until = Some(time);
        samples.retain(|_, sample| time - sample.time <= FORGET_AFTER);
        Ok(read_until.filter(|_| is_changed))
    }

    /// Returns the values at the time that was read last.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&Arc<Series>, f64)> {
        let time = self.read_until.unwrap_or(Millis::MIN);
        let live =
            move |sample: &CurrentSample| !is_stale(sample.value) && time - sample.time <= LOOKBACK;
        let samples = self.samples.iter().filter(move |(_, sample)| live(sample));
        samples.map(|(series, sample)| (series, sample.value))
    }
}

/// Returns whether the value of a series at `until` is another one than was known.
fn is_late_sample(
    known: Option<&CurrentSample>,
    until: Millis,
    times: &[Millis],
    values: &[f64],
) -> bool {
    let after = times.partition_point(|time| *time <= until);
    let Some(newest) = after.checked_sub(1) else {
        return false;
    };
    let (time, value) = (times[newest], values[newest]);
    match known {
        Some(sample) => sample.time <= time && sample.value.to_bits() != value.to_bits(),
        None => !is_stale(value),
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
    let mut query = tick_query(before - LOOKBACK, last, interval, time_max);
    let requested = request_selector(request)?;
    query.selector = Selector::filter(move |series| is_sent(series) && requested.matches(series));
    let mut selected = Vec::new();
    store.query_columns(&query, &mut |series, column| {
        let family = series.family();
        let is_counter = family.kind == MetricKind::Counter;
        let mut rates = NodeCounterRates::new();
        let (mut times, mut cells) = (Vec::new(), Vec::new());
        let mut next = 0;
        for &tick in std::iter::once(&before).chain(&ticks) {
            while column.times.get(next).is_some_and(|time| *time <= tick) {
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
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_was_stored_late_changes_its_tick() {
        let known = CurrentSample {
            time: 900,
            value: 1.0,
        };
        let is_late =
            |known, times: &[Millis], values: &[f64]| is_late_sample(known, 1000, times, values);
        assert!(!is_late(Some(&known), &[900], &[1.0]), "read before");
        assert!(
            !is_late(Some(&known), &[900, 1500], &[1.0, 2.0]),
            "of the next tick"
        );
        assert!(is_late(Some(&known), &[900, 1000], &[1.0, 2.0]));
        assert!(
            !is_late(Some(&known), &[900, 1000], &[1.0, 1.0]),
            "the same value"
        );
        assert!(
            !is_late(Some(&known), &[800], &[7.0]),
            "older than what was read"
        );
        assert!(is_late(None, &[1000], &[1.0]), "a new series");
        assert!(!is_late(None, &[1500], &[1.0]));
        let ended = f64::from_bits(pegel_metric::STALE_NAN.to_bits());
        assert!(is_late(Some(&known), &[1000], &[ended]), "it ended");
        assert!(!is_late(None, &[1000], &[ended]));
    }
}
