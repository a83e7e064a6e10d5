//! The traits between the HTTP server and the tree. The server of a parent calls [`NodeTree`] to
//! reach the nodes below; the tree of a child calls [`LocalServer`] to answer requests that come
//! from above. Neither knows the other's implementation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::NodeOverview;

/// A future that the caller may drop at any time: the request then ends.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A request of HTTP's form that travels through the tree.
#[derive(Debug, Clone)]
pub struct TreeRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub deadline: Duration,
    /// Whether the client has the rights of the agent's user where it sent the request.
    pub is_owner: bool,
}

/// The head of a response and the stream of its body.
pub struct TreeResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Returns the next part of the body, `None` at its end. An error ends it.
    pub body: Box<dyn BodyParts>,
}

/// The body of a response, part by part.
pub trait BodyParts: Send {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>>;
}

impl fmt::Debug for TreeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Why a node did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeCallError {
    #[error("there is no node \"{0}\" below this agent")]
    UnknownNode(String),
    #[error("node {0} is not connected")]
    NotConnected(String),
    #[error("node {0} did not answer in time")]
    TimedOut(String),
    #[error("the response of node {node} exceeds {limit} bytes")]
    TooLarge { node: String, limit: usize },
    #[error("node {node}: {message}")]
    Failed { node: String, message: String },
}

/// The complete response of one child.
#[derive(Debug, Clone)]
pub struct ChildAnswer {
    pub child: String,
    /// Whether the child is a parent: its response then covers its subtree and names its nodes.
    pub is_parent: bool,
    pub status: u16,
    pub body: Bytes,
}

/// Which nodes contributed to an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReport {
    pub answered: u32,
    pub expected: u32,
    /// The names of those that did not, sorted.
    pub late: Vec<String>,
}

/// The responses of all children that were asked.
#[derive(Debug, Clone, Default)]
pub struct FanOut {
    pub answers: Vec<ChildAnswer>,
    /// Children that failed, with the nodes below them. The nodes of children that answered are
    /// not counted here: their responses state them.
    pub failed: Vec<(TreeCallError, Vec<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    Up,
    /// Connected, and no tick arrived for some intervals.
    Late,
    /// Not connected.
    Lost,
    /// Its connection is refused: a duplicate name, a wrong version, a wrong credential.
    Refused,
}

impl NodeStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeStatus::Up => "up",
            NodeStatus::Late => "late",
            NodeStatus::Lost => "lost",
            NodeStatus::Refused => "refused",
        }
    }
}

/// A node of the tree, as `/api/v1/nodes` lists it.
#[derive(Debug, Clone)]
pub struct NodeRow {
    pub node: String,
    /// The node's parent; empty for the agent itself.
    pub parent: String,
    pub status: NodeStatus,
    /// How long after its time the newest tick arrived.
    pub lag_ms: Option<i32>,
    /// The clock of the node minus the clock of its parent.
    pub clock_offset_ms: Option<i32>,
    pub version: String,
    pub is_parent: bool,
    pub overview: NodeOverview,
    /// Figures that stand out: `(figure, value, median of the nodes)`.
    pub outliers: Vec<(&'static str, f64, f64)>,
    /// Why the node is late, lost or refused; otherwise empty.
    pub problem: String,
}

/// The nodes below this agent.
pub trait NodeTree: Send + Sync {
    /// Returns the shape of the tree and its problems as JSON, for `/api/v1/tree`.
    fn tree_json(&self) -> serde_json::Value;

    /// Returns the agent itself and all nodes below it, sorted by name.
    fn nodes(&self) -> Vec<NodeRow>;

    /// Sends a request to one node and returns its response as it arrives.
    fn request_node(
        &self,
        node: &str,
        request: TreeRequest,
    ) -> BoxFuture<'_, Result<TreeResponse, TreeCallError>>;

    /// Sends a request to every child that has one of `nodes` at or below it, or to all children if
    /// `nodes` is empty. Waits for complete responses of at most `bytes_max` bytes in total, at
    /// most until the deadline of the request.
    fn fan_out(
        &self,
        nodes: &[String],
        request: TreeRequest,
        bytes_max: usize,
    ) -> BoxFuture<'_, FanOut>;
}

/// The HTTP server of this agent, for requests that come through the tree.
pub trait LocalServer: Send + Sync {
    fn respond(&self, request: TreeRequest) -> BoxFuture<'_, TreeResponse>;
}
