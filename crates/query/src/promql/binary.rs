//! Binary operators between scalars, and between a vector and a scalar.

use super::error::PromqlError;
use super::evaluator::{Evaluator, join_same_labels};
use super::node::{BinaryNode, Operator};
use super::steps::Steps;
use super::value::{ABSENT, NodeValue, StepSeries, is_absent};
use super::vector_match;

/// Evaluates a binary operator.
pub(crate) fn binary(
    evaluator: &mut Evaluator<'_>,
    node: &BinaryNode,
    steps: &Steps,
) -> Result<NodeValue, PromqlError> {
    let left = evaluator.eval(&node.left, steps)?;
    let right = evaluator.eval(&node.right, steps)?;
    match (left, right) {
        (NodeValue::Scalar(mut left), NodeValue::Scalar(right)) => {
            evaluator.budget.spend(steps.count)?;
            for (left, right) in left.iter_mut().zip(&right) {
                *left = scalar_result(node.operator, *left, *right);
            }
            evaluator.budget.release(size_of_val(&right[..]));
            Ok(NodeValue::Scalar(left))
        }
        (NodeValue::Vector(series), NodeValue::Scalar(scalars)) => {
            with_scalar(evaluator, node, series, &scalars, |value, scalar| {
                (value, scalar)
            })
        }
        (NodeValue::Scalar(scalars), NodeValue::Vector(series)) => {
            with_scalar(evaluator, node, series, &scalars, |value, scalar| {
                (scalar, value)
            })
        }
        (NodeValue::Vector(left), NodeValue::Vector(right)) => {
            let result = vector_match::combine(evaluator, node, (&left, &right), steps)?;
            evaluator.release_series(&left);
            evaluator.release_series(&right);
            Ok(NodeValue::Vector(result))
        }
        _ => Err(PromqlError::bad_data(
            "binary expression must contain only scalar and instant vector types",
        )),
    }
}

/// Computes an arithmetic operator.
fn arithmetic(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Sub => left - right,
        Operator::Mul => left * right,
        Operator::Div => left / right,
        Operator::Mod => left % right,
        Operator::Pow => left.powf(right),
        Operator::Atan2 => left.atan2(right),
        _ => f64::NAN,
    }
}

fn compares(operator: Operator, left: f64, right: f64) -> bool {
    match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Greater => left > right,
        Operator::GreaterEqual => left >= right,
        Operator::Less => left < right,
        Operator::LessEqual => left <= right,
        _ => false,
    }
}

fn scalar_result(operator: Operator, left: f64, right: f64) -> f64 {
    if operator.is_comparison() {
        return f64::from(u8::from(compares(operator, left, right)));
    }
    arithmetic(operator, left, right)
}

/// Computes an element of a result. A comparison that does not hold has none; one that holds has
/// the value `kept`.
#[inline]
pub(crate) fn element_result(
    (operator, returns_bool): (Operator, bool),
    left: f64,
    right: f64,
    kept: f64,
) -> Option<f64> {
    if !operator.is_comparison() {
        return Some(arithmetic(operator, left, right));
    }
    let holds = compares(operator, left, right);
    if returns_bool {
        return Some(f64::from(u8::from(holds)));
    }
    holds.then_some(kept)
}

/// Combines every value of a vector with the scalar of its step.
fn with_scalar(
    evaluator: &mut Evaluator<'_>,
    node: &BinaryNode,
    mut series: Vec<StepSeries>,
    scalars: &[f64],
    order: fn(f64, f64) -> (f64, f64),
) -> Result<NodeValue, PromqlError> {
    let operation = (node.operator, node.returns_bool);
    let drops_name = !node.operator.is_comparison() || node.returns_bool;
    for one in &mut series {
        evaluator.budget.spend(one.values.len())?;
        for (value, scalar) in one.values.iter_mut().zip(scalars) {
            if !is_absent(*value) {
                let (left, right) = order(*value, *scalar);
                *value = element_result(operation, left, right, *value).unwrap_or(ABSENT);
            }
        }
        if drops_name {
            one.labels = one.labels.without_name();
        }
    }
    evaluator.budget.release(size_of_val(scalars));
    Ok(NodeValue::Vector(join_same_labels(series)?))
}
