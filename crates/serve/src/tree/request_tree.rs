//! How a handler reaches the tree: an extractor that holds what the nodes of one request share.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use pegel_query::promql::StoreSource;
use pegel_tree_protocol::NodeTree;
use tokio::runtime::Handle;

use super::chosen_nodes::ChosenNodes;
use super::node_index::{NodeChoice, NodeIndex};
use super::node_record::NodeRecord;
use super::promql_source::PromqlSource;
use super::tree_source::TreeSource;
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller};
use crate::request_history::RequestHistory;
use crate::server_context::ServerContext;

/// When a request that came through the tree must be answered. A request extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeDeadline(pub Instant);

/// Marks a request for this agent alone, as one of its nodes. A request extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnSeriesOnly;

/// The tree, for one request; `None` on an agent without one.
#[derive(Debug, Clone)]
pub(crate) struct RequestTree(pub Option<TreeAccess>);

/// The tree, the rights of the client and the record of its nodes.
#[derive(Clone)]
pub(crate) struct TreeAccess {
    pub tree: Arc<dyn NodeTree>,
    pub record: Arc<NodeRecord>,
    pub context: Arc<ServerContext>,
    pub is_owner: bool,
    pub deadline: Option<Instant>,
    /// Records the use of this agent's own history.
    pub history: Option<RequestHistory>,
    /// Drives the calls of blocking threads.
    pub runtime: Handle,
}

impl fmt::Debug for TreeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeAccess")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestTree {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<RequestTree, Infallible> {
        Ok(RequestTree(TreeAccess::of_request(head)))
    }
}

impl TreeAccess {
    fn of_request(head: &Parts) -> Option<TreeAccess> {
        let extensions = &head.extensions;
        if extensions.get::<OwnSeriesOnly>().is_some() {
            return None;
        }
        let context = extensions.get::<Arc<ServerContext>>()?;
        let caller = extensions.get::<Caller>()?;
        Some(TreeAccess {
            tree: context.agent.tree.clone()?,
            record: extensions.get::<Arc<NodeRecord>>()?.clone(),
            context: context.clone(),
            is_owner: caller.rights == AccessRights::Owner,
            deadline: extensions.get::<TreeDeadline>().map(|deadline| deadline.0),
            history: extensions.get::<RequestHistory>().cloned(),
            runtime: Handle::current(),
        })
    }

    /// Returns the same access without the record and the deadline of the request, for a response
    /// that continues.
    pub(crate) fn renewed(&self) -> TreeAccess {
        TreeAccess {
            record: Arc::default(),
            deadline: None,
            ..self.clone()
        }
    }

    pub(crate) fn index(&self) -> NodeIndex {
        NodeIndex::new(&self.context.agent.node, &self.tree.nodes())
    }

    /// Returns the nodes of a choice, all of which must exist.
    pub(crate) fn nodes(&self, choice: NodeChoice) -> Result<ChosenNodes, ApiError> {
        let index = self.index();
        index.check(&choice)?;
        Ok(ChosenNodes::new(self.clone(), index, choice))
    }

    /// Returns all nodes.
    pub(crate) fn all_nodes(&self) -> ChosenNodes {
        ChosenNodes::new(self.clone(), self.index(), NodeChoice::All)
    }

    pub(crate) fn source(&self, choice: NodeChoice) -> Result<TreeSource, ApiError> {
        let own = self.context.promql_for(self.history.as_ref());
        Ok(TreeSource::new(self.nodes(choice)?, own.stored_series()))
    }
}

impl RequestTree {
    /// Returns the series of all nodes, for PromQL; `own` has those of this agent.
    pub(crate) fn promql_source(&self, own: StoreSource) -> PromqlSource {
        match &self.0 {
            None => PromqlSource::Own(own),
            Some(access) => PromqlSource::of_tree(own, access.all_nodes()),
        }
    }

    /// Returns the warning of a response that lacks nodes.
    pub(crate) fn warning(&self) -> Option<String> {
        self.0.as_ref()?.record.warning()
    }
}
