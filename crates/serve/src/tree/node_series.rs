//! The series of all nodes, for the rules of a parent.

use std::fmt;
use std::sync::Arc;

use pegel_query::promql::{
    PromqlError, PushedAggregation, PushedSeries, Selection, SeriesSampleVisitor, SeriesSource,
    StoreSource,
};
use pegel_tree_protocol::{NodeStatus, NodeTree};
use tokio::runtime::Handle;

use super::node_record::NodeRecord;
use super::promql_source::PromqlSource;
use super::request_tree::TreeAccess;
use crate::server_context::ServerContext;

/// The series of this agent and of all nodes below it, with the label `host`.
pub struct NodeSeries {
    own: StoreSource,
    tree: Arc<dyn NodeTree>,
    context: Arc<ServerContext>,
    runtime: Handle,
}

impl fmt::Debug for NodeSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSeries").finish_non_exhaustive()
    }
}

impl NodeSeries {
    /// `own` has the series of this agent.
    pub(crate) fn new(
        context: &Arc<ServerContext>,
        own: StoreSource,
        runtime: Handle,
    ) -> Option<NodeSeries> {
        Some(NodeSeries {
            own,
            tree: context.agent.tree.clone()?,
            context: context.clone(),
            runtime,
        })
    }

    /// Returns the nodes of this moment. Selecting from them blocks; a node that did not answer
    /// once is not asked again.
    pub fn now(&self) -> NodeSeriesNow {
        let access = TreeAccess {
            tree: self.tree.clone(),
            record: Arc::new(NodeRecord::default()),
            context: self.context.clone(),
            is_owner: true,
            deadline: None,
            history: None,
            runtime: self.runtime.clone(),
        };
        let source = PromqlSource::of_tree(self.own.clone(), access.all_nodes());
        NodeSeriesNow { access, source }
    }
}

/// The series of the nodes of one moment.
#[derive(Debug)]
pub struct NodeSeriesNow {
    access: TreeAccess,
    source: PromqlSource,
}

impl NodeSeriesNow {
    /// Returns the nodes that did not answer so far, and whether each is connected.
    pub fn missing(&self) -> Vec<(String, bool)> {
        let late = self.access.record.report().late;
        if late.is_empty() {
            return Vec::new();
        }
        let rows = self.access.tree.nodes();
        let is_connected = |name: &String| {
            let row = rows.iter().find(|row| row.node == *name);
            row.is_some_and(|row| row.status != NodeStatus::Lost)
        };
        let missing = late.into_iter();
        missing
            .map(|name| {
                let is_connected = is_connected(&name);
                (name, is_connected)
            })
            .collect()
    }
}

impl SeriesSource for NodeSeriesNow {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.source.select(selection, visit)
    }

    fn takes_aggregations(&self) -> bool {
        self.source.takes_aggregations()
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        self.source.aggregate(pushed)
    }
}
