//! Finds the parts of an expression that have the same value at every step.

use super::node::ExprNode;

/// Wraps a vector expression whose value is the same at every step: all its selectors have an `@`,
/// and no function depends on the time of evaluation.
pub(crate) fn mark_constant(node: ExprNode) -> ExprNode {
    match node {
        ExprNode::Number(_) | ExprNode::Text(_) | ExprNode::Range(_) | ExprNode::Constant(_) => {
            node
        }
        _ if is_constant(&node) => ExprNode::Constant(Box::new(node)),
        _ => node,
    }
}

fn is_constant(node: &ExprNode) -> bool {
    match node {
        ExprNode::Number(_) | ExprNode::Text(_) | ExprNode::Constant(_) => true,
        ExprNode::Selector(selector) => selector.shift.at.is_some(),
        // The times of a subquery without `@` move with the step.
        ExprNode::Range(range) => range.shift.at.is_some(),
        ExprNode::Call(call) => {
            !call.function.depends_on_time && call.arguments.iter().all(is_constant)
        }
        ExprNode::Aggregate(aggregate) => {
            is_constant(&aggregate.expression)
                && aggregate.parameter.as_deref().is_none_or(is_constant)
        }
        ExprNode::Binary(binary) => is_constant(&binary.left) && is_constant(&binary.right),
        ExprNode::Negate(inner) => is_constant(inner),
    }
}
