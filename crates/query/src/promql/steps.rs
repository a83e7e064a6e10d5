//! The times at which an expression is evaluated.

use pegel_metric::Millis;
use pegel_metric::quantity::group_thousands;

use super::error::PromqlError;

/// Evenly spaced evaluation times; there is at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub start: Millis,
    pub interval: Millis,
    pub count: usize,
}

impl Steps {
    pub(crate) fn single(time: Millis) -> Steps {
        Steps {
            start: time,
            interval: 1,
            count: 1,
        }
    }

    /// Returns the steps of a range query.
    pub(crate) fn of_range(
        start: Millis,
        end: Millis,
        step: Millis,
        points_max: usize,
    ) -> Result<Steps, PromqlError> {
        if end < start {
            return Err(PromqlError::bad_data(
                "invalid parameter \"end\": end timestamp must not be before start time",
            ));
        }
        if step <= 0 {
            return Err(PromqlError::bad_data(
                "invalid parameter \"step\": zero or negative query resolution step widths are \
                 not accepted. Try a positive integer",
            ));
        }
        let intervals = i128::from(end) - i128::from(start);
        let intervals = usize::try_from(intervals / i128::from(step)).unwrap_or(usize::MAX);
        if intervals > points_max {
            let points_max = group_thousands(&points_max.to_string(), ',');
            return Err(PromqlError::bad_data(format!(
                "exceeded maximum resolution of {points_max} points per timeseries. Try \
                 decreasing the query resolution (?step=XX)"
            )));
        }
        Ok(Steps {
            start,
            interval: step,
            count: intervals + 1,
        })
    }

    /// Returns the multiples of `interval` in `(after, last]`; `None` if there are none.
    pub(crate) fn aligned(after: Millis, last: Millis, interval: Millis) -> Option<Steps> {
        let first = after
            .div_euclid(interval)
            .saturating_add(1)
            .checked_mul(interval)?;
        if first > last {
            return None;
        }
        let count = last.saturating_sub(first) / interval + 1;
        Some(Steps {
            start: first,
            interval,
            count: usize::try_from(count).unwrap_or(usize::MAX),
        })
    }

    pub(crate) fn time(&self, index: usize) -> Millis {
        self.start
            .saturating_add((index as Millis).saturating_mul(self.interval))
    }

    pub(crate) fn last(&self) -> Millis {
        self.time(self.count - 1)
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = Millis> + '_ {
        (0..self.count).map(|index| self.time(index))
    }
}

/// The modifiers `@` and `offset`: which time a selector reads at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TimeShift {
    pub at: Option<Millis>,
    /// Positive is earlier.
    pub offset: Millis,
}

impl TimeShift {
    pub(crate) fn apply(self, step: Millis) -> Millis {
        self.at.unwrap_or(step).saturating_sub(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_both_ends() {
        let steps = Steps::of_range(1_000, 3_500, 1_000, 10).expect("valid");
        assert_eq!(steps.times().collect::<Vec<_>>(), [1_000, 2_000, 3_000]);
        assert_eq!(steps.last(), 3_000);
        assert!(Steps::of_range(0, 11_000, 1, 11_000).is_ok());
        assert!(Steps::of_range(0, 11_001, 1, 11_000).is_err());
        assert!(Steps::of_range(Millis::MIN, Millis::MAX, 1, 11_000).is_err());
        assert!(Steps::of_range(1, 0, 1, 10).is_err());
        assert!(Steps::of_range(0, 1, 0, 10).is_err());
    }

    #[test]
    fn aligned_steps_exclude_their_left_end() {
        let aligned =
            |after, last| Steps::aligned(after, last, 10).map(|steps| (steps.start, steps.count));
        assert_eq!(aligned(0, 30), Some((10, 3)));
        assert_eq!(aligned(-1, 30), Some((0, 4)));
        assert_eq!(aligned(-25, -5), Some((-20, 2)));
        assert_eq!(aligned(21, 29), None);
    }
}
