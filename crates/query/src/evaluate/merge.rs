//! Merges several series into one. At each time at which any of them has a point, the aggregator
//! receives one value of each series that has started and not yet ended: its own or an interpolated
//! one.

use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::QueryError;

use crate::aggregator::{Accumulator, Aggregator, Interpolation};
use crate::downsample::Buckets;
use crate::error::OpentsdbError;
use crate::memory_budget::QueryMemoryBudget;

/// The deadline is checked once per this many times.
const DEADLINE_EVERY: usize = 256;

/// Returns the value of a series at `time`, between two of its points.
fn interpolate(
    interpolation: Interpolation,
    time: Millis,
    (time_before, before): (Millis, f64),
    (time_after, after): (Millis, f64),
) -> f64 {
    match interpolation {
        Interpolation::Linear => {
            let part = (time - time_before) as f64 / (time_after - time_before) as f64;
            before + part * (after - before)
        }
        Interpolation::Zero => 0.0,
        Interpolation::Largest => f64::MAX,
        Interpolation::Smallest => f64::MIN,
        Interpolation::Previous => before,
    }
}

/// One accumulator per even bucket. Series are added one after the other and need not be kept.
#[derive(Debug)]
pub(super) struct BucketGrid {
    first: Millis,
    step: Millis,
    accumulators: Vec<Accumulator>,
    /// Whether any series has its own point in the bucket.
    has_point: Vec<bool>,
}

impl BucketGrid {
    pub(super) fn bytes(len: usize) -> usize {
        len * (size_of::<Accumulator>() + 1)
    }

    /// Creates a grid over even buckets or a single one; calendar buckets have no grid.
    pub(super) fn new(buckets: &Buckets) -> BucketGrid {
        let step = match buckets {
            Buckets::Even { step, .. } => *step,
            Buckets::One { .. } | Buckets::Uneven(_) => 1,
        };
        BucketGrid {
            first: buckets.timestamp(0),
            step,
            accumulators: vec![Accumulator::default(); buckets.len()],
            has_point: vec![false; buckets.len()],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.accumulators.len()
    }

    pub(super) fn add(&mut self, aggregator: Aggregator, points: &[(Millis, f64)]) {
        let interpolation = aggregator.interpolation();
        let mut last: Option<(usize, (Millis, f64))> = None;
        for &(time, value) in points {
            let index = match last {
                Some((before, (time_before, _))) if time - time_before == self.step => before + 1,
                _ => ((time - self.first) / self.step) as usize,
            };
            if let Some((before, point)) = last {
                for (offset, tally) in self.accumulators[before + 1..index].iter_mut().enumerate() {
                    let missing = point.0 + (offset as Millis + 1) * self.step;
                    tally.add(
                        aggregator,
                        interpolate(interpolation, missing, point, (time, value)),
                    );
                }
            }
            self.accumulators[index].add(aggregator, value);
            self.has_point[index] = true;
            last = Some((index, (time, value)));
        }
    }

    pub(super) fn finish(&self, aggregator: Aggregator) -> Vec<(Millis, f64)> {
        let cells = self.accumulators.iter().zip(&self.has_point).enumerate();
        cells
            .filter(|(_, (_, is_real))| **is_real)
            .map(|(index, (tally, _))| {
                let time = self.first + index as Millis * self.step;
                (time, tally.result(aggregator))
            })
            .collect()
    }
}

/// Merges series whose times are only known once all of them are read.
pub(super) fn merge(
    tracks: &[Vec<(Millis, f64)>],
    aggregator: Aggregator,
    deadline: Instant,
    budget: &mut QueryMemoryBudget,
) -> Result<Vec<(Millis, f64)>, OpentsdbError> {
    let times = all_times(tracks, budget)?;
    let interpolation = aggregator.interpolation();
    let mut cursors = vec![0usize; tracks.len()];
    let mut values = Vec::with_capacity(tracks.len());
    let mut points = Vec::with_capacity(times.len());
    for (number, &time) in times.iter().enumerate() {
        if number % DEADLINE_EVERY == 0 && Instant::now() > deadline {
            return Err(QueryError::TooLong.into());
        }
        values.clear();
        for (track, cursor) in tracks.iter().zip(&mut cursors) {
            let Some(&next) = track.get(*cursor) else {
                continue;
            };
            if next.0 == time {
                values.push(next.1);
                *cursor += 1;
            } else if *cursor > 0 {
                values.push(interpolate(interpolation, time, track[*cursor - 1], next));
            }
        }
        points.push((time, aggregator.aggregate(&mut values)));
    }
    Ok(points)
}

/// Returns the sorted distinct times of all series.
fn all_times(
    tracks: &[Vec<(Millis, f64)>],
    budget: &mut QueryMemoryBudget,
) -> Result<Vec<Millis>, OpentsdbError> {
    let Some((first, rest)) = tracks.split_first() else {
        return Ok(Vec::new());
    };
    let is_same = |track: &Vec<(Millis, f64)>| {
        track.len() == first.len() && track.iter().zip(first).all(|(a, b)| a.0 == b.0)
    };
    // Series of one collector have the same times.
    let sources = if rest.iter().all(is_same) {
        std::slice::from_ref(first)
    } else {
        tracks
    };
    let count: usize = sources.iter().map(Vec::len).sum();
    let bytes = count * (size_of::<Millis>() + size_of::<(Millis, f64)>());
    budget.reserve(bytes)?;
    let mut times: Vec<Millis> = sources.iter().flatten().map(|point| point.0).collect();
    // The stable sort is fast on sorted runs.
    times.sort();
    times.dedup();
    budget.release(bytes);
    Ok(times)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn merged(name: &str, tracks: &[&[(Millis, f64)]]) -> Vec<(Millis, f64)> {
        let aggregator = Aggregator::parse(name).expect("known");
        let tracks: Vec<Vec<_>> = tracks.iter().map(|track| track.to_vec()).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let whole = merge(
            &tracks,
            aggregator,
            deadline,
            &mut QueryMemoryBudget::new(1 << 20),
        )
        .expect("small");
        if aggregator.is_running() {
            // Both implementations must return the same result.
            let mut grid = BucketGrid::new(&Buckets::Even {
                first: 0,
                step: 10,
                count: 7,
            });
            tracks.iter().for_each(|track| grid.add(aggregator, track));
            assert_eq!(grid.finish(aggregator), whole, "{name}");
        }
        whole
    }

    #[test]
    fn each_aggregator_fills_gaps_in_its_own_way() {
        // The manual's example: A has 5, 15, 5 at 10, 30, 50; B has 10, 20, 10, 20 at 0, 20, 40,
        // 60.
        let a = [(10, 5.0), (30, 15.0), (50, 5.0)];
        let b = [(0, 10.0), (20, 20.0), (40, 10.0), (60, 20.0)];
        let values = |name: &str| {
            let points = merged(name, &[&a, &b]);
            let times: Vec<Millis> = points.iter().map(|point| point.0).collect();
            assert_eq!(times, [0, 10, 20, 30, 40, 50, 60], "{name}");
            points.iter().map(|point| point.1).collect::<Vec<f64>>()
        };
        // A is interpolated to 10 at 20 and at 40, B to 15 at 10, 30 and 50. Outside of its span A
        // has no value.
        assert_eq!(values("sum"), [10.0, 20.0, 30.0, 30.0, 20.0, 20.0, 20.0]);
        assert_eq!(values("avg"), [10.0, 10.0, 15.0, 15.0, 10.0, 10.0, 20.0]);
        assert_eq!(values("min"), [10.0, 5.0, 10.0, 15.0, 10.0, 5.0, 20.0]);
        assert_eq!(values("max"), [10.0, 15.0, 20.0, 15.0, 10.0, 15.0, 20.0]);
        // Half of the distance between two values.
        assert_eq!(values("dev"), [0.0, 5.0, 5.0, 0.0, 0.0, 5.0, 0.0]);
        assert_eq!(values("count"), [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0]);
        // Zero, the largest and the smallest number replace missing values.
        assert_eq!(values("zimsum"), [10.0, 5.0, 20.0, 15.0, 10.0, 5.0, 20.0]);
        assert_eq!(values("mimmin"), [10.0, 5.0, 20.0, 15.0, 10.0, 5.0, 20.0]);
        assert_eq!(values("mimmax"), [10.0, 5.0, 20.0, 15.0, 10.0, 5.0, 20.0]);
        // The previous value: A has 5 at 20 and 15 at 40; B has 10 at 10, 20 at 30, 10 at 50.
        assert_eq!(values("pfsum"), [10.0, 15.0, 25.0, 35.0, 25.0, 15.0, 20.0]);
        // A is the first series: B minus A where both have a value.
        assert_eq!(values("diff"), [0.0, 10.0, 10.0, 0.0, 0.0, 10.0, 0.0]);
        assert_eq!(values("first"), [10.0, 5.0, 10.0, 15.0, 10.0, 5.0, 20.0]);
        assert_eq!(values("last"), [10.0, 15.0, 20.0, 15.0, 10.0, 15.0, 20.0]);
        assert_eq!(
            values("mult"),
            [10.0, 75.0, 200.0, 225.0, 100.0, 75.0, 20.0]
        );
        assert_eq!(
            values("squareSum"),
            [100.0, 250.0, 500.0, 450.0, 200.0, 250.0, 400.0]
        );
        assert_eq!(values("median"), [10.0, 15.0, 20.0, 15.0, 10.0, 15.0, 20.0]);
        assert_eq!(values("p50"), [10.0, 10.0, 15.0, 15.0, 10.0, 10.0, 20.0]);
        assert_eq!(values("ep50r3"), [10.0, 5.0, 10.0, 15.0, 10.0, 5.0, 20.0]);
        assert_eq!(values("ep50r7"), [10.0, 10.0, 15.0, 15.0, 10.0, 10.0, 20.0]);
    }

    #[test]
    fn a_gap_of_several_buckets_is_one_line() {
        let long = [(0, 0.0), (60, 60.0)];
        let short = [(20, 1.0), (30, 1.0)];
        assert_eq!(
            merged("sum", &[&long, &short]),
            [(0, 0.0), (20, 21.0), (30, 31.0), (60, 60.0)],
            "and nothing at times that nobody has"
        );
    }

    #[test]
    fn what_is_not_a_number_is_left_out() {
        let nan = f64::NAN;
        let a = [(0, nan), (10, 1.0), (20, nan)];
        let b = [(0, nan), (10, 2.0), (20, 5.0)];
        let points = merged("avg", &[&a[1..], &b[1..]]);
        assert_eq!(points, [(10, 1.5), (20, 5.0)]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let all = [a.to_vec(), b.to_vec()];
        let points = merge(
            &all,
            Aggregator::Sum,
            deadline,
            &mut QueryMemoryBudget::new(1 << 20),
        )
        .expect("small");
        assert!(points[0].1.is_nan() && points[1..] == [(10, 3.0), (20, 5.0)]);
    }

    #[test]
    fn bounds_hold() {
        let tracks = vec![vec![(0, 1.0)]; 2];
        let late = merge(
            &tracks,
            Aggregator::Sum,
            Instant::now(),
            &mut QueryMemoryBudget::new(1 << 20),
        );
        let late = late.map_err(|problem| problem.status());
        assert_eq!(late, Err(504));
        let deadline = Instant::now() + Duration::from_secs(60);
        let large = merge(
            &tracks,
            Aggregator::Sum,
            deadline,
            &mut QueryMemoryBudget::new(8),
        );
        assert_eq!(large.map_err(|problem| problem.status()), Err(413));
    }
}
