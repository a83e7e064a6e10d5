//! Answers the requests of the parent: by this agent's own server, by the tree for partial results,
//! or by a node below. Responses are sent in parts, as far as the parent gives credit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pegel_tree_protocol::limits::CHUNK_BYTES;
use pegel_tree_protocol::{
    BodyParts, BoxFuture, Header, NodeTree, Request, ResponseChunk, ResponseHead, SelectRequest,
    TreeCallError, TreeRequest, TreeResponse, check_select, child_message, select_request::Content,
};
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::Uplink;
use crate::messages::encode_to_parent;
use crate::parent::{SELECT_TARGET, headers_of, subtree_partials};

/// The requests that are answered at a time. Others get the status 503.
const REQUESTS_MAX: usize = 32;
/// The credit that is kept.
const CREDIT_MAX: usize = 1 << 30;

/// The requests of one connection. Dropping it ends them.
pub(super) struct RequestTable {
    uplink: Arc<Uplink>,
    outgoing: mpsc::Sender<Bytes>,
    running: Arc<Mutex<HashMap<u64, RunningRequest>>>,
}

struct RunningRequest {
    credit: Arc<Semaphore>,
    /// `None` until the task has started.
    task: Option<AbortHandle>,
}

impl Drop for RequestTable {
    fn drop(&mut self) {
        for (_, request) in self.running.lock().drain() {
            if let Some(task) = request.task {
                task.abort();
            }
        }
    }
}

impl RequestTable {
    pub(super) fn new(uplink: Arc<Uplink>, outgoing: mpsc::Sender<Bytes>) -> RequestTable {
        RequestTable {
            uplink,
            outgoing,
            running: Arc::default(),
        }
    }

    /// Starts to answer a request.
    pub(super) fn start(&self, request: Request) {
        self.uplink.context.counts.requests_received.add(1);
        let id = request.id;
        let credit = (request.credit as usize).min(CREDIT_MAX);
        let mut answer = Answer {
            outgoing: self.outgoing.clone(),
            id,
            credit: Arc::new(Semaphore::new(credit)),
            deadline: Instant::now() + Duration::from_millis(request.deadline_ms.into()),
        };
        let mut running = self.running.lock();
        if running.len() >= REQUESTS_MAX || running.contains_key(&id) {
            drop(running);
            let busy = text_response(503, "too many requests at a time");
            // Without waiting: a parent that sends too many requests gets too few responses.
            let head = answer.encode_head(busy.status, Vec::new());
            let _ = answer.outgoing.try_send(head);
            let _ = answer
                .outgoing
                .try_send(answer.encode_chunk(Bytes::new(), true, ""));
            return;
        }
        let entry = RunningRequest {
            credit: answer.credit.clone(),
            task: None,
        };
        running.insert(id, entry);
        drop(running);
        let (uplink, table) = (self.uplink.clone(), self.running.clone());
        let task = tokio::spawn(async move {
            answer.run(&uplink, request).await;
            table.lock().remove(&id);
        });
        if let Some(entry) = self.running.lock().get_mut(&id) {
            entry.task = Some(task.abort_handle());
        }
    }

    pub(super) fn grant(&self, id: u64, bytes: u32) {
        if let Some(request) = self.running.lock().get(&id) {
            let room = CREDIT_MAX.saturating_sub(request.credit.available_permits());
            request.credit.add_permits((bytes as usize).min(room));
        }
    }

    pub(super) fn cancel(&self, id: u64) {
        let canceled = self.running.lock().remove(&id);
        if let Some(task) = canceled.and_then(|request| request.task) {
            task.abort();
        }
    }
}

/// A response whose body is text.
fn text_response(status: u16, message: &str) -> TreeResponse {
    let headers = vec![(
        "content-type".to_owned(),
        "text/plain; charset=utf-8".to_owned(),
    )];
    TreeResponse {
        status,
        headers,
        body: Box::new(OnePart(Some(format!("{message}\n").into()))),
    }
}

/// A body of one part.
struct OnePart(Option<Bytes>);

impl BodyParts for OnePart {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>> {
        let part = self.0.take().filter(|part| !part.is_empty());
        Box::pin(std::future::ready(part.map(Ok)))
    }
}

/// The response to one request, on its way to the parent.
struct Answer {
    outgoing: mpsc::Sender<Bytes>,
    id: u64,
    credit: Arc<Semaphore>,
    deadline: Instant,
}

impl Answer {
    async fn run(&mut self, uplink: &Arc<Uplink>, request: Request) {
        let response = timeout_at(self.deadline, respond(uplink, request)).await;
        let mut response =
            response.unwrap_or_else(|_| text_response(504, "the node did not answer in time"));
        let headers = std::mem::take(&mut response.headers);
        let head = self.encode_head(response.status, headers);
        if self.outgoing.send(head).await.is_err() {
            return;
        }
        let error = loop {
            match timeout_at(self.deadline, response.body.next_part()).await {
                Ok(Some(Ok(part))) => {
                    if !self.send_part(part).await {
                        break "the response did not end in time".to_owned();
                    }
                }
                Ok(None) => break String::new(),
                Ok(Some(Err(error))) => break error.to_string(),
                Err(_) => break "the response did not end in time".to_owned(),
            }
        };
        let last = self.encode_chunk(Bytes::new(), true, &error);
        let _ = self.outgoing.send(last).await;
    }

    /// Sends a part when there is credit for it. Returns false if there is none in time.
    async fn send_part(&self, mut part: Bytes) -> bool {
        while !part.is_empty() {
            // As much as there is credit for, but not byte by byte.
            let available = self.credit.available_permits().max(1024);
            let size = part.len().min(CHUNK_BYTES / 4).min(available);
            let acquired = self.credit.acquire_many(size as u32);
            match timeout_at(self.deadline, acquired).await {
                Ok(Ok(permit)) => permit.forget(),
                _ => return false,
            }
            let chunk = self.encode_chunk(part.split_to(size), false, "");
            if self.outgoing.send(chunk).await.is_err() {
                return false;
            }
        }
        true
    }

    fn encode_head(&self, status: u16, headers: Vec<(String, String)>) -> Bytes {
        let headers = headers.into_iter();
        let headers = headers.map(|(name, value)| Header { name, value });
        encode_to_parent(child_message::Kind::Response(ResponseHead {
            id: self.id,
            status: status.into(),
            headers: headers.collect(),
        }))
    }

    fn encode_chunk(&self, data: Bytes, is_last: bool, error: &str) -> Bytes {
        encode_to_parent(child_message::Kind::Chunk(ResponseChunk {
            id: self.id,
            data,
            is_last,
            error: error.to_owned(),
        }))
    }
}

async fn respond(uplink: &Arc<Uplink>, request: Request) -> TreeResponse {
    let is_own = request.node.is_empty() || request.node == uplink.context.node;
    let node = request.node;
    let request = TreeRequest {
        method: request.method,
        target: request.target,
        headers: headers_of(request.headers),
        body: request.body,
        deadline: Duration::from_millis(request.deadline_ms.into()),
        is_owner: request.is_owner,
    };
    if !is_own {
        return forward(uplink, &node, request).await;
    }
    if request.target == SELECT_TARGET
        && let Ok(select) = SelectRequest::decode(request.body.clone())
        && select.content() == Content::Partials
    {
        return partials(uplink, select, request.deadline).await;
    }
    uplink.local.respond(request).await
}

async fn forward(uplink: &Arc<Uplink>, node: &str, request: TreeRequest) -> TreeResponse {
    let response = match &uplink.parent {
        Some(parent) => parent.request_node(node, request).await,
        None => Err(TreeCallError::UnknownNode(node.to_owned())),
    };
    response.unwrap_or_else(|error| {
        let status = match error {
            TreeCallError::UnknownNode(_) => 404,
            TreeCallError::TimedOut(_) => 504,
            _ => 502,
        };
        text_response(status, &error.to_string())
    })
}

async fn partials(uplink: &Arc<Uplink>, select: SelectRequest, time: Duration) -> TreeResponse {
    if let Err(fault) = check_select(&select) {
        return text_response(400, &fault.to_string());
    }
    let bytes_max = usize::try_from(select.bytes_max).unwrap_or(usize::MAX);
    let parent = uplink.parent.as_deref();
    let computed = subtree_partials(&uplink.context, parent, select, time).await;
    match computed.map(|all| all.encode(bytes_max)) {
        Ok(Ok(body)) => TreeResponse {
            status: 200,
            headers: Vec::new(),
            body: Box::new(OnePart(Some(body))),
        },
        Ok(Err(error)) => text_response(413, &error.to_string()),
        Err(error) => text_response(400, &error),
    }
}
