use super::Aggregator;

/// What has to be kept of the values so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    count: u32,
    /// The sum, the extreme, the product, the mean or the first, as the aggregator needs it.
    main: f64,
    /// The sum of squared distances from the mean, or the last.
    side: f64,
}

impl Tally {
    #[inline]
    pub fn add(&mut self, aggregator: Aggregator, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count += 1;
        if self.count == 1 {
            self.main = match aggregator {
                Aggregator::SquareSum => value * value,
                _ => value,
            };
            self.side = match aggregator {
                Aggregator::Diff => value,
                _ => 0.0,
            };
            return;
        }
        match aggregator {
            Aggregator::Sum | Aggregator::Zimsum | Aggregator::Pfsum | Aggregator::Avg => {
                self.main += value;
            }
            Aggregator::Min | Aggregator::Mimmin => self.main = self.main.min(value),
            Aggregator::Max | Aggregator::Mimmax => self.main = self.main.max(value),
            Aggregator::Dev => {
                let distance = value - self.main;
                self.main += distance / f64::from(self.count);
                self.side += distance * (value - self.main);
            }
            Aggregator::Diff => self.side = value,
            Aggregator::Last => self.main = value,
            Aggregator::Mult => self.main *= value,
            Aggregator::SquareSum => self.main += value * value,
            Aggregator::Count
            | Aggregator::First
            | Aggregator::Median
            | Aggregator::None
            | Aggregator::Percentile(..) => {}
        }
    }

    pub fn result(&self, aggregator: Aggregator) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        match aggregator {
            Aggregator::Avg => self.main / f64::from(self.count),
            Aggregator::Count => f64::from(self.count),
            Aggregator::Dev => (self.side / f64::from(self.count)).sqrt(),
            Aggregator::Diff => self.side - self.main,
            _ => self.main,
        }
    }
}
