//! Evaluates PromQL with the semantics of Prometheus 3, native histograms excepted.
//!
//! ```text
//! text ──► parse ──► plan (nodes, checked) ──► evaluator ──► QueryOutcome
//!          promql-parser                       reads a SeriesSource
//! ```
//!
//! An expression is evaluated node by node for all steps at once: the value of a node is a column
//! of values per series, with one value per step. Labels are therefore matched, grouped and joined
//! once per query, not once per step. Samples, memory, time and points are bounded by
//! [`PromqlLimits`]; every loop over samples or series checks the deadline.
//!
//! Experimental functions are always available. Not supported, because the parser does not know
//! them or there is nothing to compute them from: `anchored` and `smoothed` ranges, arithmetic in
//! durations, `integral`, `start_timestamp`, and functions of native histograms, whose results are
//! empty.
//!
//! This module contains no HTTP code. [`PromqlError::kind`] carries Prometheus' error types.

mod aggregate;
mod annotations;
mod binary;
mod constant;
mod error;
mod evaluator;
mod functions;
mod interval_series;
mod labels;
mod limits;
mod mark_series;
mod matcher;
mod node;
mod parse;
mod positions;
mod pushdown;
mod re2;
mod regex_cost;
mod selection;
mod series_view;
mod set_operators;
mod source;
mod steps;
mod store_source;
mod syntax_tree;
mod time_text;
mod value;
mod vector_match;

#[cfg(test)]
mod tests;

use pegel_metric::Millis;

pub use error::{PromqlError, PromqlErrorKind};
pub use interval_series::{IntervalSource, LabelledInterval};
pub use labels::LabelSet;
pub use limits::PromqlLimits;
pub use matcher::{LabelMatcher, MatchKind};
pub use node::Grouping;
pub use pegel_store::QueryCancellation;
pub use pushdown::{
    PushedAggregation, PushedMerger, PushedOperator, PushedRequest, PushedSeries, StepRange,
    decode_pushed_request, decode_pushed_series, encode_pushed_request, encode_pushed_series,
    evaluate_pushed, evaluate_pushed_with_hosts, merge_pushed, set_host,
};
pub use series_view::NodeLabels;
pub(crate) use series_view::SeriesView;
pub use source::{SampleColumns, SelectedSamples, Selection, SeriesSampleVisitor, SeriesSource};
pub use store_source::{SeriesLabelVisitor, StoreSource};
pub use time_text::{format_time, parse_duration, parse_time};
pub use value::{MatrixSeries, QueryOutcome, QueryValue, STALE_NAN, VectorSample, format_sample};

use evaluator::Evaluator;
use node::ValueType;
use steps::Steps;

/// Evaluates an expression at one time.
pub fn instant(
    source: &dyn SeriesSource,
    expression: &str,
    time: Millis,
    limits: &PromqlLimits,
) -> Result<QueryOutcome, PromqlError> {
    check_time("time", time)?;
    let node = parse::plan(expression, time, time, limits)?;
    let mut evaluator = Evaluator::new(source, expression, (Steps::single(time), time), limits);
    let value = evaluator.instant(&node)?;
    Ok(evaluator.outcome(value))
}

/// Evaluates an expression at every step from `start` to `end`.
pub fn range(
    source: &dyn SeriesSource,
    expression: &str,
    (start, end): (Millis, Millis),
    step: Millis,
    limits: &PromqlLimits,
) -> Result<QueryOutcome, PromqlError> {
    check_time("start", start)?;
    check_time("end", end)?;
    let steps = Steps::of_range(start, end, step, limits.points_max)?;
    let node = parse::plan(expression, start, end, limits)?;
    match node.value_type() {
        ValueType::Scalar | ValueType::Vector => {}
        other => {
            return Err(PromqlError::bad_data(format!(
                "invalid expression type {:?} for range query, must be Scalar or instant Vector",
                other.name()
            )));
        }
    }
    let mut evaluator = Evaluator::new(source, expression, (steps, end), limits);
    let value = evaluator.range(&node)?;
    Ok(evaluator.outcome(value))
}

/// The largest time and duration: sums of a few of them do not overflow.
const MILLIS_MAX: Millis = Millis::MAX / 4;

fn check_time(parameter: &str, time: Millis) -> Result<(), PromqlError> {
    if (-MILLIS_MAX..=MILLIS_MAX).contains(&time) {
        return Ok(());
    }
    Err(PromqlError::bad_data(format!(
        "invalid parameter {parameter:?}: {time} ms is out of range"
    )))
}

/// Returns an expression with one form of spaces, quotes and line breaks, as Prometheus'
/// `format_query` does.
pub fn format_expression(expression: &str) -> Result<String, PromqlError> {
    parse::format(expression)
}

/// Returns the syntax tree of an expression in the form of Prometheus' `parse_query`.
pub fn parse_to_tree(expression: &str) -> Result<serde_json::Value, PromqlError> {
    // Also finds the mistakes that the grammar does not.
    parse::plan(expression, 0, 0, &PromqlLimits::default())?;
    parse::tree(expression)
}

/// Returns the matchers of a series selector such as `node_load1{job="node"}`, for the endpoints
/// that list series and labels.
pub fn parse_selector(text: &str) -> Result<Vec<LabelMatcher>, PromqlError> {
    parse::selector(text)
}
