//! Values: the columns that nodes exchange during the evaluation, and the result of a query.

use std::fmt::Write;

pub use pegel_metric::STALE_NAN;
use pegel_metric::{Millis, is_stale};

use super::labels::LabelSet;

/// Marks a step at which a series has no value. Arithmetic never produces this signalling NaN.
pub(crate) const ABSENT: f64 = STALE_NAN;

#[inline]
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// A series of an instant vector: one value per step, [`ABSENT`] where it has none.
#[derive(Debug, Clone)]
pub(crate) struct StepSeries {
    pub labels: LabelSet,
    pub values: Vec<f64>,
}

impl StepSeries {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| is_absent(*value))
    }

    /// Returns the memory of a series with this many steps.
    pub(crate) fn bytes(steps: usize) -> usize {
        size_of::<StepSeries>() + steps * size_of::<f64>()
    }
}

/// The value of a node at all steps.
#[derive(Debug, Clone)]
pub(crate) enum NodeValue {
    Scalar(Vec<f64>),
    Text(String),
    Vector(Vec<StepSeries>),
}

impl NodeValue {
    /// Returns the memory that the evaluator reserved for this value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            NodeValue::Scalar(values) => size_of_val(&values[..]),
            NodeValue::Text(_) => 0,
            NodeValue::Vector(series) => series
                .iter()
                .map(|series| StepSeries::bytes(series.values.len()))
                .sum(),
        }
    }
}

/// One element of an instant vector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSample {
    pub labels: LabelSet,
    pub value: f64,
}

/// One series of a matrix, with its points in the order of their times.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSeries {
    pub labels: LabelSet,
    pub points: Vec<(Millis, f64)>,
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryValue {
    Scalar(Millis, f64),
    Text(Millis, String),
    /// All samples have this time.
    Vector(Millis, Vec<VectorSample>),
    Matrix(Vec<MatrixSeries>),
}

impl QueryValue {
    /// Returns the `resultType` of a response.
    pub fn type_name(&self) -> &'static str {
        match self {
            QueryValue::Scalar(..) => "scalar",
            QueryValue::Text(..) => "string",
            QueryValue::Vector(..) => "vector",
            QueryValue::Matrix(_) => "matrix",
        }
    }
}

/// The result of a query and what the evaluator noticed.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryOutcome {
    pub value: QueryValue,
    pub warnings: Vec<String>,
    pub infos: Vec<String>,
    /// The number of samples that were read.
    pub samples: usize,
}

/// Appends a value as Prometheus' HTTP API writes it: the shortest decimal that parses back,
/// with an exponent only below 1e-6 and from 1e21 on.
pub fn format_sample(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{value}");
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    }
}

/// Returns a value as a label of `count_values` and a message show it: without exponent.
pub(crate) fn plain_number(value: f64) -> String {
    if value.is_finite() {
        return value.to_string();
    }
    let mut text = String::new();
    format_sample(&mut text, value);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (0.000_001, "0.000001"),
            (0.000_000_15, "1.5e-07"),
            (-2.5e-300, "-2.5e-300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut text = String::new();
            format_sample(&mut text, value);
            assert_eq!(text, expected);
        }
        assert_eq!(plain_number(1e21), "1000000000000000000000");
        assert_eq!(plain_number(f64::INFINITY), "+Inf");
    }

    #[test]
    fn arithmetic_does_not_produce_the_mark_of_absence() {
        for value in [
            ABSENT + 1.0,
            ABSENT * 0.0,
            f64::NAN,
            -f64::NAN,
            ABSENT.sqrt(),
        ] {
            assert!(value.is_nan() && !is_absent(value));
        }
        assert!(is_absent(ABSENT));
    }
}
