//! The partial result of one series: the reduction of its values on some nodes at one time.

use crate::QuantileSketch;

/// The reduction of a gauge's values, or of a counter's increases per second, over some nodes.
///
/// NaN is not counted. An infinite value makes the sum infinite, or NaN if both infinities occur.
/// Totals of counters that are not finite are not added.
#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    pub count: u64,
    pub sum: f64,
    /// Infinity if `count` is 0.
    pub min: f64,
    /// Minus infinity if `count` is 0.
    pub max: f64,
    /// The sum of a counter's totals; 0 for gauges.
    pub total: f64,
    pub sketch: QuantileSketch,
}

impl Default for Partial {
    fn default() -> Partial {
        Partial {
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            total: 0.0,
            sketch: QuantileSketch::new(),
        }
    }
}

impl Partial {
    pub fn of_gauge(value: f64) -> Partial {
        let mut partial = Partial::default();
        partial.add_value(value);
        partial
    }

    /// Without a rate (at the first tick and after a reset) the counter contributes only its total.
    pub fn of_counter(rate: Option<f64>, total: f64) -> Partial {
        let mut partial = Partial::default();
        partial.add_counter(rate, total);
        partial
    }

    /// Merges `of_gauge(value)` without creating it.
    pub(crate) fn add_value(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sketch.add(value);
    }

    /// Merges `of_counter(rate, total)` without creating it.
    pub(crate) fn add_counter(&mut self, rate: Option<f64>, total: f64) {
        if let Some(rate) = rate {
            self.add_value(rate);
        }
        if total.is_finite() {
            self.total += total;
        }
    }

    pub fn merge(&mut self, other: &Partial) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
        self.sketch.merge(&other.sketch);
    }

    /// Returns whether the fields fit together. Partial results of other nodes are checked before
    /// they are merged, since a NaN among them would spoil every sum above.
    pub fn is_consistent(&self) -> bool {
        let is_sum_possible = match self.count {
            0 => self.sum == 0.0 && self.min == f64::INFINITY && self.max == f64::NEG_INFINITY,
            _ if self.sum.is_nan() => self.min == f64::NEG_INFINITY && self.max == f64::INFINITY,
            _ => self.min <= self.max,
        };
        is_sum_possible && !self.total.is_nan() && self.sketch.count() == self.count
    }

    /// Returns NaN if `count` is 0.
    pub fn avg(&self) -> f64 {
        self.sum / self.count as f64
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::Rng;

    use super::*;

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    /// Everything is equal except the rounding of sums.
    fn assert_same(a: &Partial, b: &Partial) {
        assert_eq!((a.count, a.min, a.max), (b.count, b.min, b.max));
        assert!(is_close(a.sum, b.sum) && is_close(a.total, b.total));
        assert_eq!(a.sketch, b.sketch);
        for step in 0..=20 {
            let q = f64::from(step) / 20.0;
            assert_eq!(a.sketch.quantile(q), b.sketch.quantile(q));
        }
    }

    #[test]
    fn merging_does_not_depend_on_grouping_or_order() {
        let mut rng = Rng::new(1);
        for round in 0..50 {
            let mut leaves: Vec<Partial> = (0..1 + rng.below(700))
                .map(|_| {
                    let value = (rng.unit() - 0.3) * 10f64.powi(rng.between(-3..9) as i32);
                    match rng.below(3) {
                        0 => Partial::of_counter(None, value.abs()),
                        1 => Partial::of_counter(Some(value.abs()), value.abs() * 100.0),
                        _ => Partial::of_gauge(value),
                    }
                })
                .collect();
            let mut flat = Partial::default();
            leaves.iter().for_each(|leaf| flat.merge(leaf));
            // Merge random pairs until one is left; some pass through their bytes.
            while leaves.len() > 1 {
                let mut right = leaves.swap_remove(rng.below(leaves.len() as u64) as usize);
                if rng.chance(3) {
                    right.sketch = QuantileSketch::decode(&right.sketch.encode()).unwrap();
                }
                let left = rng.below(leaves.len() as u64) as usize;
                leaves[left].merge(&right);
            }
            assert_same(&flat, &leaves[0]);
            assert!(flat.is_consistent() && leaves[0].is_consistent());
            assert!(round > 0 || flat.count > 0);
        }
    }

    #[test]
    fn whole_numbers_are_summed_exactly() {
        let mut all = Partial::default();
        for total in [1000.0, 500.0, 7.0] {
            all.merge(&Partial::of_counter(None, total));
        }
        assert_eq!((all.total, all.count), (1507.0, 0));
        assert!(all.avg().is_nan());
    }

    #[test]
    fn nan_is_not_counted() {
        let mut partial = Partial::of_gauge(f64::NAN);
        assert_eq!(partial, Partial::default());
        partial.merge(&Partial::of_gauge(4.0));
        partial.merge(&Partial::of_counter(Some(f64::NAN), f64::NAN));
        partial.merge(&Partial::of_counter(None, f64::INFINITY));
        assert_eq!(partial, Partial::of_gauge(4.0));
        assert_eq!(partial.avg(), 4.0);
    }
    #[test]
    fn inconsistent_fields_are_recognised() {
        let valid = Partial::of_gauge(4.0);
        let changes: [fn(&mut Partial); 7] = [
            |partial| partial.sum = f64::NAN,
            |partial| partial.total = f64::NAN,
            |partial| partial.min = f64::NAN,
            |partial| partial.max = 3.9,
            |partial| partial.count = 2,
            |partial| partial.sketch = QuantileSketch::new(),
            |partial| (partial.count, partial.sketch) = (0, QuantileSketch::new()),
        ];
        assert!(valid.is_consistent() && Partial::default().is_consistent());
        for change in changes {
            let mut partial = valid.clone();
            change(&mut partial);
            assert!(!partial.is_consistent(), "{partial:?}");
        }
        let mut infinite = Partial::of_gauge(f64::INFINITY);
        infinite.merge(&Partial::of_gauge(f64::NEG_INFINITY));
        assert!(infinite.sum.is_nan() && infinite.is_consistent());
    }
}
