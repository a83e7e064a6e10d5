//! Example nodes of a tree for tests.

use crate::listed_node::{ListedNode, NodeListing, OutlierFigure};

/// Returns the nodes of a parent: itself and `count` others, which are the busier the higher their
/// number. The second is late, the third has a figure that stands out.
pub(crate) fn nodes(count: usize) -> NodeListing {
    let node = |index: usize| ListedNode {
        node: match index {
            0 => "head1".to_owned(),
            index => format!("n{index:04}"),
        },
        parent: if index == 0 { "" } else { "head1" }.to_owned(),
        state: if index == 2 { "late" } else { "up" }.to_owned(),
        lag_ms: Some(12.0 + index as f64),
        clock_offset_ms: Some(-1.0),
        is_parent: index == 0,
        busy: Some(100.0 * index as f64 / count as f64),
        memory: Some(40.2),
        load: Some(1.25),
        outliers: match index {
            3 => vec![OutlierFigure {
                figure: "memory".to_owned(),
                value: 97.0,
                median: 40.0,
            }],
            _ => Vec::new(),
        },
        problem: match index {
            2 => "no tick for 4 s".to_owned(),
            _ => String::new(),
        },
        ..ListedNode::default()
    };
    NodeListing {
        own: "head1".to_owned(),
        nodes: (0..=count).map(node).collect(),
    }
}
