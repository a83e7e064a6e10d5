//! Evaluates the expressions of rules.

use pegel_metric::Millis;
use pegel_query::promql::{
    self, LabelSet, PromqlError, PromqlErrorKind, PromqlLimits, QueryValue, Selection,
    SeriesSampleVisitor, SeriesSource, VectorSample,
};

/// A source without series: evaluating over it checks an expression.
#[derive(Debug)]
struct NoSeries;

impl SeriesSource for NoSeries {
    fn select(
        &self,
        _: &Selection<'_>,
        _: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        Ok(())
    }
}

/// Returns why an expression cannot be that of a rule.
pub(crate) fn check_expression(expression: &str) -> Result<(), String> {
    let limits = PromqlLimits::default();
    match promql::instant(&NoSeries, expression, 0, &limits) {
        Ok(outcome) => match outcome.value {
            QueryValue::Vector(..) | QueryValue::Scalar(..) => Ok(()),
            other => Err(wrong_type(other.type_name())),
        },
        // Other kinds depend on the data.
        Err(error) if error.kind() == PromqlErrorKind::BadData => Err(error.to_string()),
        Err(_) => Ok(()),
    }
}

/// Evaluates an expression at one time. A scalar becomes a sample without labels.
pub(crate) fn evaluate(
    source: &dyn SeriesSource,
    expression: &str,
    time: Millis,
    limits: &PromqlLimits,
) -> Result<Vec<VectorSample>, String> {
    let outcome = promql::instant(source, expression, time, limits);
    match outcome.map_err(|error| error.to_string())?.value {
        QueryValue::Vector(_, samples) => Ok(samples),
        QueryValue::Scalar(_, value) => Ok(vec![VectorSample {
            labels: LabelSet::empty(),
            value,
        }]),
        other => Err(wrong_type(other.type_name())),
    }
}

fn wrong_type(found: &str) -> String {
    format!("rule result is not a vector or scalar, but a {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_checked_without_data() {
        for text in ["up == 0", "1", "rate(x_total[5m]) > 0.5", "absent(up)"] {
            assert_eq!(check_expression(text), Ok(()), "{text}");
        }
        for text in ["up ==", "x[5m]", "\"text\"", "sum(", "nosuch(up)"] {
            assert!(check_expression(text).is_err(), "{text}");
        }
    }
}
