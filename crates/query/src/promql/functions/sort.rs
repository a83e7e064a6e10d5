//! Functions that order the result of an instant query. Results of range queries are always sorted
//! by labels.

use std::cmp::Ordering;

use super::super::evaluator::Evaluator;
use super::super::node::{CallNode, ExprNode};
use super::super::steps::Steps;
use super::super::value::{NodeValue, StepSeries};
use super::WholeResult;

pub(super) fn ascending(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    sort(evaluator, node, steps, |a, b| by_value(a, b, false))
}

pub(super) fn descending(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    sort(evaluator, node, steps, |a, b| by_value(a, b, true))
}

pub(super) fn by_label(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let names = texts(&node.arguments[1..]);
    sort(evaluator, node, steps, |a, b| by_labels(a, b, &names))
}

pub(super) fn by_label_descending(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let names = texts(&node.arguments[1..]);
    sort(evaluator, node, steps, |a, b| by_labels(b, a, &names))
}

fn texts(arguments: &[ExprNode]) -> Vec<&str> {
    fn text(argument: &ExprNode) -> Option<&str> {
        match argument {
            ExprNode::Text(text) => Some(text),
            _ => None,
        }
    }
    arguments.iter().filter_map(text).collect()
}

fn sort(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
    order: impl FnMut(&StepSeries, &StepSeries) -> Ordering,
) -> WholeResult {
    let mut series = evaluator.eval_vector(&node.arguments[0], steps)?;
    if steps.count == 1 {
        series.sort_by(order);
    }
    Ok(NodeValue::Vector(series))
}

/// Compares the values of the single step; NaN comes last in both directions.
fn by_value(a: &StepSeries, b: &StepSeries, is_descending: bool) -> Ordering {
    let (a, b) = (a.values[0], b.values[0]);
    match (a.is_nan(), b.is_nan()) {
        (false, false) if is_descending => b.total_cmp(&a),
        (false, false) => a.total_cmp(&b),
        (a, b) => a.cmp(&b),
    }
}

fn by_labels(a: &StepSeries, b: &StepSeries, names: &[&str]) -> Ordering {
    let compare = |name: &&str| natural_order(a.labels.get(name), b.labels.get(name));
    let first = names.iter().map(compare).find(|order| order.is_ne());
    first.unwrap_or_else(|| a.labels.cmp(&b.labels))
}

/// Compares texts with the numbers in them as numbers: `a2` comes before `a10`.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        if a.is_empty() || b.is_empty() {
            return a.len().cmp(&b.len());
        }
        let ((left, rest_a), (right, rest_b)) = (next_chunk(a), next_chunk(b));
        let order = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            _ => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
}

/// Splits off the digits, or what is not digits, at the beginning.
fn next_chunk(text: &str) -> (&str, &str) {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit());
    let end = text.find(|next: char| next.is_ascii_digit() != is_number);
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_are_compared_as_numbers() {
        let mut texts = ["a10", "a2", "b1", "a2b", "", "10", "9", "a"];
        texts.sort_by(|a, b| natural_order(a, b));
        assert_eq!(texts, ["", "9", "10", "a", "a2", "a2b", "a10", "b1"]);
    }
}
