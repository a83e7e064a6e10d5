//! Finds the parts of an expression that have the same value at every step.

use super::node::Node;

/// Wraps a vector expression whose value is the same at every step: all its selectors have an `@`,
/// and no function depends on the time of evaluation.
pub(crate) fn mark_constant(node: Node) -> Node {
    match node {
        Node::Number(_) | Node::Text(_) | Node::Range(_) | Node::Constant(_) => node,
        _ if is_constant(&node) => Node::Constant(Box::new(node)),
        _ => node,
    }
}

fn is_constant(node: &Node) -> bool {
    match node {
        Node::Number(_) | Node::Text(_) | Node::Constant(_) => true,
        Node::Selector(selector) => selector.shift.at.is_some(),
        // The times of a subquery without `@` move with the step.
        Node::Range(range) => range.shift.at.is_some(),
        Node::Call(call) => {
            !call.function.depends_on_time && call.arguments.iter().all(is_constant)
        }
        Node::Aggregate(aggregate) => {
            is_constant(&aggregate.expression)
                && aggregate.parameter.as_deref().is_none_or(is_constant)
        }
        Node::Binary(binary) => is_constant(&binary.left) && is_constant(&binary.right),
        Node::Negate(inner) => is_constant(inner),
    }
}
