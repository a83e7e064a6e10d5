//! The connection to a parent, from Welcome to its end: sends ticks and the nodes below, receives
//! credits, requests and pings.

use std::sync::Arc;
use std::time::Duration;

use pegel_tree_protocol::limits::NODES_MAX;
use pegel_tree_protocol::{
    NodeUpdates, ParentMessage, Pong, Welcome, check_parent_message, child_message, parent_message,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::requests::RequestTable;
use super::tick_sender::TickSender;
use super::{Uplink, UplinkItem};
use crate::messages::encode_to_parent;
use crate::transport::ParentStream;

/// A parent that sends nothing for this time, not even pings, is gone.
const SILENCE_MAX: Duration = Duration::from_secs(35);
/// How often changed ticks and the nodes below are reported.
const NODES_EVERY: Duration = Duration::from_secs(1);
/// How long the last messages may take when the agent stops.
const FINISH_TIME: Duration = Duration::from_millis(500);
/// Nodes in one message: about 100 bytes each.
const NODES_PER_MESSAGE: usize = 10_000;

/// Why a connection ended.
pub(super) enum ConnectionEnd {
    Stopped,
    /// A preferred parent is connected.
    Moved(usize, Box<ParentConnection>),
    Failed(String),
}

/// A connection on which this agent was admitted.
pub(super) struct ParentConnection {
    stream: ParentStream,
    pub(super) welcome: Welcome,
    ticks: TickSender,
}

impl ParentConnection {
    pub(super) fn new(stream: ParentStream, welcome: Welcome) -> ParentConnection {
        let ticks = TickSender::new(welcome.tick_credit, welcome.interval_ms.into());
        ParentConnection {
            stream,
            welcome,
            ticks,
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn serve(
        mut self,
        uplink: Arc<Uplink>,
        items: &mut mpsc::Receiver<UplinkItem>,
        stop: &mut watch::Receiver<bool>,
    ) -> ConnectionEnd {
        let requests = RequestTable::new(uplink.clone(), self.stream.outgoing.clone());
        let mut nodes = interval(NODES_EVERY);
        nodes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                received = timeout(SILENCE_MAX, self.stream.incoming.message()) => match received {
                    Ok(Ok(Some(message))) => self.on_message(message, &uplink, &requests).await,
                    Ok(Ok(None)) => Err("the parent closed the stream".to_owned()),
                    Ok(Err(status)) => Err(status.message().to_owned()),
                    Err(_) => Err("the parent is silent".to_owned()),
                },
                Some(item) = items.recv() => self.send_item(item, &uplink).await,
                _ = nodes.tick() => self.send_nodes(&uplink).await,
                _ = stop.changed() => {
                    while let Ok(item) = items.try_recv() {
                        let _ = self.send_item(item, &uplink).await;
                    }
                    drop(requests);
                    self.stream.finish(FINISH_TIME).await;
                    return ConnectionEnd::Stopped;
                }
            };
            if let Err(error) = next {
                return ConnectionEnd::Failed(error);
            }
        }
    }

    async fn on_message(
        &mut self,
        message: ParentMessage,
        uplink: &Arc<Uplink>,
        requests: &RequestTable,
    ) -> Result<(), String> {
        check_parent_message(&message).map_err(|fault| fault.to_string())?;
        match message.kind {
            Some(parent_message::Kind::TickCredit(credit)) => self.ticks.grant(credit.ticks),
            Some(parent_message::Kind::Request(request)) => requests.start(request),
            Some(parent_message::Kind::ResponseCredit(credit)) => {
                requests.grant(credit.id, credit.bytes);
            }
            Some(parent_message::Kind::Cancel(cancel)) => requests.cancel(cancel.id),
            Some(parent_message::Kind::Ping(ping)) => {
                let pong = Pong {
                    sent_ms: ping.sent_ms,
                    child_ms: uplink.context.now(),
                };
                self.send(child_message::Kind::Pong(pong)).await?;
            }
            Some(parent_message::Kind::Refusal(refusal)) => {
                return Err(format!("refused: {}", refusal.message));
            }
            Some(parent_message::Kind::Moved(moved)) => {
                if let Some(parent) = &uplink.parent {
                    parent.registry.lock().drop_moved(&moved.node, moved.epoch);
                }
            }
            Some(parent_message::Kind::Welcome(_)) => return Err("a second Welcome".to_owned()),
            // A message of a newer version.
            None => {}
        }
        Ok(())
    }

    async fn send(&self, kind: child_message::Kind) -> Result<(), String> {
        let sent = self.stream.outgoing.send(encode_to_parent(kind));
        match timeout(SILENCE_MAX, sent).await {
            Ok(sent) => sent.map_err(|_| "the connection is closed".to_owned()),
            Err(_) => Err("the parent does not read".to_owned()),
        }
    }

    async fn send_item(&mut self, item: UplinkItem, uplink: &Uplink) -> Result<(), String> {
        for kind in self.ticks.messages(item, &uplink.context.counts)? {
            self.send(kind).await?;
        }
        Ok(())
    }

    /// Sends which ticks changed, and the nodes below this agent.
    async fn send_nodes(&mut self, uplink: &Uplink) -> Result<(), String> {
        let changed = { uplink.state.changed.lock() }.take(uplink.context.now());
        for mark in self.ticks.changed(changed) {
            self.send(mark).await?;
        }
        let Some(parent) = &uplink.parent else {
            return Ok(());
        };
        let mut nodes = parent.node_updates();
        nodes.truncate(NODES_MAX);
        let mut is_complete = nodes.len() <= NODES_PER_MESSAGE;
        loop {
            let rest = nodes.split_off(nodes.len().min(NODES_PER_MESSAGE));
            self.send(child_message::Kind::Nodes(NodeUpdates {
                is_complete,
                nodes,
            }))
            .await?;
            if rest.is_empty() {
                return Ok(());
            }
            nodes = rest;
            is_complete = false;
        }
    }
}
