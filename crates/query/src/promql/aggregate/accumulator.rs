//! The aggregations that need no more than a running state.

use super::super::functions::over_time::{KahanSum, RunningMean};

/// The state of one aggregation at one step; it is given at least one value.
pub(crate) trait StepAccumulator: Default {
    fn add(&mut self, value: f64);
    fn result(&self) -> f64;
}

#[derive(Default)]
pub(crate) struct Sum(pub KahanSum);

impl StepAccumulator for Sum {
    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn result(&self) -> f64 {
        self.0.total()
    }
}

#[derive(Default)]
pub(crate) struct Mean(pub RunningMean);

impl StepAccumulator for Mean {
    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn result(&self) -> f64 {
        self.0.mean()
    }
}

/// The smallest value; NaN only if there is no other.
pub(crate) struct Min(f64);

impl Default for Min {
    fn default() -> Min {
        Min(f64::NAN)
    }
}

impl StepAccumulator for Min {
    fn add(&mut self, value: f64) {
        self.0 = self.0.min(value);
    }

    fn result(&self) -> f64 {
        self.0
    }
}

/// The largest value; NaN only if there is no other.
pub(crate) struct Max(f64);

impl Default for Max {
    fn default() -> Max {
        Max(f64::NAN)
    }
}

impl StepAccumulator for Max {
    fn add(&mut self, value: f64) {
        self.0 = self.0.max(value);
    }

    fn result(&self) -> f64 {
        self.0
    }
}

#[derive(Default)]
pub(crate) struct Count(u32);

impl StepAccumulator for Count {
    fn add(&mut self, _: f64) {
        self.0 += 1;
    }

    fn result(&self) -> f64 {
        f64::from(self.0)
    }
}

#[derive(Default)]
pub(crate) struct Group;

impl StepAccumulator for Group {
    fn add(&mut self, _: f64) {}

    fn result(&self) -> f64 {
        1.0
    }
}

/// The variance of a population, by Welford's method.
#[derive(Default)]
pub(super) struct Stdvar {
    count: f64,
    mean: f64,
    squares: f64,
}

impl StepAccumulator for Stdvar {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
    }

    fn result(&self) -> f64 {
        self.squares / self.count
    }
}

#[derive(Default)]
pub(super) struct Stddev(Stdvar);

impl StepAccumulator for Stddev {
    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn result(&self) -> f64 {
        self.0.result().sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<A: StepAccumulator>(values: &[f64]) -> f64 {
        let mut accumulator = A::default();
        values.iter().for_each(|value| accumulator.add(*value));
        accumulator.result()
    }

    #[test]
    fn results_of_a_few_values() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!((of::<Sum>(&values), of::<Mean>(&values)), (40.0, 5.0));
        assert_eq!((of::<Min>(&values), of::<Max>(&values)), (2.0, 9.0));
        assert_eq!((of::<Count>(&values), of::<Group>(&values)), (8.0, 1.0));
        assert_eq!((of::<Stdvar>(&values), of::<Stddev>(&values)), (4.0, 2.0));
        assert_eq!(of::<Max>(&[f64::NAN, -1.0]), -1.0);
        assert!(of::<Min>(&[f64::NAN]).is_nan() && of::<Stddev>(&[f64::INFINITY]).is_nan());
    }
}
