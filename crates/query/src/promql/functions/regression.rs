//! Linear regression and smoothing: `deriv`, `predict_linear`, `double_exponential_smoothing`.

use pegel_metric::Millis;

use super::super::error::PromqlError;
use super::over_time::KahanSum;
use super::{Window, WindowResult};

pub(super) fn deriv(window: &Window<'_>, _: &[f64]) -> WindowResult {
    if window.len() < 2 {
        return Ok(None);
    }
    // Times relative to the first sample are small, which keeps the sums exact.
    Ok(Some(linear_regression(window, window.times[0]).0))
}

pub(super) fn predict_linear(window: &Window<'_>, parameters: &[f64]) -> WindowResult {
    if window.len() < 2 {
        return Ok(None);
    }
    let (slope, intercept) = linear_regression(window, window.step_time);
    Ok(Some(slope * parameters[0] + intercept))
}

/// Returns the slope per second and the value at a time of the line with the least squares.
fn linear_regression(window: &Window<'_>, time: Millis) -> (f64, f64) {
    let first = window.values[0];
    if window.values.iter().all(|value| *value == first) {
        if first.is_infinite() {
            return (f64::NAN, f64::NAN);
        }
        return (0.0, first);
    }
    let [mut sum_x, mut sum_y, mut sum_xy, mut sum_xx] = [KahanSum::default(); 4];
    for (sampled, y) in window.times.iter().zip(window.values) {
        let x = (sampled - time) as f64 / 1_000.0;
        sum_x.add(x);
        sum_y.add(*y);
        sum_xy.add(x * y);
        sum_xx.add(x * x);
    }
    let count = window.len() as f64;
    let [x, y, xy, xx] = [sum_x, sum_y, sum_xy, sum_xx].map(|sum| sum.raw_total());
    let covariance = xy - x * y / count;
    let variance = xx - x * x / count;
    let slope = covariance / variance;
    (slope, y / count - slope * x / count)
}

/// Smooths values and their trend, the older the less. Also known as Holt's linear method.
pub(super) fn double_exponential_smoothing(
    window: &Window<'_>,
    parameters: &[f64],
) -> WindowResult {
    let (smoothing, trend_factor) = (parameters[0], parameters[1]);
    for (name, factor) in [("smoothing", smoothing), ("trend", trend_factor)] {
        if factor <= 0.0 || factor >= 1.0 {
            let symbol = &name[..1];
            return Err(PromqlError::execution(format!(
                "invalid {name} factor. Expected: 0 < {symbol}f < 1, got: {factor:.6}"
            )));
        }
    }
    if window.len() < 2 {
        return Ok(None);
    }
    let mut smoothed = window.values[0];
    let mut trend = window.values[1] - window.values[0];
    let mut previous = 0.0;
    for (index, value) in window.values.iter().enumerate().skip(1) {
        if index > 1 {
            trend = trend_factor * (smoothed - previous) + (1.0 - trend_factor) * trend;
        }
        let next = smoothing * value + (1.0 - smoothing) * (smoothed + trend);
        previous = std::mem::replace(&mut smoothed, next);
    }
    Ok(Some(smoothed))
}
