//! Percentiles of sorted values.

/// The method for estimating a percentile from sorted values (numbered as by Hyndman and Fan).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PercentileEstimate {
    /// Interpolated at p × (n + 1): the meaning of `p99`.
    Exact,
    /// The value whose rank is nearest to p × n.
    R3,
    /// Interpolated at 1 + p × (n − 1).
    R7,
}

/// Returns a percentile, given in tenths of a percent, of sorted values.
pub(super) fn percentile(sorted: &[f64], tenths: u16, estimate: PercentileEstimate) -> f64 {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return f64::NAN;
    };
    let (part, count) = (f64::from(tenths) / 1_000.0, sorted.len() as f64);
    // Counted from 1.
    let position = match estimate {
        PercentileEstimate::Exact => part * (count + 1.0),
        PercentileEstimate::R3 => (part * count).round_ties_even(),
        PercentileEstimate::R7 => 1.0 + part * (count - 1.0),
    };
    if position < 1.0 {
        return *first;
    }
    if position >= count {
        return *last;
    }
    let below = sorted[position as usize - 1];
    let above = sorted[position as usize];
    below + position.fract() * (above - below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_ways_differ_as_they_should() {
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        for (tenths, exact, r3, r7) in [
            // 0.5 × 11 = 5.5; 0.5 × 10 = 5; 1 + 0.5 × 9 = 5.5.
            (500, 5.5, 5.0, 5.5),
            // 0.75 × 11 = 8.25; 7.5 is as near to 8 as to 7, and 8 is even; 1 + 0.75 × 9 = 7.75.
            (750, 8.25, 8.0, 7.75),
            // 0.9 × 11 = 9.9; 9; 1 + 0.9 × 9 = 9.1.
            (900, 9.9, 9.0, 9.1),
            // 10.89 lies beyond the last; 9.9 is near to 10; 1 + 0.99 × 9 = 9.91.
            (990, 10.0, 10.0, 9.91),
        ] {
            for (estimate, expected) in [
                (PercentileEstimate::Exact, exact),
                (PercentileEstimate::R3, r3),
                (PercentileEstimate::R7, r7),
            ] {
                let found = percentile(&ten, tenths, estimate);
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{tenths} {estimate:?}: {found}"
                );
            }
        }
        assert_eq!(percentile(&[1.0, 3.0], 500, PercentileEstimate::Exact), 2.0);
        assert_eq!(percentile(&[1.0, 3.0], 500, PercentileEstimate::R3), 1.0);
    }
}
