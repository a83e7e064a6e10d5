//! Changes of a value within a window: `rate`, `increase`, `delta`, `irate`, `idelta`, `changes`,
//! `resets`.

use super::{Window, WindowResult};

pub(super) fn rate(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(extrapolated_change(window, true, window.seconds()))
}

pub(super) fn increase(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(extrapolated_change(window, true, 1.0))
}

pub(super) fn delta(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(extrapolated_change(window, false, 1.0))
}

/// Returns the change between the first and the last sample, extrapolated to the ends of the
/// window, per `seconds_per_unit`. Where samples are so far from an end that the series probably
/// begins or ends inside of the window, half of the distance between samples is added instead. A
/// counter is not extrapolated to before the time at which it would have been zero. The order of
/// the operations is that of Prometheus: the last bit can decide whether the next function sees a
/// reset.
fn extrapolated_change(
    window: &Window<'_>,
    is_counter: bool,
    seconds_per_unit: f64,
) -> Option<f64> {
    if window.len() < 2 {
        return None;
    }
    let last = window.len() - 1;
    let mut change = window.values[last] - window.values[0];
    if is_counter {
        for index in window.resets {
            change += window.values[index - window.resets_offset - 1];
        }
    }
    let seconds = |from: i64, to: i64| (to - from) as f64 / 1_000.0;
    let sampled = seconds(window.times[0], window.times[last]);
    let between = sampled / last as f64;
    let threshold = between * 1.1;
    let mut to_start = seconds(window.start, window.times[0]);
    let mut to_end = seconds(window.times[last], window.end);
    if to_start >= threshold {
        to_start = between / 2.0;
    }
    if is_counter && change > 0.0 && window.values[0] >= 0.0 {
        let to_zero = sampled * (window.values[0] / change);
        to_start = to_start.min(to_zero);
    }
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    let factor = (sampled + to_start + to_end) / sampled / seconds_per_unit;
    Some(change * factor)
}

pub(super) fn irate(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(last_change(window, true))
}

pub(super) fn idelta(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(last_change(window, false))
}

/// Returns the change between the last two samples, per second for a rate.
fn last_change(window: &Window<'_>, is_rate: bool) -> Option<f64> {
    let last = window.len() - 1;
    let before = last.checked_sub(1)?;
    let (old, new) = (window.values[before], window.values[last]);
    let millis = window.times[last] - window.times[before];
    if millis == 0 {
        return None;
    }
    // After a reset a counter has counted from zero.
    let change = if is_rate && new < old { new } else { new - old };
    Some(if is_rate {
        change / (millis as f64 / 1_000.0)
    } else {
        change
    })
}

/// Counts how often the value changed.
pub(super) fn changes(window: &Window<'_>, _: &[f64]) -> WindowResult {
    let pairs = window.values.windows(2);
    let changed =
        pairs.filter(|pair| pair[0] != pair[1] && !(pair[0].is_nan() && pair[1].is_nan()));
    Ok(Some(changed.count() as f64))
}

/// Counts how often the value fell.
pub(super) fn resets(window: &Window<'_>, _: &[f64]) -> WindowResult {
    let pairs = window.values.windows(2);
    Ok(Some(pairs.filter(|pair| pair[1] < pair[0]).count() as f64))
}
