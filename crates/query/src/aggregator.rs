//! Aggregation functions: reduce the values of several series at one time, or of one series in one
//! bucket, to one.

mod accumulator;
mod percentile;

pub(crate) use accumulator::Accumulator;
use percentile::{PercentileEstimate, percentile};

use crate::error::OpentsdbError;
use pegel_store::StepAggregation;

/// An aggregator of the OpenTSDB manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregator {
    Avg,
    Count,
    Dev,
    Diff,
    First,
    Last,
    Max,
    Median,
    Mimmax,
    Mimmin,
    Min,
    Mult,
    /// No aggregation: each series is a result of its own.
    None,
    Pfsum,
    SquareSum,
    Sum,
    Zimsum,
    /// In tenths of a percent.
    Percentile(u16, PercentileEstimate),
}

/// The value of a series at a time without a point, between its first and its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interpolation {
    /// Linear between its neighbours.
    Linear,
    Zero,
    Largest,
    Smallest,
    Previous,
}

const PLAIN: [(&str, Aggregator); 17] = [
    ("avg", Aggregator::Avg),
    ("count", Aggregator::Count),
    ("dev", Aggregator::Dev),
    ("diff", Aggregator::Diff),
    ("first", Aggregator::First),
    ("last", Aggregator::Last),
    ("max", Aggregator::Max),
    ("median", Aggregator::Median),
    ("mimmax", Aggregator::Mimmax),
    ("mimmin", Aggregator::Mimmin),
    ("min", Aggregator::Min),
    ("mult", Aggregator::Mult),
    ("none", Aggregator::None),
    ("pfsum", Aggregator::Pfsum),
    ("squareSum", Aggregator::SquareSum),
    ("sum", Aggregator::Sum),
    ("zimsum", Aggregator::Zimsum),
];

const PERCENTILES: [(&str, u16); 6] = [
    ("50", 500),
    ("75", 750),
    ("90", 900),
    ("95", 950),
    ("99", 990),
    ("999", 999),
];

impl Aggregator {
    /// Returns every name that [`Aggregator::parse`] accepts, sorted.
    pub fn names() -> Vec<String> {
        let plain = PLAIN.iter().map(|(name, _)| (*name).to_owned());
        let percentiles = PERCENTILES.iter().flat_map(|(digits, _)| {
            [
                format!("p{digits}"),
                format!("ep{digits}r3"),
                format!("ep{digits}r7"),
            ]
        });
        let mut names: Vec<String> = plain.chain(percentiles).collect();
        names.sort_unstable();
        names
    }

    pub fn parse(name: &str) -> Result<Aggregator, OpentsdbError> {
        let plain = PLAIN.iter().find(|(known, _)| *known == name);
        if let Some((_, aggregator)) = plain {
            return Ok(*aggregator);
        }
        let percentile = match name.strip_prefix("ep") {
            Some(rest) => match (rest.strip_suffix("r3"), rest.strip_suffix("r7")) {
                (Some(digits), _) => Some((digits, PercentileEstimate::R3)),
                (_, Some(digits)) => Some((digits, PercentileEstimate::R7)),
                _ => None,
            },
            None => name
                .strip_prefix('p')
                .map(|digits| (digits, PercentileEstimate::Exact)),
        };
        percentile
            .and_then(|(digits, estimate)| {
                let (_, tenths) = PERCENTILES.iter().find(|(known, _)| *known == digits)?;
                Some(Aggregator::Percentile(*tenths, estimate))
            })
            .ok_or_else(|| {
                OpentsdbError::bad_request(format!("No such aggregator: {name}"))
                    .with_details("see /api/aggregators for the supported names")
            })
    }

    pub(crate) fn interpolation(self) -> Interpolation {
        match self {
            Aggregator::Zimsum | Aggregator::Count | Aggregator::None => Interpolation::Zero,
            Aggregator::Mimmin => Interpolation::Largest,
            Aggregator::Mimmax => Interpolation::Smallest,
            Aggregator::Pfsum => Interpolation::Previous,
            _ => Interpolation::Linear,
        }
    }

    /// Returns whether it can be computed incrementally, without keeping the values.
    pub(crate) fn is_running(self) -> bool {
        !matches!(
            self,
            Aggregator::Median | Aggregator::Percentile(..) | Aggregator::None
        )
    }

    /// Returns the equivalent aggregation of the store per bucket, if there is one.
    pub(crate) fn fold(self) -> Option<StepAggregation> {
        Some(match self {
            Aggregator::Avg => StepAggregation::Avg,
            Aggregator::Count => StepAggregation::Count,
            Aggregator::First => StepAggregation::First,
            Aggregator::Last => StepAggregation::Last,
            Aggregator::Max | Aggregator::Mimmax => StepAggregation::Max,
            Aggregator::Min | Aggregator::Mimmin => StepAggregation::Min,
            Aggregator::Sum | Aggregator::Zimsum | Aggregator::Pfsum => StepAggregation::Sum,
            _ => return None,
        })
    }

    /// Aggregates the values in their order. NaN is ignored; without any other value the result is
    /// NaN.
    pub(crate) fn aggregate(self, values: &mut Vec<f64>) -> f64 {
        if self.is_running() {
            let mut tally = Accumulator::default();
            values.iter().for_each(|value| tally.add(self, *value));
            return tally.result(self);
        }
        values.retain(|value| !value.is_nan());
        values.sort_unstable_by(f64::total_cmp);
        match self {
            // With an even count, the upper of the two middle values.
            Aggregator::Median => values.get(values.len() / 2).copied().unwrap_or(f64::NAN),
            Aggregator::Percentile(tenths, estimate) => percentile(values, tenths, estimate),
            _ => values.first().copied().unwrap_or(f64::NAN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, values: &[f64]) -> f64 {
        Aggregator::parse(name)
            .expect(name)
            .aggregate(&mut values.to_vec())
    }

    #[test]
    fn every_function_gives_what_its_description_says() {
        let values = [4.0, 1.0, 7.0, 2.0];
        for (name, expected) in [
            ("sum", 14.0),
            ("zimsum", 14.0),
            ("pfsum", 14.0),
            ("min", 1.0),
            ("mimmin", 1.0),
            ("max", 7.0),
            ("mimmax", 7.0),
            ("avg", 3.5),
            ("count", 4.0),
            // Squares of the distances from 3.5: 0.25 + 6.25 + 12.25 + 2.25 = 21; the population
            // has 4.
            ("dev", 5.25f64.sqrt()),
            // The last minus the first.
            ("diff", -2.0),
            ("first", 4.0),
            ("last", 2.0),
            ("mult", 56.0),
            // 16 + 1 + 49 + 4.
            ("squareSum", 70.0),
            // Sorted 1 2 4 7; index 4/2, counted from 0.
            ("median", 4.0),
        ] {
            assert_eq!(of(name, &values), expected, "{name}");
        }
    }

    #[test]
    fn one_value_and_none_at_all() {
        for name in Aggregator::names() {
            let expected = match name.as_str() {
                "dev" | "diff" => 0.0,
                "count" => 1.0,
                "squareSum" => 9.0,
                _ => 3.0,
            };
            assert_eq!(of(&name, &[3.0]), expected, "{name}");
            assert!(of(&name, &[]).is_nan(), "{name}");
            assert!(of(&name, &[f64::NAN, f64::NAN]).is_nan(), "{name}");
            assert_eq!(of(&name, &[f64::NAN, 3.0, f64::NAN]), expected, "{name}");
        }
    }

    #[test]
    fn names_are_known_and_others_are_not() {
        let names = Aggregator::names();
        assert_eq!(names.len(), 35);
        assert!(names.is_sorted());
        assert!(names.iter().all(|name| Aggregator::parse(name).is_ok()));
        for name in ["", "SUM", "p", "p100", "ep50", "ep50r5", "p50r3", "median "] {
            let problem = Aggregator::parse(name).expect_err(name);
            assert_eq!(problem.to_string(), format!("No such aggregator: {name}"));
        }
    }
}
