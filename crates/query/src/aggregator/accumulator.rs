//! Incremental aggregation.

use super::Aggregator;

/// The state of an incremental aggregator. One layout serves all of them, so that a grid is a plain
/// array.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Accumulator {
    count: u32,
    /// The sum, extreme, product, mean or first value, depending on the aggregator.
    primary: f64,
    /// The sum of squared distances from the mean, or the last value.
    secondary: f64,
}

impl Accumulator {
    #[inline]
    pub(crate) fn add(&mut self, aggregator: Aggregator, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count += 1;
        if self.count == 1 {
            self.primary = match aggregator {
                Aggregator::SquareSum => value * value,
                _ => value,
            };
            self.secondary = match aggregator {
                Aggregator::Diff => value,
                _ => 0.0,
            };
            return;
        }
        match aggregator {
            Aggregator::Sum | Aggregator::Zimsum | Aggregator::Pfsum | Aggregator::Avg => {
                self.primary += value;
            }
            Aggregator::Min | Aggregator::Mimmin => self.primary = self.primary.min(value),
            Aggregator::Max | Aggregator::Mimmax => self.primary = self.primary.max(value),
            Aggregator::Dev => {
                let distance = value - self.primary;
                self.primary += distance / f64::from(self.count);
                self.secondary += distance * (value - self.primary);
            }
            Aggregator::Diff => self.secondary = value,
            Aggregator::Last => self.primary = value,
            Aggregator::Mult => self.primary *= value,
            Aggregator::SquareSum => self.primary += value * value,
            Aggregator::Count
            | Aggregator::First
            | Aggregator::Median
            | Aggregator::None
            | Aggregator::Percentile(..) => {}
        }
    }

    pub(crate) fn result(&self, aggregator: Aggregator) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        match aggregator {
            Aggregator::Avg => self.primary / f64::from(self.count),
            Aggregator::Count => f64::from(self.count),
            Aggregator::Dev => (self.secondary / f64::from(self.count)).sqrt(),
            Aggregator::Diff => self.secondary - self.primary,
            _ => self.primary,
        }
    }
}
