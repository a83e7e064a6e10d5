//! Converts the buckets of histograms to those of Prometheus' classic histograms: upper bounds with
//! the numbers of all values up to them. Pure functions, which `pegel-ingest` calls.
//!
//! Exponential histograms have buckets whose bounds grow by a factor of `2^(2^-scale)`. They are
//! merged to at most [`SCALE_MAX`], four buckets for each power of two, and to at most
//! [`CLASSIC_MAX`] buckets. The bounds of a coarser scale are bounds of every finer one, so counts
//! stay exact; a quantile that is interpolated within a bucket is at most 19 % off at this scale.

use std::collections::BTreeMap;

use super::{BucketRun, ExponentialBuckets, PointValue};

/// The finest scale that is kept.
pub const SCALE_MAX: i32 = 2;
/// The most classic buckets of one exponential histogram; the scale is reduced for wider ones.
pub const CLASSIC_MAX: usize = 80;
/// The limit of scales. Beyond it, all numbers are in one bucket or every number has its own.
const SCALE_LIMIT: i32 = 32;
/// `2^(n/4)`. Constants, because the bounds become labels and must be the same on every machine.
const QUARTERS: [f64; 4] = [
    1.0,
    1.189_207_115_002_721,
    std::f64::consts::SQRT_2,
    1.681_792_830_507_429,
];

/// An upper bound, and the number of values up to it.
pub type ClassicBucket = (f64, u64);

/// The reason why a histogram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    #[error("a histogram must have one bucket more than bounds, or no buckets and no bounds")]
    Length,
    #[error("the bounds of a histogram must increase")]
    Bounds,
    #[error("the bucket counts of a histogram exceed its count")]
    Count,
    #[error("the scale of an exponential histogram must be from -{SCALE_LIMIT} to {SCALE_LIMIT}")]
    Scale,
}

/// Returns the buckets of a histogram with explicit bounds, without the last one (`+Inf`), which
/// equals the count.
pub fn explicit_buckets(value: &PointValue) -> Result<Vec<ClassicBucket>, BucketError> {
    let (bounds, counts) = (&value.explicit_bounds, &value.bucket_counts);
    if counts.is_empty() && bounds.is_empty() {
        return Ok(Vec::new());
    }
    if counts.len() != bounds.len() + 1 {
        return Err(BucketError::Length);
    }
    let mut buckets = Vec::with_capacity(bounds.len());
    let mut total = RunningCount::default();
    for (bound, count) in bounds.iter().zip(counts) {
        total.add(*count)?;
        let is_increasing = buckets.last().is_none_or(|(last, _)| last < bound);
        if bound.is_nan() || *bound == f64::NEG_INFINITY || !is_increasing {
            return Err(BucketError::Bounds);
        }
        // Some senders add a last bound of infinity: its bucket is left out, too.
        if *bound < f64::INFINITY {
            buckets.push((*bound, total.0));
        }
    }
    total.add(counts.last().copied().unwrap_or_default())?;
    total.check(value.count)?;
    Ok(buckets)
}

#[derive(Debug, Default)]
struct RunningCount(u64);

impl RunningCount {
    fn add(&mut self, count: u64) -> Result<(), BucketError> {
        self.0 = self.0.checked_add(count).ok_or(BucketError::Count)?;
        Ok(())
    }

    fn check(&self, count: u64) -> Result<(), BucketError> {
        (self.0 <= count).then_some(()).ok_or(BucketError::Count)
    }
}

/// Returns the classic buckets of an exponential histogram that [`merge_scale`] or [`add_buckets`]
/// returned.
pub fn classic_buckets(
    merged: &ExponentialBuckets,
    count: u64,
) -> Result<Vec<ClassicBucket>, BucketError> {
    let mut buckets: Vec<ClassicBucket> = Vec::new();
    let mut total = RunningCount::default();
    let mut push = |bound: f64, count: u64| {
        total.add(count)?;
        match buckets.last_mut() {
            Some((last, known)) if *last >= bound => *known = total.0,
            _ if bound.is_finite() => buckets.push((bound, total.0)),
            _ => {}
        }
        Ok(())
    };
    let negative = &merged.negative;
    for (at, count) in negative.counts.iter().enumerate().rev() {
        // Bucket i holds the values from -base^(i+1) to -base^i.
        let index = i64::from(negative.offset) + at as i64 - 1;
        push(-upper_bound(index, merged.scale), *count)?;
    }
    if merged.zero_count > 0 || !negative.counts.is_empty() {
        push(merged.zero_threshold.max(0.0), merged.zero_count)?;
    }
    for (at, count) in merged.positive.counts.iter().enumerate() {
        let index = i64::from(merged.positive.offset) + at as i64;
        push(upper_bound(index, merged.scale), *count)?;
    }
    total.check(count)?;
    Ok(buckets)
}

/// Returns a histogram from the classic buckets, sorted by bound, that [`classic_buckets`] made of
/// an earlier one. The counts at these bounds are the same; between them, values are counted as
/// close to the upper bound as [`SCALE_MAX`] permits. `zero_threshold` is the bound of the zero
/// bucket, which may also be that of another bucket.
pub fn exponential_buckets(classic: &[ClassicBucket], zero_threshold: f64) -> ExponentialBuckets {
    let mut buckets = ExponentialBuckets::empty();
    let (mut positive, mut negative) = (BTreeMap::new(), BTreeMap::new());
    let mut below = 0;
    for (bound, count) in classic {
        let added = count.saturating_sub(below);
        below = below.max(*count);
        let index = bound_index(bound.abs()).filter(|_| *bound != zero_threshold);
        match index {
            Some(index) if *bound > 0.0 => {
                positive.insert(index, added);
            }
            Some(index) => {
                // Bucket i of negative values ends at -base^i.
                negative.insert(index + 1, added);
            }
            None => {
                buckets.zero_count = buckets.zero_count.saturating_add(added);
                buckets.zero_threshold = buckets.zero_threshold.max(*bound);
            }
        }
    }
    buckets.positive = run_of(&positive);
    buckets.negative = run_of(&negative);
    buckets
}

/// Returns the index of the bucket of [`SCALE_MAX`] with this upper bound; `None` if there is none.
fn bound_index(bound: f64) -> Option<i32> {
    if !bound.is_finite() || bound <= 0.0 {
        return None;
    }
    // Exact for all bounds: they are at least 19 % apart.
    let index = (bound.log2() * 4.0).round() as i32 - 1;
    (upper_bound(i64::from(index), SCALE_MAX) == bound).then_some(index)
}

fn run_of(counts: &BTreeMap<i32, u64>) -> BucketRun {
    let (Some((first, _)), Some((last, _))) = (counts.first_key_value(), counts.last_key_value())
    else {
        return BucketRun::default();
    };
    let counts = (*first..=*last).map(|index| counts.get(&index).copied().unwrap_or_default());
    BucketRun {
        offset: *first,
        counts: counts.collect(),
    }
}

/// Returns the same histogram with a scale of at most [`SCALE_MAX`] and at most [`CLASSIC_MAX`]
/// buckets.
pub fn merge_scale(buckets: &ExponentialBuckets) -> Result<ExponentialBuckets, BucketError> {
    add_buckets(&ExponentialBuckets::empty(), buckets)
}

/// Returns the sum of two histograms, with the same limits.
pub fn add_buckets(
    known: &ExponentialBuckets,
    added: &ExponentialBuckets,
) -> Result<ExponentialBuckets, BucketError> {
    let is_valid = |scale: i32| (-SCALE_LIMIT..=SCALE_LIMIT).contains(&scale);
    if !is_valid(added.scale) || !added.zero_threshold.is_finite() {
        return Err(BucketError::Scale);
    }
    let positive = [
        populated(&known.positive, known.scale),
        populated(&added.positive, added.scale),
    ];
    let negative = [
        populated(&known.negative, known.scale),
        populated(&added.negative, added.scale),
    ];
    let mut scale = known.scale.min(added.scale).min(SCALE_MAX);
    while width(&positive, scale) + width(&negative, scale) > CLASSIC_MAX as i64 {
        scale -= 1;
    }
    Ok(ExponentialBuckets {
        scale,
        zero_count: known
            .zero_count
            .checked_add(added.zero_count)
            .ok_or(BucketError::Count)?,
        zero_threshold: known.zero_threshold.max(added.zero_threshold),
        positive: sum_runs(&positive, scale)?,
        negative: sum_runs(&negative, scale)?,
    })
}

impl ExponentialBuckets {
    /// Returns a histogram without values. A sum with it has the scale of the other histogram.
    pub fn empty() -> ExponentialBuckets {
        ExponentialBuckets {
            scale: SCALE_MAX,
            ..ExponentialBuckets::default()
        }
    }
}

/// The buckets of a run from the first to the last that is not empty, with their scale.
struct PopulatedRun<'a> {
    first: i64,
    counts: &'a [u64],
    scale: i32,
}

fn populated(run: &BucketRun, scale: i32) -> PopulatedRun<'_> {
    let is_used = |count: &u64| *count > 0;
    let start = run.counts.iter().position(is_used);
    let end = run.counts.iter().rposition(is_used);
    let (start, counts) = match (start, end) {
        (Some(start), Some(end)) => (start, &run.counts[start..=end]),
        _ => (0, &[][..]),
    };
    PopulatedRun {
        first: i64::from(run.offset) + start as i64,
        counts,
        scale,
    }
}

impl PopulatedRun<'_> {
    /// Returns the index of a bucket at a coarser scale.
    fn index_at(&self, at: usize, scale: i32) -> i64 {
        let shift = (self.scale - scale).clamp(0, 63);
        (self.first + at as i64) >> shift
    }

    /// Returns the first and the last index at a coarser scale.
    fn range(&self, scale: i32) -> Option<(i64, i64)> {
        let last = self.counts.len().checked_sub(1)?;
        Some((self.index_at(0, scale), self.index_at(last, scale)))
    }
}

/// Returns the first and the last index of all runs.
fn union(runs: &[PopulatedRun<'_>], scale: i32) -> Option<(i64, i64)> {
    let ranges = runs.iter().filter_map(|run| run.range(scale));
    ranges.reduce(|(a, b), (first, last)| (a.min(first), b.max(last)))
}

fn width(runs: &[PopulatedRun<'_>], scale: i32) -> i64 {
    union(runs, scale).map_or(0, |(first, last)| last - first + 1)
}

fn sum_runs(runs: &[PopulatedRun<'_>], scale: i32) -> Result<BucketRun, BucketError> {
    let Some((first, last)) = union(runs, scale) else {
        return Ok(BucketRun::default());
    };
    let offset = i32::try_from(first).map_err(|_| BucketError::Scale)?;
    let mut counts = vec![0_u64; (last - first + 1) as usize];
    for run in runs {
        for (at, count) in run.counts.iter().enumerate() {
            let sum = &mut counts[(run.index_at(at, scale) - first) as usize];
            *sum = sum.checked_add(*count).ok_or(BucketError::Count)?;
        }
    }
    Ok(BucketRun { offset, counts })
}

/// Returns the upper bound of a bucket: `2^((index + 1) / 2^scale)`.
fn upper_bound(index: i64, scale: i32) -> f64 {
    let quarters = match scale {
        ..=0 => (index + 1).saturating_mul(4_i64.saturating_mul(1 << (-scale).min(40))),
        1 => (index + 1).saturating_mul(2),
        _ => index + 1,
    };
    let power = i32::try_from(quarters.div_euclid(4));
    let whole = match power {
        // In two steps: 2^1074 overflows, its inverse does not.
        Ok(power) if power < -1022 => 2_f64.powi(-1022) * 2_f64.powi((power + 1022).max(-60)),
        Ok(power) => 2_f64.powi(power.min(1024)),
        Err(_) if quarters < 0 => 0.0,
        Err(_) => f64::INFINITY,
    };
    whole * QUARTERS[quarters.rem_euclid(4) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(offset: i32, counts: &[u64]) -> BucketRun {
        BucketRun {
            offset,
            counts: counts.to_vec(),
        }
    }

    /// Sorts values into buckets by the definition in the data model of OpenTelemetry.
    fn histogram(scale: i32, values: &[f64]) -> ExponentialBuckets {
        let mut buckets = ExponentialBuckets {
            scale,
            ..ExponentialBuckets::default()
        };
        let index = |value: f64| (value.log2() * f64::from(scale).exp2()).ceil() as i32 - 1;
        for sign in [1.0, -1.0] {
            let indices: Vec<i32> = values
                .iter()
                .filter(|value| **value * sign > 0.0)
                .map(|value| index(value.abs()))
                .collect();
            let Some(first) = indices.iter().min() else {
                continue;
            };
            let len = indices.iter().max().expect("not empty") - first + 1;
            let mut counts = vec![0; len as usize];
            for index in &indices {
                counts[(index - first) as usize] += 1;
            }
            let side = match sign > 0.0 {
                true => &mut buckets.positive,
                false => &mut buckets.negative,
            };
            *side = run(*first, &counts);
        }
        buckets.zero_count = values.iter().filter(|value| **value == 0.0).count() as u64;
        buckets
    }

    #[test]
    fn bounds_are_powers_of_two_and_their_roots() {
        for (index, scale, expected) in [
            (0, 0, 2.0),
            (-1, 0, 1.0),
            (-2, 0, 0.5),
            (3, 1, 4.0),
            (0, 1, std::f64::consts::SQRT_2),
            (7, 2, 4.0),
            (0, 2, 1.189_207_115_002_721),
            (0, -1, 4.0),
            (0, -2, 16.0),
            (1023, 0, f64::INFINITY),
            (-1075, 0, 5e-324),
            (i64::from(i32::MAX), -10, f64::INFINITY),
            (i64::from(i32::MIN), -10, 0.0),
        ] {
            assert_eq!(upper_bound(index, scale), expected, "{index} at {scale}");
        }
    }

    #[test]
    fn counts_at_the_bounds_are_exact() {
        let values = [
            0.001, 0.0099, 0.35, 1.0, 1.5, 3.0, 100.0, 101.0, 0.0, -2.5, -0.1,
        ];
        for scale in [-1, 0, 2, 5, 20] {
            let merged = merge_scale(&histogram(scale, &values)).expect("valid");
            assert!(merged.scale <= SCALE_MAX.min(scale));
            let classic = classic_buckets(&merged, values.len() as u64).expect("valid");
            assert!(classic.len() <= CLASSIC_MAX);
            for (bound, count) in &classic {
                let expected = values.iter().filter(|value| *value <= bound).count();
                assert_eq!(*count, expected as u64, "up to {bound} at {scale}");
            }
            let last = classic.last().expect("buckets");
            assert!(last.0 >= 101.0 && last.1 == values.len() as u64);
        }
    }

    #[test]
    fn sums_of_histograms_are_those_of_all_values() {
        let (a, b) = ([0.01, 5.0, 7.0], [1e-9, 5.0, 1e9]);
        let sum = add_buckets(
            &merge_scale(&histogram(3, &a)).expect("valid"),
            &histogram(1, &b),
        );
        let sum = sum.expect("valid");
        let both: Vec<f64> = a.into_iter().chain(b).collect();
        for (bound, count) in classic_buckets(&sum, 6).expect("valid") {
            let expected = both.iter().filter(|value| **value <= bound).count();
            assert_eq!(count, expected as u64, "{bound}");
        }
        assert!(sum.positive.counts.len() <= CLASSIC_MAX);
    }

    #[test]
    fn classic_buckets_become_a_histogram_with_the_same_counts() {
        let values = [
            0.001, 0.0099, 0.35, 1.0, 1.5, 3.0, 100.0, 101.0, 0.0, -2.5, -0.1, -1e9,
        ];
        for scale in [-3, -1, 0, 2, 5] {
            for values in [&values[..], &values[..8], &values[2..3], &values[9..], &[]] {
                for zero_threshold in [0.0, 1e-7, 2_f64.powi(-128)] {
                    let count = values.len() as u64;
                    let mut merged = merge_scale(&histogram(scale, values)).expect("valid");
                    merged.zero_threshold = zero_threshold;
                    let classic = classic_buckets(&merged, count).expect("valid");
                    let read = exponential_buckets(&classic, zero_threshold);
                    let again = merge_scale(&read).expect("valid");
                    let again = classic_buckets(&again, count).expect("valid");
                    for bucket in &classic {
                        assert!(again.contains(bucket), "{bucket:?} in {again:?} at {scale}");
                    }
                }
            }
        }
        // Values that were not made by the conversion.
        let foreign = [(-0.3, 2), (-0.0, 1), (0.3, 5), (f64::MAX, 9)];
        let read = exponential_buckets(&foreign, 0.0);
        assert_eq!((read.zero_count, read.zero_threshold), (9, f64::MAX));
    }

    #[test]
    fn hostile_histograms_are_refused_or_small() {
        let wide = ExponentialBuckets {
            scale: 20,
            positive: run(i32::MAX, &[1]),
            negative: run(i32::MIN, &[1]),
            ..ExponentialBuckets::default()
        };
        let merged = merge_scale(&wide).expect("valid");
        assert_eq!(merged.positive.counts, [1]);
        assert!(classic_buckets(&merged, 2).is_ok());
        let wider = add_buckets(
            &merged,
            &ExponentialBuckets {
                positive: run(i32::MIN, &[1]),
                ..wide.clone()
            },
        );
        assert!(wider.expect("valid").positive.counts.len() <= CLASSIC_MAX);
        for scale in [33, -33, i32::MAX, i32::MIN] {
            let histogram = ExponentialBuckets {
                scale,
                ..ExponentialBuckets::default()
            };
            assert_eq!(merge_scale(&histogram), Err(BucketError::Scale));
        }
        let many = ExponentialBuckets {
            positive: run(0, &[u64::MAX, 1]),
            ..ExponentialBuckets::default()
        };
        let merged = merge_scale(&many).expect("different buckets");
        assert_eq!(classic_buckets(&merged, 3), Err(BucketError::Count));
        assert_eq!(
            classic_buckets(&merge_scale(&histogram(0, &[1.0])).expect("valid"), 0),
            Err(BucketError::Count)
        );
    }

    #[test]
    fn explicit_bounds_are_checked() {
        let value = |bounds: &[f64], counts: &[u64], count| PointValue {
            explicit_bounds: bounds.to_vec(),
            bucket_counts: counts.to_vec(),
            count,
            ..PointValue::default()
        };
        let buckets = explicit_buckets(&value(&[1.0, 5.0], &[1, 2, 3], 6));
        assert_eq!(buckets, Ok(vec![(1.0, 1), (5.0, 3)]));
        assert_eq!(explicit_buckets(&value(&[], &[], 7)), Ok(Vec::new()));
        let infinite = value(&[1.0, f64::INFINITY], &[1, 2, 0], 3);
        assert_eq!(explicit_buckets(&infinite), Ok(vec![(1.0, 1)]));
        for (bounds, counts, error) in [
            (&[1.0][..], &[1][..], BucketError::Length),
            (&[1.0, 1.0], &[1, 1, 1], BucketError::Bounds),
            (&[f64::NAN], &[1, 1], BucketError::Bounds),
            (&[f64::NEG_INFINITY], &[1, 1], BucketError::Bounds),
            (&[1.0], &[9, 1], BucketError::Count),
            (&[1.0], &[u64::MAX, 1], BucketError::Count),
        ] {
            assert_eq!(explicit_buckets(&value(bounds, counts, 3)), Err(error));
        }
    }
}
