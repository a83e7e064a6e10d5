//! Expressions over series in memory. Values that are not obvious are derived in a comment.

mod aggregations;
mod binary_operators;
mod bounds;
mod errors;
mod functions;
mod histograms;
mod pushdown;
mod pushdown_messages;
mod selectors;

use pegel_metric::Millis;

use super::labels::LabelSet;
use super::source::{SampleColumns, Selection, SeriesSampleVisitor, SeriesSource};
use super::{
    PromqlError, PromqlLimits, QueryOutcome, QueryValue, STALE_NAN, format_sample, instant,
    parse_selector, range,
};

/// Series in memory.
pub(super) struct MemorySource {
    series: Vec<(LabelSet, Vec<(Millis, f64)>)>,
}

impl SeriesSource for MemorySource {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        for (labels, samples) in &self.series {
            if !selection
                .matchers
                .iter()
                .all(|matcher| matcher.matches(labels))
            {
                continue;
            }
            let from = samples.partition_point(|sample| sample.0 < selection.start);
            let until = samples.partition_point(|sample| sample.0 <= selection.end);
            if from < until {
                let columns = SampleColumns::new(&samples[from..until]);
                visit(labels.clone(), columns.samples())?;
            }
        }
        Ok(())
    }
}

/// Returns series with a sample every ten seconds from time 0 on. Values are written as in
/// Prometheus' unit tests: `1+2x3` is 1, 3, 5, 7; `_` is no sample; `stale` ends the series.
pub(super) fn series(list: &[(&str, &str)]) -> MemorySource {
    series_every(10, list)
}

pub(super) fn series_every(seconds: Millis, list: &[(&str, &str)]) -> MemorySource {
    let parse = |(name, values): &(&str, &str)| {
        let matchers = parse_selector(name).expect("a valid series");
        let pairs = matchers
            .iter()
            .map(|matcher| (&matcher.name, &matcher.value));
        let values = values.split_whitespace().flat_map(expand);
        let samples = values
            .enumerate()
            .filter_map(|(index, value)| Some((index as Millis * seconds * 1_000, value?)));
        (LabelSet::new(pairs), samples.collect())
    };
    MemorySource {
        series: list.iter().map(parse).collect(),
    }
}

fn expand(text: &str) -> Vec<Option<f64>> {
    let number = |text: &str| text.parse::<f64>().expect("a number");
    if let Some((first, rest)) = text.split_once('x') {
        let count: usize = rest.parse().expect("a count");
        if first == "_" {
            return vec![None; count];
        }
        let sign = first[1..].find(['+', '-']).map(|at| at + 1);
        let (start, step) = match sign {
            Some(at) => (number(&first[..at]), number(&first[at..])),
            None => (number(first), 0.0),
        };
        return (0..=count)
            .map(|index| Some(start + step * index as f64))
            .collect();
    }
    vec![match text {
        "_" => None,
        "stale" => Some(STALE_NAN),
        other => Some(number(other)),
    }]
}

pub(super) fn outcome(source: &MemorySource, expression: &str, seconds: f64) -> QueryOutcome {
    let time = (seconds * 1_000.0) as Millis;
    instant(source, expression, time, &PromqlLimits::default()).expect(expression)
}

fn show(value: f64) -> String {
    // Twelve digits: enough to tell values apart, without the noise of rounding.
    let mut text = String::new();
    format_sample(&mut text, value);
    if text.len() > 14 && value.is_finite() {
        let rounded: f64 = format!("{value:.12e}").parse().expect("a number");
        text.clear();
        format_sample(&mut text, rounded);
    }
    text
}

fn show_value(value: QueryValue) -> Vec<String> {
    match value {
        QueryValue::Scalar(_, value) => vec![show(value)],
        QueryValue::Text(_, text) => vec![text],
        QueryValue::Vector(_, samples) => samples
            .into_iter()
            .map(|sample| format!("{} {}", sample.labels, show(sample.value)))
            .collect(),
        QueryValue::Matrix(series) => series
            .into_iter()
            .map(|one| {
                let points = one.points.iter();
                let points =
                    points.map(|(time, value)| format!("{}@{}", show(*value), time / 1_000));
                format!("{} {}", one.labels, points.collect::<Vec<_>>().join(" "))
            })
            .collect(),
    }
}

/// Evaluates an expression and returns one line per element.
pub(super) fn at(source: &MemorySource, expression: &str, seconds: f64) -> Vec<String> {
    show_value(outcome(source, expression, seconds).value)
}

/// Evaluates an expression whose result is one number, with or without labels.
pub(super) fn number(source: &MemorySource, expression: &str, seconds: f64) -> String {
    let lines = at(source, expression, seconds);
    assert_eq!(lines.len(), 1, "{expression}: {lines:?}");
    lines[0].rsplit(' ').next().expect("a value").to_owned()
}

/// Evaluates an expression from `start` to `end` seconds.
pub(super) fn over(
    source: &MemorySource,
    expression: &str,
    (start, end, step): (Millis, Millis, Millis),
) -> Vec<String> {
    let limits = PromqlLimits::default();
    let ends = (start * 1_000, end * 1_000);
    let outcome = range(source, expression, ends, step * 1_000, &limits).expect(expression);
    show_value(outcome.value)
}

/// Returns the type and the message of the error of an expression.
pub(super) fn error(
    source: &MemorySource,
    expression: &str,
    seconds: f64,
) -> (&'static str, String) {
    let time = (seconds * 1_000.0) as Millis;
    let error = instant(source, expression, time, &PromqlLimits::default())
        .map(|outcome| panic!("{expression}: {outcome:?}"))
        .unwrap_err();
    (error.kind().as_str(), error.to_string())
}
