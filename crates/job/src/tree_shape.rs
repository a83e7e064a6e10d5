//! The place of every node in the tree of a job. The head has up to `fan_out` children, the nodes
//! with the lowest numbers; every other node has one of the nodes before it as its parent. A child
//! whose parent is missing reports to the head instead.

/// The parent of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentOfNode {
    Head,
    /// The node with this number.
    Node(usize),
}

/// Returns the parent of a node; the head itself has no number.
pub fn parent_of(number: usize, fan_out: usize) -> ParentOfNode {
    match number.checked_sub(fan_out) {
        None => ParentOfNode::Head,
        Some(rest) => ParentOfNode::Node(rest / fan_out.max(1)),
    }
}

/// Returns whether a node has nodes below it.
pub fn is_parent(number: usize, count: usize, fan_out: usize) -> bool {
    // Its first child has this number.
    number
        .checked_mul(fan_out)
        .and_then(|first| first.checked_add(fan_out))
        .is_some_and(|first| first < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_parent_has_more_children_than_the_fan_out() {
        for (count, fan_out) in [
            (0, 64),
            (1, 64),
            (64, 64),
            (65, 64),
            (5000, 64),
            (9, 2),
            (7, 1),
        ] {
            let mut children = vec![0; count];
            let mut of_head = 0;
            for number in 0..count {
                match parent_of(number, fan_out) {
                    ParentOfNode::Head => of_head += 1,
                    ParentOfNode::Node(parent) => {
                        assert!(parent < number, "{parent} of {number}");
                        children[parent] += 1;
                    }
                }
            }
            assert!(of_head <= fan_out);
            for (number, children) in children.iter().enumerate() {
                assert!(*children <= fan_out);
                assert_eq!(*children > 0, is_parent(number, count, fan_out), "{number}");
            }
        }
    }
}
