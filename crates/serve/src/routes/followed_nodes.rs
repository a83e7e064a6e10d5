//! The nodes whose values a stream of a parent contains. They are polled: each event asks the nodes
//! for their current values and holds those that changed.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use pegel_metric::{Selector, Series};
use pegel_store::LatestValue;

use super::node_values::{CurrentSeries, values_of_each};
use super::nodes_parameter::NodesParameter;
use crate::api_error::ApiError;
use crate::tree::{NodeChoice, TreeAccess};

/// The shortest time between two polls, in seconds.
pub(super) const POLL_PERIOD_MIN: f64 = 1.0;

/// How many series one stream may follow: their values are kept until the client disconnects.
const SERIES_MAX: usize = 100_000;

pub(super) struct FollowedNodes {
    tree: TreeAccess,
    choice: NodeChoice,
    known: HashMap<Arc<Series>, LatestValue>,
}

impl FollowedNodes {
    /// Returns the nodes of the parameter `nodes`; `None` without it.
    pub(super) fn new(tree: Option<TreeAccess>, nodes: &NodesParameter) -> Option<FollowedNodes> {
        let tree = tree?;
        match nodes {
            NodesParameter::Absent => {
                tree.record.expect([tree.context.agent.node.as_str()]);
                None
            }
            NodesParameter::Each | NodesParameter::Named(_) => Some(FollowedNodes {
                tree,
                choice: nodes.choice(),
                known: HashMap::new(),
            }),
        }
    }

    /// Returns the values that changed since the last poll. Blocks.
    pub(super) fn poll(&mut self, selector: &Selector) -> Result<CurrentSeries, ApiError> {
        let source = self.tree.source(self.choice.clone())?;
        let mut found = values_of_each(&source, selector)?;
        // A node that did not answer is asked again by the next poll.
        self.tree = self.tree.renewed();
        let known = &mut self.known;
        found.retain(|(series, latest)| {
            let before = known.insert(series.clone(), *latest);
            let is_same = |before: LatestValue| {
                before.value.to_bits() == latest.value.to_bits()
                    && before.last_changed == latest.last_changed
            };
            !before.is_some_and(is_same)
        });
        if known.len() > SERIES_MAX {
            let message = format!("a stream of nodes is limited to {SERIES_MAX} series");
            let failure = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message);
            return Err(failure.hint("select fewer series with match="));
        }
        Ok(found)
    }
}
