//! Conversion of values to rates per second.

use pegel_metric::Millis;

/// How values are converted to a rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateOptions {
    /// A decrease is treated as an overflow: the counter restarts at zero after `counter_max`.
    pub counter: bool,
    pub counter_max: f64,
    /// A decrease that would yield a rate above this is a restart and yields 0; 0 disables the
    /// check.
    pub reset_value: f64,
    /// A decrease yields no rate at all.
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> RateOptions {
        RateOptions {
            counter: false,
            counter_max: i64::MAX as f64,
            reset_value: 0.0,
            drop_resets: false,
        }
    }
}

impl RateOptions {
    /// Appends the rates between consecutive points to `out`. The first point yields no rate.
    pub(crate) fn apply(&self, points: &[(Millis, f64)], out: &mut Vec<(Millis, f64)>) {
        for pair in points.windows(2) {
            let [(time_before, before), (time, value)] = [pair[0], pair[1]];
            let seconds = (time - time_before) as f64 / 1_000.0;
            let step = value - before;
            if !(self.counter && step < 0.0) {
                out.push((time, step / seconds));
            } else if !self.drop_resets {
                let rate = (self.counter_max - before + value) / seconds;
                let is_restart = self.reset_value > 0.0 && rate > self.reset_value;
                out.push((time, if is_restart { 0.0 } else { rate }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rate: RateOptions) -> Vec<(Millis, f64)> {
        let points = [
            (0, 10.0),
            (2_000, 30.0),
            (2_500, 32.0),
            (3_500, 2.0),
            (4_500, 12.0),
        ];
        let mut out = Vec::new();
        rate.apply(&points, &mut out);
        out
    }

    #[test]
    fn each_option_changes_what_a_step_down_gives() {
        // Steps: 20 in 2 s, 2 in 0.5 s, −30 in 1 s, 10 in 1 s.
        let expected = |down: Option<f64>| {
            let mut all = vec![(2_000, 10.0), (2_500, 4.0)];
            all.extend(down.map(|rate| (3_500, rate)));
            all.push((4_500, 10.0));
            all
        };
        let plain = RateOptions::default();
        assert_eq!(rates(plain), expected(Some(-30.0)));
        let counter = RateOptions {
            counter: true,
            ..plain
        };
        // 2^63 − 1 is 2^63 as a double; subtracting 30 is lost to rounding.
        assert_eq!(rates(counter), expected(Some(2f64.powi(63))));
        let max = RateOptions {
            counter_max: 40.0,
            ..counter
        };
        // 40 − 32 + 2.
        assert_eq!(rates(max), expected(Some(10.0)));
        assert_eq!(
            rates(RateOptions {
                reset_value: 9.0,
                ..max
            }),
            expected(Some(0.0))
        );
        assert_eq!(
            rates(RateOptions {
                reset_value: 10.0,
                ..max
            }),
            expected(Some(10.0))
        );
        assert_eq!(
            rates(RateOptions {
                drop_resets: true,
                ..max
            }),
            expected(None)
        );
        assert_eq!(
            rates(RateOptions {
                drop_resets: true,
                ..plain
            }),
            expected(Some(-30.0)),
            "only counters have resets"
        );
    }

    #[test]
    fn one_point_has_no_rate() {
        let mut out = Vec::new();
        RateOptions::default().apply(&[(0, 1.0)], &mut out);
        assert!(out.is_empty());
    }
}
