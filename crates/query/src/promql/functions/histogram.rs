//! Functions of classic histograms: series that differ in the label `le`, the upper bound of a
//! bucket.

use std::collections::HashMap;

use super::super::annotations::QueryAnnotation;
use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, join_same_labels};
use super::super::labels::LabelSet;
use super::super::node::{CallNode, ExprNode};
use super::super::steps::Steps;
use super::super::value::{ABSENT, NodeValue, StepSeries, is_absent, plain_number};
use super::WholeResult;
use super::histogram_buckets::{Bucket, bucket_fraction, bucket_quantile};
use super::window::warn_of_quantiles;

const BUCKET_LABEL: &str = "le";

/// The buckets of one histogram.
struct ClassicHistogram {
    /// Without the bucket label, with the name.
    labels: LabelSet,
    /// Upper bounds, and indexes into the vector of series.
    buckets: Vec<(f64, usize)>,
}

/// Groups series to histograms, in the order of the series.
fn group(
    evaluator: &mut Evaluator<'_>,
    series: &[StepSeries],
    offset: usize,
) -> Vec<ClassicHistogram> {
    let mut histograms: Vec<ClassicHistogram> = Vec::new();
    let mut places: HashMap<LabelSet, usize> = HashMap::new();
    for (index, one) in series.iter().enumerate() {
        let bound = one.labels.get(BUCKET_LABEL);
        let Some(upper) = parse_bound(bound) else {
            let name = one.labels.metric_name();
            evaluator.annotate(&QueryAnnotation::BadBucketLabel(name, bound), offset);
            continue;
        };
        let labels = one.labels.retain(|name| name != BUCKET_LABEL);
        let place = *places.entry(labels.clone()).or_insert(histograms.len());
        if place == histograms.len() {
            histograms.push(ClassicHistogram {
                labels,
                buckets: Vec::new(),
            });
        }
        histograms[place].buckets.push((upper, index));
    }
    histograms
}

fn parse_bound(text: &str) -> Option<f64> {
    // Go accepts `Inf` and `+Inf` in any case, as Rust does.
    text.parse().ok()
}

/// Computes one value per step from the buckets of each histogram.
fn compute(
    evaluator: &mut Evaluator<'_>,
    (series, histograms): (&[StepSeries], &[ClassicHistogram]),
    steps: &Steps,
    mut function: impl FnMut(&mut Evaluator<'_>, &LabelSet, usize, &mut Vec<Bucket>) -> f64,
) -> Result<Vec<StepSeries>, PromqlError> {
    let mut columns = Vec::with_capacity(histograms.len());
    let mut buckets = Vec::new();
    for histogram in histograms {
        evaluator.reserve_series(1, steps)?;
        let mut values = Vec::with_capacity(steps.count);
        for step in 0..steps.count {
            evaluator.budget.spend(histogram.buckets.len() * 4)?;
            buckets.clear();
            buckets.extend(histogram.buckets.iter().filter_map(|(upper, index)| {
                let count = series[*index].values[step];
                let upper = *upper;
                (!is_absent(count)).then_some(Bucket { upper, count })
            }));
            values.push(if buckets.is_empty() {
                ABSENT
            } else {
                function(evaluator, &histogram.labels, step, &mut buckets)
            });
        }
        columns.push(StepSeries {
            labels: histogram.labels.without_name(),
            values,
        });
    }
    Ok(columns)
}

pub(super) fn quantile(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let quantiles = evaluator.eval_scalar(&node.arguments[0], steps)?;
    let series = evaluator.eval_vector(&node.arguments[1], steps)?;
    let offset = node.position.argument(1);
    warn_of_quantiles(evaluator, &quantiles, node.position.argument(0));
    let histograms = group(evaluator, &series, offset);
    let columns = quantile_columns(evaluator, (&series, &histograms), &quantiles, steps, offset)?;
    evaluator.release_series(&series);
    Ok(NodeValue::Vector(join_same_labels(columns)?))
}

fn quantile_columns(
    evaluator: &mut Evaluator<'_>,
    input: (&[StepSeries], &[ClassicHistogram]),
    quantiles: &[f64],
    steps: &Steps,
    offset: usize,
) -> Result<Vec<StepSeries>, PromqlError> {
    compute(
        evaluator,
        input,
        steps,
        |evaluator, labels, step, buckets| {
            let found = bucket_quantile(quantiles[step], buckets);
            if found.was_corrected {
                let name = labels.metric_name();
                evaluator.annotate(&QueryAnnotation::BucketsNotMonotonic(name), offset);
            }
            found.value
        },
    )
}

/// Computes several quantiles, told apart by a label.
pub(super) fn quantiles(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let series = evaluator.eval_vector(&node.arguments[0], steps)?;
    let ExprNode::Text(label) = &node.arguments[1] else {
        return Err(PromqlError::bad_data("expected a string"));
    };
    let histograms = group(evaluator, &series, node.position.argument(0));
    let mut columns = Vec::new();
    for (index, argument) in node.arguments.iter().enumerate().skip(2) {
        let quantiles = evaluator.eval_scalar(argument, steps)?;
        warn_of_quantiles(evaluator, &quantiles, node.position.argument(index));
        let value = plain_number(quantiles[0]);
        let input = (&series[..], &histograms[..]);
        let offset = node.position.argument(0);
        for mut column in quantile_columns(evaluator, input, &quantiles, steps, offset)? {
            column.labels = column.labels.with(label, &value);
            columns.push(column);
        }
    }
    evaluator.release_series(&series);
    Ok(NodeValue::Vector(join_same_labels(columns)?))
}

pub(super) fn fraction(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let lower = evaluator.eval_scalar(&node.arguments[0], steps)?;
    let upper = evaluator.eval_scalar(&node.arguments[1], steps)?;
    let series = evaluator.eval_vector(&node.arguments[2], steps)?;
    let histograms = group(evaluator, &series, node.position.argument(2));
    let input = (&series[..], &histograms[..]);
    let columns = compute(evaluator, input, steps, |_, _, step, buckets| {
        bucket_fraction(lower[step], upper[step], buckets)
    })?;
    evaluator.release_series(&series);
    Ok(NodeValue::Vector(join_same_labels(columns)?))
}

/// Evaluates a function of native histograms: no series has any.
pub(super) fn of_native(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let series = evaluator.eval_vector(&node.arguments[0], steps)?;
    evaluator.release_series(&series);
    Ok(NodeValue::Vector(Vec::new()))
}
