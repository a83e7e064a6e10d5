//! Changes of a value within a window: `irate`, `idelta`, `changes`, `resets`.

use super::{Window, WindowResult};

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
