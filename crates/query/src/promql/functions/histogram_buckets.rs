//! Quantiles and fractions of classic histograms, from the counts of their buckets.

/// A bucket with the number of observations up to its upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bucket {
    pub upper: f64,
    pub count: f64,
}

/// A quantile, and whether counts had to be corrected to compute it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BucketQuantile {
    pub value: f64,
    pub was_corrected: bool,
}

/// Differences between counts below this part are rounding errors.
const TOLERANCE: f64 = 1e-12;

/// Sorts buckets and merges those with the same bound. `None` without a bucket up to infinity.
fn complete(buckets: &mut Vec<Bucket>) -> Option<()> {
    buckets.sort_by(|a, b| a.upper.total_cmp(&b.upper));
    buckets.dedup_by(|later, earlier| {
        let is_same = later.upper == earlier.upper;
        if is_same {
            earlier.count += later.count;
        }
        is_same
    });
    let last = buckets.last()?;
    (last.upper == f64::INFINITY).then_some(())
}

/// Makes counts ascend; returns whether one of them descended by more than a rounding error.
fn make_monotonic(buckets: &mut [Bucket]) -> bool {
    let mut was_corrected = false;
    let mut previous = buckets[0].count;
    for bucket in &mut buckets[1..] {
        if bucket.count == previous {
            continue;
        }
        if is_almost_equal(previous, bucket.count) {
            bucket.count = previous;
        } else if bucket.count < previous {
            bucket.count = previous;
            was_corrected = true;
        } else {
            previous = bucket.count;
        }
    }
    was_corrected
}

fn is_almost_equal(a: f64, b: f64) -> bool {
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

/// Returns a quantile, interpolated linearly within its bucket.
pub(super) fn bucket_quantile(quantile: f64, buckets: &mut Vec<Bucket>) -> BucketQuantile {
    let exact = |value: f64| BucketQuantile {
        value,
        was_corrected: false,
    };
    if quantile.is_nan() {
        return exact(f64::NAN);
    }
    if quantile < 0.0 {
        return exact(f64::NEG_INFINITY);
    }
    if quantile > 1.0 {
        return exact(f64::INFINITY);
    }
    if complete(buckets).is_none() {
        return exact(f64::NAN);
    }
    let was_corrected = make_monotonic(buckets);
    let last = buckets.len() - 1;
    let observations = buckets[last].count;
    if last == 0 || observations == 0.0 {
        return exact(f64::NAN);
    }
    let rank = quantile * observations;
    let found = buckets[..last]
        .iter()
        .position(|bucket| bucket.count >= rank);
    let value = match found {
        // Nothing is known about values above the last finite bound.
        None => buckets[last - 1].upper,
        Some(0) if buckets[0].upper <= 0.0 => buckets[0].upper,
        Some(index) => {
            let (lower, below) = match index.checked_sub(1) {
                Some(before) => (buckets[before].upper, buckets[before].count),
                None => (0.0, 0.0),
            };
            let part = (rank - below) / (buckets[index].count - below);
            lower + (buckets[index].upper - lower) * part
        }
    };
    BucketQuantile {
        value,
        was_corrected,
    }
}

/// Returns the part of the observations between two values.
pub(super) fn bucket_fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if complete(buckets).is_none() {
        return f64::NAN;
    }
    let count = buckets[buckets.len() - 1].count;
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets).min(count) - rank_of(lower, buckets).min(count)) / count
}

/// Returns the number of observations up to a value, interpolated linearly within its bucket. A
/// lowest bucket with a positive bound begins at zero.
fn rank_of(value: f64, buckets: &[Bucket]) -> f64 {
    let mut below = 0.0;
    for (index, bucket) in buckets.iter().enumerate() {
        let from = match index.checked_sub(1) {
            Some(before) => buckets[before].upper,
            None if bucket.upper > 0.0 => 0.0,
            None => f64::NEG_INFINITY,
        };
        if from >= value {
            return below;
        }
        if bucket.upper > value {
            // A bucket without a finite bound cannot be divided.
            if from == f64::NEG_INFINITY {
                return bucket.count;
            }
            return below + (bucket.count - below) * (value - from) / (bucket.upper - from);
        }
        below = bucket.count;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn buckets(pairs: &[(f64, f64)]) -> Vec<Bucket> {
        let bucket = |&(upper, count): &(f64, f64)| Bucket { upper, count };
        pairs.iter().map(bucket).collect()
    }

    fn quantile(at: f64, pairs: &[(f64, f64)]) -> f64 {
        bucket_quantile(at, &mut buckets(pairs)).value
    }

    #[test]
    fn quantiles_are_interpolated_within_their_bucket() {
        let pairs = [(1.0, 10.0), (2.0, 30.0), (INF, 40.0)];
        // Rank 20 is the middle of the second bucket, 5 that of the first, which begins at zero.
        assert_eq!(quantile(0.5, &pairs), 1.5);
        assert_eq!(quantile(0.125, &pairs), 0.5);
        assert_eq!(quantile(0.9, &pairs), 2.0, "above the last finite bound");
        assert_eq!(quantile(0.1, &[(-1.0, 10.0), (INF, 20.0)]), -1.0);
        assert_eq!((quantile(-1.0, &pairs), quantile(2.0, &pairs)), (-INF, INF));
        assert!(quantile(f64::NAN, &pairs).is_nan());
        assert!(
            quantile(0.5, &[(1.0, 1.0)]).is_nan(),
            "no bucket up to infinity"
        );
        assert!(quantile(0.5, &[(INF, 1.0)]).is_nan(), "a single bucket");
        assert!(quantile(0.5, &[(1.0, 0.0), (INF, 0.0)]).is_nan());
        // Buckets with the same bound are added up: 20 of 40 observations up to 1.
        assert_eq!(
            quantile(0.25, &[(1.0, 10.0), (INF, 40.0), (1.0, 10.0)]),
            0.5
        );
    }

    #[test]
    fn counts_that_descend_are_corrected() {
        let corrected =
            |pairs: &[(f64, f64)]| bucket_quantile(0.5, &mut buckets(pairs)).was_corrected;
        assert!(corrected(&[(1.0, 10.0), (2.0, 5.0), (INF, 20.0)]));
        assert!(!corrected(&[(1.0, 10.0), (2.0, 10.0 - 1e-13), (INF, 20.0)]));
        assert_eq!(quantile(0.5, &[(1.0, 10.0), (2.0, 5.0), (INF, 20.0)]), 1.0);
    }

    #[test]
    fn fractions_are_interpolated_within_buckets() {
        let pairs = [(1.0, 10.0), (2.0, 30.0), (INF, 40.0)];
        let fraction = |lower, upper| bucket_fraction(lower, upper, &mut buckets(&pairs));
        assert_eq!(fraction(1.0, 2.0), 0.5);
        assert_eq!(fraction(0.5, 1.5), 15.0 / 40.0);
        assert_eq!(fraction(-INF, INF), 1.0);
        assert_eq!(fraction(2.0, INF), 0.25);
        assert_eq!(fraction(-INF, 2.0), 0.75);
        assert_eq!((fraction(2.0, 1.0), fraction(-5.0, 0.0)), (0.0, 0.0));
        assert!(fraction(f64::NAN, 1.0).is_nan());
        // Above the last finite bound nothing is known.
        assert_eq!(fraction(2.0, 3.0), 0.0);
    }
}
