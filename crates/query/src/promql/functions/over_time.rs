//! Aggregations over the samples of a window, and the sums and quantiles that aggregations over
//! series share with them.

use super::{Window, WindowResult};

/// A sum that carries the rounding error of its additions along (Kahan and Neumaier).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KahanSum {
    pub sum: f64,
    pub compensation: f64,
}

impl KahanSum {
    pub(crate) fn new(sum: f64, compensation: f64) -> KahanSum {
        KahanSum { sum, compensation }
    }

    pub(crate) fn add(&mut self, value: f64) {
        let total = self.sum + value;
        if total.is_infinite() {
            self.compensation = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.compensation += (self.sum - total) + value;
        } else {
            self.compensation += (value - total) + self.sum;
        }
        self.sum = total;
    }

    /// Returns the sum; an infinite one is not compensated.
    pub(crate) fn total(self) -> f64 {
        if self.sum.is_infinite() {
            self.sum
        } else {
            self.raw_total()
        }
    }

    pub(crate) fn raw_total(self) -> f64 {
        self.sum + self.compensation
    }
}

/// A mean that does not overflow: it sums while the sum is finite and then continues with the mean.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunningMean {
    /// The sum, or the mean if `is_incremental`.
    pub sum: KahanSum,
    pub count: f64,
    pub is_incremental: bool,
}

impl RunningMean {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.count == 1.0 {
            self.sum = KahanSum::new(value, 0.0);
            return;
        }
        if !self.is_incremental {
            let mut sum = self.sum;
            sum.add(value);
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.is_incremental = true;
            let before = self.count - 1.0;
            self.sum = KahanSum::new(self.sum.sum / before, self.sum.compensation / before);
        }
        let part = (self.count - 1.0) / self.count;
        self.sum = KahanSum::new(part * self.sum.sum, part * self.sum.compensation);
        self.sum.add(value / self.count);
    }

    pub(crate) fn mean(self) -> f64 {
        if self.is_incremental {
            return self.sum.raw_total();
        }
        self.sum.sum / self.count + self.sum.compensation / self.count
    }
}

/// Returns a quantile of values, interpolated between its neighbours. Sorts the values; NaN comes
/// first.
pub(crate) fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    if values.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    values.sort_unstable_by(|a, b| b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b)));
    let rank = quantile * (values.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[below] * (1.0 - weight) + values[above] * weight
}

pub(super) fn avg(window: &Window<'_>, _: &[f64]) -> WindowResult {
    let mut mean = RunningMean::default();
    window.values.iter().for_each(|value| mean.add(*value));
    Ok(Some(mean.mean()))
}

pub(super) fn sum(window: &Window<'_>, _: &[f64]) -> WindowResult {
    let mut sum = KahanSum::default();
    window.values.iter().for_each(|value| sum.add(*value));
    Ok(Some(sum.total()))
}

pub(super) fn count(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(window.len() as f64))
}

pub(super) fn present(_: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(1.0))
}

pub(super) fn first(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(window.values.first().copied())
}

pub(super) fn last(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(window.values.last().copied())
}

/// Returns the index of the value that wins against all before it; NaN loses.
fn best(window: &Window<'_>, wins: fn(f64, f64) -> bool) -> usize {
    let mut best = 0;
    for (index, value) in window.values.iter().enumerate() {
        if wins(*value, window.values[best]) || window.values[best].is_nan() {
            best = index;
        }
    }
    best
}

pub(super) fn max(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(window.values[best(window, |new, old| new > old)]))
}

pub(super) fn min(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(window.values[best(window, |new, old| new < old)]))
}

fn time_of(window: &Window<'_>, index: usize) -> WindowResult {
    Ok(Some(window.times[index] as f64 / 1_000.0))
}

pub(super) fn time_of_first(window: &Window<'_>, _: &[f64]) -> WindowResult {
    time_of(window, 0)
}

pub(super) fn time_of_last(window: &Window<'_>, _: &[f64]) -> WindowResult {
    time_of(window, window.len() - 1)
}

/// Returns the last time of the largest value.
pub(super) fn time_of_max(window: &Window<'_>, _: &[f64]) -> WindowResult {
    time_of(window, best(window, |new, old| new >= old))
}

pub(super) fn time_of_min(window: &Window<'_>, _: &[f64]) -> WindowResult {
    time_of(window, best(window, |new, old| new <= old))
}

fn variance(window: &Window<'_>) -> f64 {
    let (mut mean, mut squares) = (KahanSum::default(), KahanSum::default());
    for (index, value) in window.values.iter().enumerate() {
        let distance = value - mean.raw_total();
        mean.add(distance / (index + 1) as f64);
        squares.add(distance * (value - mean.raw_total()));
    }
    squares.raw_total() / window.len() as f64
}

pub(super) fn stdvar(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(variance(window)))
}

pub(super) fn stddev(window: &Window<'_>, _: &[f64]) -> WindowResult {
    Ok(Some(variance(window).sqrt()))
}

pub(super) fn quantile_of_window(window: &Window<'_>, parameters: &[f64]) -> WindowResult {
    Ok(Some(quantile(&mut window.values.to_vec(), parameters[0])))
}

/// Returns the median distance from the median.
pub(super) fn mad(window: &Window<'_>, _: &[f64]) -> WindowResult {
    let mut values = window.values.to_vec();
    let median = quantile(&mut values, 0.5);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    Ok(Some(quantile(&mut distances, 0.5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_small_values_beside_large_ones() {
        let mut sum = KahanSum::default();
        [1e16, 1.0, 1.0, -1e16]
            .iter()
            .for_each(|value| sum.add(*value));
        assert_eq!(sum.total(), 2.0);
        let mut infinite = KahanSum::default();
        [f64::MAX, f64::MAX]
            .iter()
            .for_each(|value| infinite.add(*value));
        assert_eq!(infinite.total(), f64::INFINITY);
    }

    #[test]
    fn a_mean_does_not_overflow() {
        let mean = |values: &[f64]| {
            let mut mean = RunningMean::default();
            values.iter().for_each(|value| mean.add(*value));
            mean.mean()
        };
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(mean(&[f64::MAX, f64::MAX]), f64::MAX);
        assert_eq!(mean(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(mean(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn quantiles_interpolate() {
        let of = |values: &[f64], at| quantile(&mut values.to_vec(), at);
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!((of(&[1.0, 2.0], 0.0), of(&[1.0, 2.0], 1.0)), (1.0, 2.0));
        assert_eq!(of(&[1.0], -0.1), f64::NEG_INFINITY);
        assert_eq!(of(&[1.0], 1.1), f64::INFINITY);
        assert!(of(&[], 0.5).is_nan() && of(&[1.0], f64::NAN).is_nan());
        assert!(of(&[f64::NAN, 5.0], 0.0).is_nan(), "NaN is the smallest");
        assert_eq!(of(&[5.0, f64::NAN], 1.0), 5.0);
    }
}
