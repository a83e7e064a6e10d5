//! A child that keeps its connection, sends a tick per interval and answers requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{
    Pong, Request, ResponseChunk, ResponseHead, SelectRequest, SeriesDefinitions, Tick,
    ValueTickEncoder, Welcome,
};
use prost::Message;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use crate::aggregate_answer::SimulatedChildSeries;
use crate::scripted_child::{ScriptedChild, hello};
use crate::select_answer::SeriesCatalog;
use crate::simulated_values::SimulatedValues;
use crate::simulation::{SimulationCounts, SimulationPlan};

const RECONNECT_AFTER: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 32 << 10;
/// Series per message of definitions.
const DEFINITIONS_PER_MESSAGE: usize = 100;

/// What remains of a response, and how many bytes of it may be sent.
#[derive(Debug)]
struct QueuedResponse {
    rest: Bytes,
    credit: usize,
}

pub(crate) struct SimulatedChild {
    pub name: String,
    /// How far into the sending window of a tick this child sends, from 0 to 1.
    pub position: f64,
    pub values: SimulatedValues,
    pub plan: Arc<SimulationPlan>,
    pub catalog: Arc<SeriesCatalog>,
    pub counts: Arc<SimulationCounts>,
}

impl SimulatedChild {
    /// Stays connected until the task is aborted.
    pub(crate) async fn run(mut self) {
        loop {
            let ended = self.attach().await;
            let reason = match ended {
                Ok(()) => "the parent closed the stream".to_owned(),
                Err(status) => format!("{:?}: {}", status.code(), status.message()),
            };
            self.counts.ended(&self.name, &reason);
            sleep(RECONNECT_AFTER.mul_f64(0.5 + self.position)).await;
        }
    }

    async fn attach(&mut self) -> Result<(), Status> {
        let bytes = self.counts.bytes.clone();
        let (address, token) = (self.plan.address, self.plan.token.as_deref());
        let greeting = FromChild::Hello(hello(&self.name));
        let mut stream = ScriptedChild::connect_counted(address, token, greeting, bytes).await?;
        let welcome = match stream.receive().await? {
            Some(FromParent::Welcome(welcome)) => welcome,
            Some(FromParent::Refusal(refusal)) => {
                return Err(Status::failed_precondition(refusal.message));
            }
            other => return Err(Status::internal(format!("{other:?} instead of Welcome"))),
        };
        for part in self.catalog.definitions.chunks(DEFINITIONS_PER_MESSAGE) {
            let series = part.to_vec();
            stream
                .send(FromChild::Series(SeriesDefinitions { series }))
                .await;
        }
        self.counts.connected.fetch_add(1, Ordering::Relaxed);
        let ended = self.serve(&mut stream, &welcome).await;
        self.counts.connected.fetch_sub(1, Ordering::Relaxed);
        ended
    }

    async fn serve(&mut self, stream: &mut ScriptedChild, welcome: &Welcome) -> Result<(), Status> {
        let interval_ms = i64::from(welcome.interval_ms.max(100));
        let mut credit = welcome.tick_credit;
        let mut encoder = ValueTickEncoder::new();
        let mut pending: HashMap<u64, QueuedResponse> = HashMap::new();
        let mut time_ms = (now_ms() / interval_ms + 1) * interval_ms;
        loop {
            // Between 0.3 and 0.4 intervals after the time of the tick, spread over the children.
            let delay = (0.3 + 0.1 * self.position) * interval_ms as f64;
            let wait = (time_ms + delay as i64 - now_ms()).max(0) as u64;
            let due = Instant::now() + Duration::from_millis(wait);
            tokio::select! {
                () = sleep_until(due) => {
                    if credit > 0 {
                        credit -= 1;
                        let tick = self.tick(&mut encoder, time_ms);
                        if !stream.send(FromChild::Tick(tick)).await {
                            return Ok(());
                        }
                        self.counts.ticks.fetch_add(1, Ordering::Relaxed);
                    } else {
                        self.counts.without_credit.fetch_add(1, Ordering::Relaxed);
                    }
                    time_ms += interval_ms;
                }
                message = stream.receive() => {
                    let Some(message) = message? else { return Ok(()) };
                    match message {
                        FromParent::TickCredit(more) => credit += more.ticks,
                        FromParent::Ping(ping) => {
                            let pong = Pong { sent_ms: ping.sent_ms, child_ms: now_ms() };
                            stream.send(FromChild::Pong(pong)).await;
                        }
                        FromParent::Request(request) => {
                            let id = request.id;
                            let response = self.response(stream, &request).await;
                            pending.insert(id, response);
                            send_response(stream, &mut pending, id, 0).await;
                        }
                        FromParent::ResponseCredit(more) => {
                            let bytes = more.bytes as usize;
                            send_response(stream, &mut pending, more.id, bytes).await;
                        }
                        FromParent::Cancel(cancel) => drop(pending.remove(&cancel.id)),
                        FromParent::Refusal(refusal) => {
                            return Err(Status::failed_precondition(refusal.message));
                        }
                        FromParent::Welcome(_) | FromParent::Moved(_) => {}
                    }
                }
            }
        }
    }

    fn tick(&mut self, encoder: &mut ValueTickEncoder, time_ms: i64) -> Tick {
        self.values.advance();
        let values: Vec<(u32, f64)> = (0..).zip(self.values.values.iter().copied()).collect();
        Tick {
            time_ms,
            nodes: 1,
            values: encoder.encode(&values),
            overview: Some(self.values.overview()),
        }
    }

    /// Sends the head of a response and returns its body.
    async fn response(&self, stream: &ScriptedChild, request: &Request) -> QueuedResponse {
        let path = request.target.split('?').next().unwrap_or_default();
        let values = &self.values.values;
        let (status, rest) = match (path, SelectRequest::decode(request.body.as_ref())) {
            ("/tree/select", Ok(select)) => (200, self.catalog.answer(&select, values, now_ms())),
            ("/tree/aggregate", _) => {
                let labels = &self.catalog.labels;
                SimulatedChildSeries { labels, values }.answer(&request.body)
            }
            _ => (404, Bytes::from_static(b"a simulated node has no pages\n")),
        };
        if status == 200 {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
        }
        let head = ResponseHead {
            id: request.id,
            status,
            headers: Vec::new(),
        };
        stream.send(FromChild::Response(head)).await;
        QueuedResponse {
            rest,
            credit: request.credit as usize,
        }
    }
}

/// Sends as much of a response as its credit permits.
async fn send_response(
    stream: &ScriptedChild,
    pending: &mut HashMap<u64, QueuedResponse>,
    id: u64,
    more_credit: usize,
) {
    let Some(response) = pending.get_mut(&id) else {
        return;
    };
    response.credit += more_credit;
    loop {
        let length = response.rest.len().min(response.credit).min(CHUNK_BYTES);
        if length == 0 && !response.rest.is_empty() {
            return;
        }
        let data = response.rest.split_to(length);
        response.credit -= length;
        let is_last = response.rest.is_empty();
        let chunk = ResponseChunk {
            id,
            data,
            is_last,
            error: String::new(),
        };
        stream.send(FromChild::Chunk(chunk)).await;
        if is_last {
            pending.remove(&id);
            return;
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
