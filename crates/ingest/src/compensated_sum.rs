//! Compensated sums: the rounding error of one f64 is kept in a second one.

/// The sum of all values added, to about 106 bits: a counter at 2^53 still counts single steps, and
/// ten million times 0.1 is a million.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct CompensatedSum {
    high: f64,
    low: f64,
}

impl CompensatedSum {
    pub(crate) fn of(value: f64) -> CompensatedSum {
        CompensatedSum {
            high: value,
            low: 0.0,
        }
    }

    /// Returns the new sum, or `None` if it would not be finite.
    #[inline]
    #[must_use]
    pub(crate) fn plus(self, value: f64) -> Option<CompensatedSum> {
        // Knuth's two-sum: `error` is exactly the rounding error of `high`.
        let high = self.high + value;
        let part = high - self.high;
        let error = (self.high - (high - part)) + (value - part);
        let low = self.low + error;
        let sum = high + low;
        sum.is_finite().then_some(CompensatedSum {
            high: sum,
            low: low - (sum - high),
        })
    }

    pub(crate) fn value(self) -> f64 {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: impl Iterator<Item = f64>) -> f64 {
        values
            .fold(CompensatedSum::default(), |sum, value| {
                sum.plus(value).expect("finite")
            })
            .value()
    }

    #[test]
    fn single_steps_count_beyond_what_one_number_holds() {
        let large = 2_f64.powi(53);
        assert_eq!(
            sum(std::iter::once(large).chain(std::iter::repeat_n(1.0, 1000))),
            large + 1000.0
        );
        let huge = 2_f64.powi(80);
        assert_eq!(sum([huge, 1.0, -huge].into_iter()), 1.0);
    }

    #[test]
    fn tenths_add_up() {
        assert_eq!(sum(std::iter::repeat_n(0.1, 10_000_000)), 1_000_000.0);
        assert_ne!((0..10_000_000).fold(0.0, |sum, _| sum + 0.1), 1_000_000.0);
    }

    #[test]
    fn a_sum_stays_finite() {
        let full = CompensatedSum::of(f64::MAX);
        assert_eq!(full.plus(f64::MAX), None);
        assert_eq!(full.plus(-f64::MAX).map(CompensatedSum::value), Some(0.0));
    }
}
