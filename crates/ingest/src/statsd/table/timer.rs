//! Timers, histograms and distributions: exact counts, sums and extremes, and percentiles with a
//! bounded error.
//!
//! A value falls into a bucket by its exponent and the first six bits of its fraction: sixty-four
//! buckets for each power of two. A bucket is represented by its middle, which differs from the
//! value by at most 1/128 of it. No logarithm is computed, and buckets exist only for powers of two
//! that occur.

use super::budget::StatsdMemoryBudget;
use crate::compensated_sum::CompensatedSum;

/// The largest relative error of a percentile.
#[cfg(test)]
pub(crate) const RELATIVE_ERROR: f64 = 1.0 / 128.0;

const FRACTION_BITS: u32 = 6;
const PAGE_BUCKETS: usize = 1 << FRACTION_BITS;
const PAGE_BYTES: usize = size_of::<BucketPage>() + PAGE_BUCKETS * size_of::<f64>();

/// The buckets of one sign and one power of two, with the weight in each.
#[derive(Debug)]
struct BucketPage {
    /// Sign and exponent: the upper twelve bits of every value in the page.
    upper: u16,
    weights: Box<[f64; PAGE_BUCKETS]>,
}

#[derive(Debug, Default)]
pub(crate) struct TimerState {
    pub count: CompensatedSum,
    pub sum: CompensatedSum,
    interval: TimerInterval,
}

/// The samples since the last flush.
#[derive(Debug, Default)]
pub(crate) struct TimerInterval {
    pub weight: f64,
    pub min: f64,
    pub max: f64,
    /// In ascending order of values.
    pages: Vec<BucketPage>,
}

/// The reason why a sample was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// The sum or the count would be infinite.
    Overflow,
    /// The memory budget has no room for another bucket.
    Memory,
}

impl TimerState {
    /// Records a sample; on error nothing changes.
    pub(super) fn record(
        &mut self,
        value: f64,
        weight: f64,
        budget: &mut StatsdMemoryBudget,
    ) -> Result<(), RecordError> {
        let (Some(count), Some(sum)) = (self.count.plus(weight), self.sum.plus(value * weight))
        else {
            return Err(RecordError::Overflow);
        };
        self.interval.record(value, weight, budget)?;
        (self.count, self.sum) = (count, sum);
        Ok(())
    }

    /// Ends the interval; `None` if it was empty. The caller returns its memory to the budget.
    pub(super) fn close_interval(&mut self) -> Option<TimerInterval> {
        (self.interval.weight > 0.0).then(|| std::mem::take(&mut self.interval))
    }
}

impl TimerInterval {
    fn record(
        &mut self,
        value: f64,
        weight: f64,
        budget: &mut StatsdMemoryBudget,
    ) -> Result<(), RecordError> {
        // Normalizes minus zero.
        let bits = (value + 0.0).to_bits();
        let upper = (bits >> 52) as u16;
        let at = match self.pages.iter().position(|page| page.upper == upper) {
            Some(at) => at,
            None => self.add_page(upper, budget)?,
        };
        let bucket = (bits >> (52 - FRACTION_BITS)) as usize % PAGE_BUCKETS;
        self.pages[at].weights[bucket] += weight;
        if self.weight == 0.0 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.weight += weight;
        Ok(())
    }

    fn add_page(
        &mut self,
        upper: u16,
        budget: &mut StatsdMemoryBudget,
    ) -> Result<usize, RecordError> {
        if !budget.take(PAGE_BYTES) {
            return Err(RecordError::Memory);
        }
        let at = self
            .pages
            .partition_point(|page| order(page.upper) < order(upper));
        let page = BucketPage {
            upper,
            weights: Box::new([0.0; PAGE_BUCKETS]),
        };
        self.pages.insert(at, page);
        Ok(at)
    }

    pub(super) fn give_back(&self, budget: &mut StatsdMemoryBudget) {
        budget.give_back(self.pages.len() * PAGE_BYTES);
    }

    /// Reports the values at or below which these percents of the weight lie; percents ascend.
    pub(super) fn percentiles(&self, percents: &[f64], put: &mut dyn FnMut(usize, f64)) {
        let (mut wanted, mut below) = (0, 0.0);
        for page in &self.pages {
            let is_negative = page.upper >> 11 == 1;
            for step in 0..PAGE_BUCKETS {
                let bucket = if is_negative {
                    PAGE_BUCKETS - 1 - step
                } else {
                    step
                };
                below += page.weights[bucket];
                if page.weights[bucket] == 0.0 {
                    continue;
                }
                while wanted < percents.len() && below >= percents[wanted] / 100.0 * self.weight {
                    put(wanted, self.clamped(middle(page.upper, bucket)));
                    wanted += 1;
                }
            }
        }
        // Rounding may leave the sum of the weights slightly short of the total.
        for rest in wanted..percents.len() {
            put(rest, self.max);
        }
    }

    fn clamped(&self, value: f64) -> f64 {
        value.max(self.min).min(self.max)
    }
}

/// Orders negative powers of two descending, then positive ones ascending.
fn order(upper: u16) -> i32 {
    match upper >> 11 {
        0 => i32::from(upper),
        _ => -i32::from(upper & 0x7ff) - 1,
    }
}

fn middle(upper: u16, bucket: usize) -> f64 {
    let lower = u64::from(upper) << 52 | (bucket as u64) << (52 - FRACTION_BITS);
    if lower << 1 == 0 {
        return 0.0;
    }
    f64::from_bits(lower | 1 << (51 - FRACTION_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERCENTS: [f64; 6] = [1.0, 25.0, 50.0, 90.0, 99.0, 100.0];

    fn percentiles(values: &[f64]) -> Vec<f64> {
        let mut timer = TimerState::default();
        let mut budget = StatsdMemoryBudget::new(1 << 30);
        for &value in values {
            timer.record(value, 1.0, &mut budget).expect("room");
        }
        let interval = timer.close_interval().expect("samples");
        let mut found = vec![f64::NAN; PERCENTS.len()];
        interval.percentiles(&PERCENTS, &mut |at, value| found[at] = value);
        found
    }

    fn exact(values: &[f64], percent: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * values.len() as f64).ceil().max(1.0) as usize;
        sorted[rank - 1]
    }

    #[test]
    fn percentiles_keep_to_the_stated_error() {
        let mut state = 0x853c_49e6_748f_ea9b_u64;
        for round in 0..200 {
            let values: Vec<f64> = (0..1 + round * 7)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
                    // Over many powers of ten, of both signs, including zeros.
                    let sign = [1.0, -1.0, 1.0, 0.0][(state % 4) as usize];
                    sign * 10_f64.powf(unit * 24.0 - 12.0)
                })
                .collect();
            for (percent, found) in PERCENTS.iter().zip(percentiles(&values)) {
                let exact = exact(&values, *percent);
                let distance = (found - exact).abs();
                assert!(
                    distance <= exact.abs() * RELATIVE_ERROR,
                    "p{percent} of {} values: {found}, exactly {exact}",
                    values.len()
                );
            }
        }
    }

    #[test]
    fn one_value_is_every_percentile() {
        assert_eq!(percentiles(&[3.7]), [3.7; 6]);
        assert_eq!(percentiles(&[-0.0]), [0.0; 6]);
    }

    #[test]
    fn count_sum_and_extremes_are_exact() {
        let (mut timer, mut budget) = (TimerState::default(), StatsdMemoryBudget::new(1 << 20));
        for number in 1..=100_000 {
            timer
                .record(f64::from(number) / 10.0, 1.0, &mut budget)
                .expect("room");
        }
        timer
            .record(5.0, 10.0, &mut budget)
            .expect("a sample for ten");
        assert_eq!(
            (timer.count.value(), timer.sum.value()),
            (100_010.0, 500_005_050.0)
        );
        let interval = timer.close_interval().expect("samples");
        assert_eq!(
            (interval.min, interval.max, interval.weight),
            (0.1, 10_000.0, 100_010.0)
        );
        assert!(
            timer.close_interval().is_none(),
            "the next interval is empty"
        );
        assert_eq!(timer.count.value(), 100_010.0, "totals go on");
    }

    #[test]
    fn weights_count_as_so_many_samples() {
        let (mut timer, mut budget) = (TimerState::default(), StatsdMemoryBudget::new(1 << 20));
        timer.record(1.0, 1.0, &mut budget).expect("room");
        timer.record(100.0, 9.0, &mut budget).expect("room");
        let interval = timer.close_interval().expect("samples");
        let mut found = Vec::new();
        interval.percentiles(&[10.0, 11.0], &mut |_, value| found.push(value));
        assert!(
            (found[0] - 1.0).abs() < 0.01 && (found[1] - 100.0).abs() < 1.0,
            "{found:?}"
        );
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let (mut timer, mut budget) = (
            TimerState::default(),
            StatsdMemoryBudget::new(PAGE_BYTES * 2),
        );
        timer.record(1.0, 1.0, &mut budget).expect("room");
        timer.record(2.0, 1.0, &mut budget).expect("room");
        assert_eq!(
            timer.record(4.0, 1.0, &mut budget),
            Err(RecordError::Memory)
        );
        assert_eq!(timer.count.value(), 2.0, "a refused sample changes nothing");
        timer
            .close_interval()
            .expect("samples")
            .give_back(&mut budget);
        timer.record(4.0, 1.0, &mut budget).expect("room again");
        assert_eq!(
            timer.record(f64::MAX, 10.0, &mut budget),
            Err(RecordError::Overflow)
        );
    }
}
