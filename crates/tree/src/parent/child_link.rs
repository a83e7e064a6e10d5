//! The connection to one child, and the responses that it owes: each goes to a stream that a client
//! reads, or is collected by a fan-out. Nothing here waits for the child: a message that does not
//! fit into its queue fails.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use pegel_tree_protocol::{
    ChildAnswer, ResponseChunk, ResponseHead, TreeCallError, parent_message,
};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::messages::encode_to_child;

/// The bytes of a streamed response that may be on their way.
pub(crate) const STREAM_CREDIT: u32 = 64 << 10;
/// The parts of a streamed response that may wait for their reader.
const STREAM_PARTS_MAX: usize = 1024;
/// Bytes of responses that are not expected, besides those of requests that were canceled.
const UNEXPECTED_BYTES_MAX: usize = 1 << 20;

pub(crate) struct ChildLink {
    pub(crate) node: String,
    pub(crate) epoch: u64,
    /// The number of the child in the window of ticks.
    pub(crate) key: u32,
    pub(crate) is_parent: bool,
    outgoing: mpsc::Sender<Bytes>,
    pending: Mutex<HashMap<u64, PendingResponse>>,
    /// The bytes that the child may still send for responses that are not expected any more.
    unexpected_credit: AtomicUsize,
    is_closed: AtomicBool,
    close: Notify,
}

impl fmt::Debug for ChildLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildLink")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// A response that the child owes.
enum PendingResponse {
    Stream {
        head: Option<oneshot::Sender<Result<ResponseHead, TreeCallError>>>,
        parts: mpsc::Sender<Result<Bytes, TreeCallError>>,
        /// The bytes that the child may still send.
        credit: usize,
    },
    Collect {
        collector: Arc<FanOutCollector>,
        index: usize,
        status: u16,
        body: CollectedBody,
        /// The bytes that the child may still send.
        credit: usize,
    },
}

/// The body of a response that is collected.
#[derive(Debug, Default)]
struct CollectedBody {
    bytes: Vec<u8>,
    received: usize,
    /// All responses together exceed the limit: bytes are counted and not kept.
    is_dropped: bool,
}

impl PendingResponse {
    fn credit(&mut self) -> &mut usize {
        match self {
            PendingResponse::Stream { credit, .. } | PendingResponse::Collect { credit, .. } => {
                credit
            }
        }
    }
}

/// The receiving end of a streamed response.
pub(crate) struct StreamedResponse {
    pub(crate) head: oneshot::Receiver<Result<ResponseHead, TreeCallError>>,
    pub(crate) parts: mpsc::Receiver<Result<Bytes, TreeCallError>>,
}

/// A violation of the protocol by the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response exceeds its credit")]
pub(crate) struct CreditExceeded;

impl ChildLink {
    pub(crate) fn new(
        node: String,
        epoch: u64,
        key: u32,
        is_parent: bool,
        outgoing: mpsc::Sender<Bytes>,
    ) -> ChildLink {
        ChildLink {
            node,
            epoch,
            key,
            is_parent,
            outgoing,
            pending: Mutex::default(),
            unexpected_credit: AtomicUsize::new(UNEXPECTED_BYTES_MAX),
            is_closed: AtomicBool::new(false),
            close: Notify::new(),
        }
    }

    /// Queues an encoded message. Returns false if the child does not read, or is gone.
    pub(crate) fn send(&self, message: Bytes) -> bool {
        self.outgoing.try_send(message).is_ok()
    }

    /// Asks the task of the stream to end it.
    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Fails all responses that are owed, and all later requests.
    pub(crate) fn fail_all(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let pending = std::mem::take(&mut *self.pending.lock());
        for (_, response) in pending {
            self.fail(response, TreeCallError::NotConnected(self.node.clone()));
        }
    }

    fn fail(&self, response: PendingResponse, error: TreeCallError) {
        match response {
            PendingResponse::Stream { head, parts, .. } => match head {
                Some(head) => drop(head.send(Err(error))),
                // The receiver sees the end of the channel if it is full.
                None => drop(parts.try_send(Err(error))),
            },
            PendingResponse::Collect {
                collector, index, ..
            } => collector.finish(index, Err(error)),
        }
    }

    fn expect(&self, id: u64, response: PendingResponse, message: Bytes) {
        self.pending.lock().insert(id, response);
        if self.is_closed.load(Ordering::SeqCst) {
            self.fail_all();
        } else if !self.send(message)
            && let Some(response) = self.pending.lock().remove(&id)
        {
            let message = "too many requests wait for it".to_owned();
            let node = self.node.clone();
            self.fail(response, TreeCallError::Failed { node, message });
        }
    }

    /// Sends a request whose response is read part by part.
    pub(crate) fn request_stream(&self, id: u64, message: Bytes) -> StreamedResponse {
        let (head_sender, head) = oneshot::channel();
        let (parts_sender, parts) = mpsc::channel(STREAM_PARTS_MAX);
        let response = PendingResponse::Stream {
            head: Some(head_sender),
            parts: parts_sender,
            credit: STREAM_CREDIT as usize,
        };
        self.expect(id, response, message);
        StreamedResponse { head, parts }
    }

    /// Sends a request of a fan-out.
    pub(crate) fn request_collected(
        &self,
        id: u64,
        message: Bytes,
        collector: Arc<FanOutCollector>,
        index: usize,
        credit: u32,
    ) {
        let response = PendingResponse::Collect {
            collector,
            index,
            status: 0,
            body: CollectedBody::default(),
            credit: credit as usize,
        };
        self.expect(id, response, message);
    }

    /// Permits the child to send further bytes of a streamed response.
    pub(crate) fn grant(&self, id: u64, bytes: usize) {
        let mut pending = self.pending.lock();
        let Some(PendingResponse::Stream { credit, .. }) = pending.get_mut(&id) else {
            return;
        };
        *credit += bytes;
        drop(pending);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let credit = pegel_tree_protocol::ResponseCredit { id, bytes };
        self.send(encode_to_child(parent_message::Kind::ResponseCredit(
            credit,
        )));
    }

    /// Ends a request whose response is not needed. Returns whether it was still owed.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let owed = self.pending.lock().remove(&id);
        let is_owed = owed.is_some();
        if let Some(mut response) = owed {
            self.expect_late(*response.credit());
            let cancel = pegel_tree_protocol::Cancel { id };
            self.send(encode_to_child(parent_message::Kind::Cancel(cancel)));
        }
        is_owed
    }

    /// Permits further bytes of a response that is not needed any more: they are on their way.
    fn expect_late(&self, bytes: usize) {
        let add = |credit: usize| Some(credit.saturating_add(bytes));
        let _ = self
            .unexpected_credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes bytes of a response that is not expected.
    fn take_unexpected(&self, bytes: usize) -> Result<(), CreditExceeded> {
        let take = |credit: usize| credit.checked_sub(bytes);
        let taken = self
            .unexpected_credit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| CreditExceeded)
    }

    /// Takes the head of a response. Responses that are not expected are ignored: they were
    /// canceled.
    pub(crate) fn on_head(&self, received: ResponseHead) {
        let mut pending = self.pending.lock();
        match pending.get_mut(&received.id) {
            Some(PendingResponse::Stream { head, .. }) => {
                if let Some(head) = head.take() {
                    drop(head.send(Ok(received)));
                }
            }
            Some(PendingResponse::Collect { status, .. }) => {
                *status = u16::try_from(received.status).unwrap_or_default();
            }
            None => {}
        }
    }

    /// Takes a part of a response.
    pub(crate) fn on_chunk(&self, chunk: ResponseChunk) -> Result<(), CreditExceeded> {
        let id = chunk.id;
        let mut pending = self.pending.lock();
        let mut error = (!chunk.error.is_empty()).then(|| TreeCallError::Failed {
            node: self.node.clone(),
            message: chunk.error,
        });
        let is_last = chunk.is_last;
        let mut is_refused = false;
        let Some(response) = pending.get_mut(&id) else {
            return self.take_unexpected(chunk.data.len());
        };
        let left = response.credit().checked_sub(chunk.data.len());
        *response.credit() = left.ok_or(CreditExceeded)?;
        match response {
            PendingResponse::Stream { parts, .. } => {
                if !chunk.data.is_empty() && parts.try_send(Ok(chunk.data)).is_err() {
                    let message = "its response has too many small parts".to_owned();
                    let node = self.node.clone();
                    error = Some(TreeCallError::Failed { node, message });
                    is_refused = true;
                }
            }
            PendingResponse::Collect {
                collector, body, ..
            } => {
                if let Err(failed) = collector.add(body, &chunk.data, is_last, &self.node) {
                    error = Some(failed);
                    is_refused = true;
                }
            }
        }
        if !is_last && error.is_none() {
            return Ok(());
        }
        let Some(mut response) = pending.remove(&id) else {
            return Ok(());
        };
        drop(pending);
        if is_refused {
            self.expect_late(*response.credit());
        }
        match (error, response) {
            (Some(error), response) => self.fail(response, error),
            // Dropping the sender of the parts ends them; without a head there is no response.
            (None, PendingResponse::Stream { .. }) => {}
            (
                None,
                PendingResponse::Collect {
                    collector,
                    index,
                    status,
                    body,
                    ..
                },
            ) => {
                let answer = ChildAnswer {
                    child: self.node.clone(),
                    is_parent: self.is_parent,
                    status,
                    body: body.bytes.into(),
                };
                collector.finish(index, Ok(answer));
            }
        }
        if is_refused && !is_last {
            let cancel = pegel_tree_protocol::Cancel { id };
            self.send(encode_to_child(parent_message::Kind::Cancel(cancel)));
        }
        Ok(())
    }
}

/// Collects the responses of a fan-out. The tasks of the children's streams add to it; one task
/// waits for all.
#[derive(Debug)]
pub(crate) struct FanOutCollector {
    state: Mutex<FanOutState>,
    bytes_max: usize,
    done: Notify,
}

#[derive(Debug)]
struct FanOutState {
    results: Vec<Option<Result<ChildAnswer, TreeCallError>>>,
    remaining: usize,
    bytes: usize,
}

impl FanOutCollector {
    pub(crate) fn new(count: usize, bytes_max: usize) -> Arc<FanOutCollector> {
        Arc::new(FanOutCollector {
            state: Mutex::new(FanOutState {
                results: (0..count).map(|_| None).collect(),
                remaining: count,
                bytes: 0,
            }),
            bytes_max,
            done: Notify::new(),
        })
    }

    /// Appends bytes to a response. A response that exceeds the limit by itself fails: a child
    /// knows the limit of a request. If all responses together exceed it, this one is dropped, and
    /// too large at its end.
    fn add(
        &self,
        body: &mut CollectedBody,
        data: &[u8],
        is_last: bool,
        node: &str,
    ) -> Result<(), TreeCallError> {
        let (node, limit) = (node.to_owned(), self.bytes_max);
        body.received = body.received.saturating_add(data.len());
        let mut state = self.state.lock();
        let is_flood = body.received > limit;
        body.is_dropped |= is_flood || state.bytes.saturating_add(data.len()) > limit;
        if body.is_dropped {
            state.bytes -= std::mem::take(&mut body.bytes).len();
        } else {
            state.bytes += data.len();
            body.bytes.extend_from_slice(data);
        }
        if is_flood {
            let message = format!("its response exceeds {limit} bytes");
            return Err(TreeCallError::Failed { node, message });
        }
        if body.is_dropped && is_last {
            return Err(TreeCallError::TooLarge { node, limit });
        }
        Ok(())
    }

    fn finish(&self, index: usize, result: Result<ChildAnswer, TreeCallError>) {
        let mut state = self.state.lock();
        if let Some(slot @ None) = state.results.get_mut(index) {
            *slot = Some(result);
            state.remaining -= 1;
            if state.remaining == 0 {
                self.done.notify_one();
            }
        }
    }

    /// Waits until all children responded or failed.
    pub(crate) async fn complete(&self) {
        while self.state.lock().remaining > 0 {
            self.done.notified().await;
        }
    }

    /// Returns the results; `None` where a child did not respond.
    pub(crate) fn take(&self) -> Vec<Option<Result<ChildAnswer, TreeCallError>>> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.results)
    }
}

#[cfg(test)]
mod tests;
