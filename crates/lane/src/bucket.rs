//! The buckets of histograms and timers: two per power of two, from a billionth to billions.
//!
//! Bucket `i` holds the values above the bound of the previous bucket, up to and including its own,
//! so that bounds mean the same as `le` in Prometheus. Zero and negative values are in the first
//! bucket.

/// The number of buckets; the last one has no upper bound.
pub const BUCKETS: usize = 128;

/// The exponent of the first bound: just under a nanosecond, if the values are seconds.
const FIRST_EXPONENT: i32 = -30;

/// An f64 has 52 bits of fraction; the highest one distinguishes the two halves of a power of two.
const HALF_SHIFT: u32 = 51;

const FIRST_HALF: u64 = ((1023 + FIRST_EXPONENT) as u64) << 1;

/// Returns the bucket of a value that is not NaN.
#[inline]
pub(crate) fn bucket_of(value: f64) -> usize {
    if value <= 0.0 {
        return 0;
    }
    // The bits of positive floats sort like their values. One less, so that a bound itself falls
    // into the bucket that it closes.
    let half = (value.to_bits() - 1) >> HALF_SHIFT;
    (half + 1)
        .saturating_sub(FIRST_HALF)
        .min(BUCKETS as u64 - 1) as usize
}

/// Returns the largest value in a bucket; infinity for the last one and beyond.
pub fn bucket_bound(bucket: usize) -> f64 {
    if bucket >= BUCKETS - 1 {
        return f64::INFINITY;
    }
    f64::from_bits((FIRST_HALF + bucket as u64) << HALF_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_the_bucket_that_it_closes() {
        assert_eq!(bucket_bound(0), 2f64.powi(-30));
        assert_eq!(bucket_bound(1), 1.5 * 2f64.powi(-30));
        assert_eq!(bucket_bound(60), 1.0);
        assert_eq!(bucket_bound(126), 2f64.powi(33));
        assert_eq!(bucket_bound(127), f64::INFINITY);
        for bucket in 0..BUCKETS - 1 {
            let bound = bucket_bound(bucket);
            assert_eq!(bucket_of(bound), bucket, "{bound}");
            assert_eq!(bucket_of(bound.next_up()), bucket + 1, "{bound}");
            assert_eq!(bucket_of(bound.next_down()), bucket, "{bound}");
        }
    }

    #[test]
    fn every_number_has_a_bucket() {
        for value in [0.0, -0.0, -1.0, f64::MIN, 5e-324, f64::NEG_INFINITY] {
            assert_eq!(bucket_of(value), 0, "{value}");
        }
        for value in [1e10, f64::MAX, f64::INFINITY] {
            assert_eq!(bucket_of(value), BUCKETS - 1, "{value}");
        }
    }
}
