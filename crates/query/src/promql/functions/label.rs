//! Functions that change labels: `label_replace`, `label_join`.

use super::super::error::PromqlError;
use super::super::evaluator::{Evaluator, refuse_same_labels};
use super::super::node::{CallNode, ExprNode};
use super::super::re2;
use super::super::steps::Steps;
use super::super::value::NodeValue;
use super::WholeResult;

fn text(node: &CallNode, index: usize) -> &str {
    match &node.arguments[index] {
        ExprNode::Text(text) => text,
        _ => "",
    }
}

/// Replaces a label by a template, if an expression matches the whole value of another one.
pub(super) fn replace(
    evaluator: &mut Evaluator<'_>,
    node: &CallNode,
    steps: &Steps,
) -> WholeResult {
    let [target, template, source, expression] = [1, 2, 3, 4].map(|index| text(node, index));
    let expression = re2::compile_anchored(expression).map_err(|_| {
        PromqlError::execution(format!(
            "invalid regular expression in label_replace(): {expression}"
        ))
    })?;
    if target.is_empty() {
        return Err(PromqlError::execution(format!(
            "invalid destination label name in label_replace(): {target}"
        )));
    }
    let mut series = evaluator.eval_vector(&node.arguments[0], steps)?;
    for one in &mut series {
        evaluator.budget.spend(64)?;
        let text = one.labels.get(source);
        if let Some(captures) = expression.captures(text) {
            // Each reference inserts at most the whole text.
            let bytes_max = template.len() + template.matches('$').count() * text.len();
            evaluator.budget.reserve(bytes_max)?;
            let mut value = String::new();
            captures.expand(template, &mut value);
            one.labels = one.labels.with(target, &value);
            evaluator.budget.release(bytes_max);
            evaluator.reserve_labels(&one.labels)?;
        }
    }
    refuse_same_labels(&series)?;
    Ok(NodeValue::Vector(series))
}

/// Sets a label to the values of other labels, joined by a separator.
pub(super) fn join(evaluator: &mut Evaluator<'_>, node: &CallNode, steps: &Steps) -> WholeResult {
    let (target, separator) = (text(node, 1), text(node, 2));
    let sources: Vec<&str> = (3..node.arguments.len())
        .map(|index| text(node, index))
        .collect();
    for (name, kind) in sources
        .iter()
        .map(|name| (*name, "source"))
        .chain([(target, "destination")])
    {
        if name.is_empty() {
            return Err(PromqlError::execution(format!(
                "invalid {kind} label name in label_join(): {name}"
            )));
        }
    }
    let mut series = evaluator.eval_vector(&node.arguments[0], steps)?;
    for one in &mut series {
        evaluator.budget.spend(64)?;
        let values: Vec<&str> = sources.iter().map(|name| one.labels.get(name)).collect();
        let bytes = values.iter().map(|value| value.len() + separator.len());
        let bytes = bytes.sum();
        evaluator.budget.reserve(bytes)?;
        one.labels = one.labels.with(target, &values.join(separator));
        evaluator.budget.release(bytes);
        evaluator.reserve_labels(&one.labels)?;
    }
    refuse_same_labels(&series)?;
    Ok(NodeValue::Vector(series))
}
