//! Requests to the nodes below: to one node, whose response is streamed, or to many children at
//! once. No task is started for a request; the tasks of the children's streams deliver responses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pegel_tree_protocol::limits::CHUNK_BYTES;
use pegel_tree_protocol::{
    BodyParts, BoxFuture, FanOut, Header, NodeRow, NodeTree, Request, TreeCallError, TreeRequest,
    TreeResponse, parent_message,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::Parent;
use super::child_link::{ChildLink, FanOutCollector, STREAM_CREDIT};
use crate::messages::encode_to_child;

/// The share of a deadline that a child gets, so that its response arrives in time.
const CHILD_SHARE: f64 = 0.9;
/// A child that does not answer a request for this time is listed as a problem.
const NAMED_AFTER: Duration = Duration::from_secs(4);

impl NodeTree for Parent {
    fn tree_json(&self) -> serde_json::Value {
        self.tree_shape()
    }

    fn nodes(&self) -> Vec<NodeRow> {
        self.node_rows()
    }

    fn request_node(
        &self,
        node: &str,
        request: TreeRequest,
    ) -> BoxFuture<'_, Result<TreeResponse, TreeCallError>> {
        let node = node.to_owned();
        Box::pin(async move {
            let link = {
                let registry = self.registry.lock();
                let route = registry.route(&node);
                let (_, child) = route.ok_or_else(|| TreeCallError::UnknownNode(node.clone()))?;
                let link = child.link.clone();
                link.ok_or_else(|| TreeCallError::NotConnected(node.clone()))?
            };
            let id = self.next_request_id();
            self.context.counts.requests_sent.add(1);
            let deadline = Instant::now() + request.deadline;
            // A leaf knows its name: the name is needed to route through parents.
            let message = encode_request(id, &node, request, STREAM_CREDIT);
            let mut response = link.request_stream(id, message);
            let guard = StreamGuard {
                link: link.clone(),
                id,
            };
            let head = match timeout_at(deadline, &mut response.head).await {
                Ok(Ok(head)) => head?,
                Ok(Err(_)) => return Err(TreeCallError::NotConnected(node)),
                Err(_) => return Err(TreeCallError::TimedOut(node)),
            };
            Ok(TreeResponse {
                status: u16::try_from(head.status).unwrap_or(502),
                headers: headers_of(head.headers),
                body: Box::new(StreamedBody {
                    parts: response.parts,
                    guard,
                    node,
                    deadline,
                    taken: 0,
                }),
            })
        })
    }

    fn fan_out(
        &self,
        nodes: &[String],
        request: TreeRequest,
        bytes_max: usize,
    ) -> BoxFuture<'_, FanOut> {
        let nodes = nodes.to_vec();
        Box::pin(async move { self.send_to_all(&nodes, request, bytes_max).await })
    }
}

impl Parent {
    fn next_request_id(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the connections of the children to ask, and those that cannot be asked.
    fn chosen_links(&self, nodes: &[String]) -> (Vec<Arc<ChildLink>>, FanOut) {
        let mut failed = FanOut::default();
        let registry = self.registry.lock();
        if nodes.is_empty() {
            for (name, child) in &registry.children {
                if child.link.is_none() {
                    let error = TreeCallError::NotConnected(name.clone());
                    failed.failed.push((error, registry.nodes_of(name)));
                }
            }
            return (registry.connected().cloned().collect(), failed);
        }
        let mut links: Vec<Arc<ChildLink>> = Vec::new();
        for node in nodes.iter().filter(|node| **node != self.context.node) {
            match registry.route(node) {
                None => {
                    let error = TreeCallError::UnknownNode(node.clone());
                    failed.failed.push((error, vec![node.clone()]));
                }
                Some((_, child)) => match &child.link {
                    None => {
                        let error = TreeCallError::NotConnected(node.clone());
                        failed.failed.push((error, vec![node.clone()]));
                    }
                    Some(link) if links.iter().any(|known| Arc::ptr_eq(known, link)) => {}
                    Some(link) => links.push(link.clone()),
                },
            }
        }
        (links, failed)
    }

    async fn send_to_all(
        &self,
        nodes: &[String],
        request: TreeRequest,
        bytes_max: usize,
    ) -> FanOut {
        let (links, mut out) = self.chosen_links(nodes);
        if links.is_empty() {
            return out;
        }
        let id = self.next_request_id();
        self.context.counts.requests_sent.add(links.len() as u64);
        let deadline = request.deadline;
        // One part more than accepted: a response that is too large fails at once, instead of
        // waiting for credit until the deadline.
        let credit = bytes_max.saturating_add(CHUNK_BYTES);
        let credit = u32::try_from(credit).unwrap_or(u32::MAX);
        // Ids are unique in the whole agent, so that all children get the same bytes.
        let message = encode_request(id, "", request, credit);
        let collector = FanOutCollector::new(links.len(), bytes_max);
        let guard = FanOutGuard { links, id };
        for (index, link) in guard.links.iter().enumerate() {
            link.request_collected(id, message.clone(), collector.clone(), index, credit);
        }
        let _ = timeout(deadline, collector.complete()).await;
        for (link, result) in guard.links.iter().zip(collector.take()) {
            let error = match result {
                Some(Ok(answer)) => {
                    out.answers.push(answer);
                    continue;
                }
                Some(Err(error)) => error,
                None => TreeCallError::TimedOut(link.node.clone()),
            };
            if deadline >= NAMED_AFTER && matches!(error, TreeCallError::TimedOut(_)) {
                let message = format!("no answer in {} s", deadline.as_secs());
                self.context.problem("", &link.node, "timeout", &message);
            }
            let nodes = self.registry.lock().nodes_of(&link.node);
            out.failed.push((error, nodes));
        }
        out
    }
}

fn encode_request(id: u64, node: &str, request: TreeRequest, credit: u32) -> Bytes {
    let deadline = request.deadline.mul_f64(CHILD_SHARE).as_millis();
    encode_to_child(parent_message::Kind::Request(Request {
        id,
        node: node.to_owned(),
        method: request.method,
        target: request.target,
        headers: { request.headers.into_iter() }
            .map(|(name, value)| Header { name, value })
            .collect(),
        body: request.body,
        deadline_ms: u32::try_from(deadline).unwrap_or(u32::MAX),
        credit,
        is_owner: request.is_owner,
    }))
}

pub(crate) fn headers_of(headers: Vec<Header>) -> Vec<(String, String)> {
    let headers = headers.into_iter();
    headers.map(|header| (header.name, header.value)).collect()
}

/// Cancels a streamed response when it is not read to its end.
struct StreamGuard {
    link: Arc<ChildLink>,
    id: u64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.link.cancel(self.id);
    }
}

/// Cancels the responses of a fan-out that are still owed.
struct FanOutGuard {
    links: Vec<Arc<ChildLink>>,
    id: u64,
}

impl Drop for FanOutGuard {
    fn drop(&mut self) {
        for link in &self.links {
            link.cancel(self.id);
        }
    }
}

/// The body of a streamed response. Credit is returned as it is read.
struct StreamedBody {
    parts: mpsc::Receiver<Result<Bytes, TreeCallError>>,
    guard: StreamGuard,
    node: String,
    deadline: Instant,
    /// The bytes for which no credit was returned yet.
    taken: usize,
}

/// How long after its deadline a response that is being received may end.
const DEADLINE_GRACE: Duration = Duration::from_secs(1);

impl BodyParts for StreamedBody {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>> {
        Box::pin(async move {
            let deadline = self.deadline + DEADLINE_GRACE;
            match timeout_at(deadline, self.parts.recv()).await {
                Ok(Some(Ok(part))) => {
                    self.taken += part.len();
                    if self.taken >= STREAM_CREDIT as usize / 4 {
                        self.guard.link.grant(self.guard.id, self.taken);
                        self.taken = 0;
                    }
                    Some(Ok(part))
                }
                Ok(other) => other,
                Err(_) => {
                    self.parts.close();
                    Some(Err(TreeCallError::TimedOut(self.node.clone())))
                }
            }
        })
    }
}
