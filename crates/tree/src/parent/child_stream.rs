//! The stream of one child: its first message, series, ticks, nodes and responses. A violation of
//! the protocol closes the stream, is listed as a problem, and affects no other child.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use pegel_metric::{Family, MetricKind, Millis, Series, escape_unprintable};
use pegel_reduction::{NodeCounterRates, Partial, PutOutcome, QuantileSketch, TickCells};
use pegel_tree_protocol::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use pegel_tree_protocol::{
    ChildMessage, DefinitionCheck, Hello, NodeUpdates, PartialCell, PartialTickDecoder, Ping, Pong,
    Refusal, SeriesDefinition, SeriesDefinitions, Tick, TickCredit, ValueTickDecoder, Welcome,
    check_child_message, child_message, parent_message, refusal::Reason,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::Streaming;

use super::Parent;
use super::child_link::ChildLink;
use super::listener::{ChildPeer, HANDSHAKE_TIME};
use super::reduce::NO_KEY;
use super::registry::{Admitted, ChildRefusal};
use crate::certificate_name::is_issued_to;
use crate::messages::encode_to_child;
use crate::tick_reader::metric_kind;

/// The ticks that a child may send before it receives credit, and the number for which it is
/// returned at once: a message for each tick would cost as much as the tick.
const TICK_CREDIT: u32 = 16;
const CREDIT_RETURNED: u32 = TICK_CREDIT / 2;
/// The time between two pings, and the time after which a silent child is gone.
const PING_EVERY: Duration = Duration::from_secs(10);
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// Ticks may be this far ahead of the parent's clock, in milliseconds.
const AHEAD_MAX: Millis = 10_000;
/// The bytes of all sketches of one tick. In the first tick of a stream they are part of a message.
const TICK_SKETCHES_MAX: usize = MESSAGE_BYTES_MAX;

/// Serves the stream of a child until it ends.
pub(crate) async fn serve_child(
    parent: Arc<Parent>,
    peer: ChildPeer,
    mut incoming: Streaming<ChildMessage>,
    outgoing: mpsc::Sender<Bytes>,
) {
    let host = peer.host();
    let first = timeout(HANDSHAKE_TIME, incoming.message()).await;
    let hello = match first {
        Ok(Ok(Some(message))) => read_hello(message, &peer),
        Ok(Ok(None)) => return,
        Ok(Err(status)) => unnamed(malformed(status.message().to_owned())),
        Err(_) => unnamed(malformed("no first message in time".to_owned())),
    };
    let admitted = hello.and_then(|hello| {
        let path = parent.context.path.read().clone();
        let now = parent.context.now();
        let admitted = { parent.registry.lock() }.attach(&hello, &path, outgoing.clone(), now);
        match admitted {
            Ok(admitted) => Ok((hello, admitted)),
            Err(refusal) => Err((hello.node, refusal)),
        }
    });
    let (hello, admitted) = match admitted {
        Ok(admitted) => admitted,
        Err((node, refusal)) => {
            let reason = reason_text(refusal.reason);
            parent
                .context
                .problem(&host, &node, reason, &refusal.message);
            let _ = outgoing.try_send(encode_refusal(&refusal));
            return;
        }
    };
    peer.stages.admitted.notify_one();
    // The link has its own sender; the stream ends when that is dropped.
    drop(outgoing);
    let node = hello.node.clone();
    let mut stream = ChildStream::new(parent.clone(), host.clone(), hello, admitted);
    stream.welcome();
    let ended = stream.run(&mut incoming).await;
    if let Err(refusal) = ended {
        let reason = reason_text(refusal.reason);
        parent
            .context
            .problem(&host, &node, reason, &refusal.message);
        stream.link.send(encode_refusal(&refusal));
    }
}

fn malformed<T>(message: String) -> Result<T, ChildRefusal> {
    let reason = Reason::Malformed;
    Err(ChildRefusal { reason, message })
}

/// A child that is refused, with its name if it is known.
type RefusedChild = (String, ChildRefusal);

fn unnamed<T>(result: Result<T, ChildRefusal>) -> Result<T, RefusedChild> {
    result.map_err(|refusal| (String::new(), refusal))
}

fn encode_refusal(refusal: &ChildRefusal) -> Bytes {
    encode_to_child(parent_message::Kind::Refusal(Refusal {
        reason: refusal.reason as i32,
        message: refusal.message.clone(),
    }))
}

fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Unknown => "unknown",
        Reason::Version => "version",
        Reason::Duplicate => "duplicate",
        Reason::Full => "full",
        Reason::Name => "name",
        Reason::Loop => "loop",
        Reason::Malformed => "malformed",
    }
}

/// Checks the first message, and the name against the certificate.
fn read_hello(message: ChildMessage, peer: &ChildPeer) -> Result<Hello, RefusedChild> {
    if let Err(fault) = check_child_message(&message) {
        return unnamed(malformed(fault.to_string()));
    }
    let Some(child_message::Kind::Hello(hello)) = message.kind else {
        return unnamed(malformed("the first message is not Hello".to_owned()));
    };
    if hello.protocol != PROTOCOL_VERSION {
        let message = format!(
            "protocol version {} is not supported; this agent supports {PROTOCOL_VERSION}",
            hello.protocol
        );
        let reason = Reason::Version;
        return Err((hello.node, ChildRefusal { reason, message }));
    }
    if let Some(certificate) = &peer.certificate
        && !is_issued_to(certificate, &hello.node)
    {
        let message = format!("the certificate is not made out to {}", hello.node);
        let reason = Reason::Name;
        return Err((hello.node, ChildRefusal { reason, message }));
    }
    Ok(hello)
}

enum TickDecoder {
    Values(ValueTickDecoder),
    Partials(PartialTickDecoder),
}

/// The state of a child's stream. Dropping it detaches the child.
struct ChildStream {
    parent: Arc<Parent>,
    link: Arc<ChildLink>,
    started_ms: i64,
    definitions: DefinitionCheck,
    /// The key of each defined series, and whether it is a counter.
    keys: Vec<(u32, bool)>,
    /// The ids of the series that are reduced, sorted by key: the window needs them so.
    ids_by_key: Vec<u32>,
    /// The numbers of gauges and counters in the last tick.
    cell_counts: (usize, usize),
    decoder: TickDecoder,
    rates: NodeCounterRates,
    last_tick: Option<Millis>,
    /// The ticks that the child may send, and those for which no credit was returned yet.
    credit: u32,
    credit_owed: u32,
    /// The address, for problems.
    peer: String,
}

impl Drop for ChildStream {
    fn drop(&mut self) {
        let now = self.parent.context.now();
        self.parent.registry.lock().detach(&self.link, now);
        self.link.fail_all();
        let mut reduction = self.parent.reduction.lock();
        for (key, _) in self.keys.iter().filter(|(key, _)| *key != NO_KEY) {
            reduction.table.release(*key, now);
        }
    }
}

impl ChildStream {
    fn new(parent: Arc<Parent>, peer: String, hello: Hello, admitted: Admitted) -> ChildStream {
        if let Some(replaced) = &admitted.replaced {
            replaced.close();
            replaced.fail_all();
        }
        let decoder = if hello.is_parent {
            TickDecoder::Partials(PartialTickDecoder::new(0))
        } else {
            TickDecoder::Values(ValueTickDecoder::new(0))
        };
        ChildStream {
            link: admitted.link,
            started_ms: hello.started_ms,
            definitions: DefinitionCheck::new(),
            keys: Vec::new(),
            ids_by_key: Vec::new(),
            cell_counts: (0, 0),
            decoder,
            rates: NodeCounterRates::new(),
            last_tick: None,
            credit: TICK_CREDIT,
            credit_owed: 0,
            peer,
            parent,
        }
    }

    fn welcome(&self) {
        let context = &self.parent.context;
        let mut path = vec![context.node.clone()];
        path.extend(context.path.read().iter().cloned());
        path.truncate(pegel_tree_protocol::limits::LEVELS_MAX);
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            node: context.node.clone(),
            interval_ms: u32::try_from(self.parent.interval).unwrap_or(u32::MAX),
            tick_credit: TICK_CREDIT,
            path,
        };
        self.link
            .send(encode_to_child(parent_message::Kind::Welcome(welcome)));
    }

    async fn run(&mut self, incoming: &mut Streaming<ChildMessage>) -> Result<(), ChildRefusal> {
        let link = self.link.clone();
        let mut pings = interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_message = tokio::time::Instant::now();
        loop {
            tokio::select! {
                received = incoming.message() => match received {
                    Ok(Some(message)) => {
                        last_message = tokio::time::Instant::now();
                        self.on_message(message)?;
                    }
                    Ok(None) => return Ok(()),
                    Err(status) if status.code() == tonic::Code::InvalidArgument
                        || status.code() == tonic::Code::OutOfRange => {
                        return malformed(status.message().to_owned());
                    }
                    Err(status) => {
                        tracing::debug!(node = link.node, %status, "stream of a child ended");
                        return Ok(());
                    }
                },
                _ = pings.tick() => {
                    if last_message.elapsed() > SILENCE_MAX {
                        return Ok(());
                    }
                    let sent_ms = self.parent.context.now();
                    link.send(encode_to_child(parent_message::Kind::Ping(Ping { sent_ms })));
                }
                () = link.closed() => return Ok(()),
            }
        }
    }

    fn on_message(&mut self, message: ChildMessage) -> Result<(), ChildRefusal> {
        if let Err(fault) = check_child_message(&message) {
            return malformed(fault.to_string());
        }
        match message.kind {
            Some(child_message::Kind::Hello(_)) => malformed("a second Hello".to_owned()),
            Some(child_message::Kind::Series(definitions)) => self.on_definitions(&definitions),
            Some(child_message::Kind::Tick(tick)) => self.on_tick(tick),
            Some(child_message::Kind::Nodes(updates)) => self.on_nodes(updates),
            Some(child_message::Kind::Response(head)) => {
                self.link.on_head(head);
                Ok(())
            }
            Some(child_message::Kind::Chunk(chunk)) => {
                let taken = self.link.on_chunk(chunk);
                taken.or_else(|fault| malformed(fault.to_string()))
            }
            Some(child_message::Kind::Pong(pong)) => {
                self.on_pong(pong);
                Ok(())
            }
            // A message of a newer version.
            None => Ok(()),
        }
    }

    fn on_definitions(&mut self, definitions: &SeriesDefinitions) -> Result<(), ChildRefusal> {
        if let Err(fault) = self.definitions.check(definitions) {
            return malformed(fault.to_string());
        }
        let is_malformed = |series: &&SeriesDefinition| !is_series_text(&series.text);
        if let Some(series) = definitions.series.iter().find(is_malformed) {
            let text = escape_unprintable(&series.text);
            return malformed(format!("\"{text}\" is not the text of a series"));
        }
        let mut reduction = self.parent.reduction.lock();
        let mut refused = 0;
        for series in &definitions.series {
            let kind = metric_kind(series.kind);
            let (text, key) = (&series.text, self.link.key);
            let unit = escape_unprintable(&series.unit);
            let help = escape_unprintable(&series.help);
            let interned = reduction.intern(key, text, kind, &unit, &help);
            refused += u64::from(interned.0 == NO_KEY);
            self.keys.push(interned);
        }
        drop(reduction);
        let node = &self.link.node;
        self.parent
            .context
            .refused_series(&self.peer, node, refused);
        self.ids_by_key.clear();
        let count = self.keys.len();
        match &mut self.decoder {
            TickDecoder::Values(decoder) => decoder.set_series_max(count),
            TickDecoder::Partials(decoder) => decoder.set_series_max(count),
        }
        Ok(())
    }

    fn on_tick(&mut self, tick: Tick) -> Result<(), ChildRefusal> {
        let parent = &self.parent;
        let (now, interval) = (parent.context.now(), parent.interval);
        let time = tick.time_ms;
        if time.rem_euclid(interval) != 0 {
            return malformed(format!("tick {time} is not a multiple of {interval} ms"));
        }
        if tick.nodes > 0 {
            let credit = self.credit.checked_sub(1);
            let Some(credit) = credit else {
                return malformed("a tick without credit".to_owned());
            };
            self.credit = credit;
        }
        if let Some(message) = self.clock_problem(time, now) {
            let peer = &self.peer;
            { &parent.context }.problem(peer, &self.link.node, "clock", &message);
            if tick.nodes > 0 {
                self.return_credit();
            }
            return Ok(());
        }
        if tick.nodes == 0 {
            // The child computed the tick again.
            self.mark_changed(time, now);
            return Ok(());
        }
        if let Some(last) = self.last_tick.filter(|last| time <= *last) {
            return malformed(format!("tick {time} follows tick {last}"));
        }
        let cells = self.decode_cells(&tick)?;
        let parent = &self.parent;
        parent.context.counts.ticks_received.add(1);
        let link = &self.link;
        let put = { parent.reduction.lock() }.put(link.key, link.epoch, time, tick.nodes, cells);
        if put != PutOutcome::Open {
            parent.context.counts.ticks_late.add(1);
            self.mark_changed(time, now);
        }
        let parent = &self.parent;
        let child = parent
            .registry
            .lock()
            .child_mut(link)
            .map(|child| child.missing_since);
        // Counters have no rates in the first tick of a stream, so that it is computed again too,
        // and the last ones of the stream before may have had values that changed.
        if let Some(since) = child.flatten() {
            parent.mark_dirty(since - 2 * interval, time);
        } else if let Some(last) = self.last_tick
            && time > last + interval
        {
            parent.mark_dirty(last + interval, time - interval);
        }
        self.last_tick = Some(time);
        if let Some(child) = parent.registry.lock().child_mut(link) {
            child.last_tick = self.last_tick;
            child.last_arrival = now;
            // After the marks: a copy of the state on disk has the one or the other.
            child.missing_since = None;
            let lag = (now - time).clamp(i32::MIN.into(), i32::MAX.into());
            child.lag_ms = Some(lag as i32);
            if let Some(overview) = tick.overview {
                child.overview = overview;
            }
        }
        self.return_credit();
        Ok(())
    }

    /// Has a past tick computed again, unless this child had too many computed.
    fn mark_changed(&self, time: Millis, now: Millis) {
        let parent = &self.parent;
        let is_permitted = { parent.registry.lock() }
            .child_mut(&self.link)
            .is_some_and(|child| child.changed_ticks.take(now));
        if is_permitted {
            parent.mark_dirty(time, time);
        } else {
            let message = "it has too many past ticks computed again";
            { &parent.context }.problem(&self.peer, &self.link.node, "changes", message);
        }
    }

    fn return_credit(&mut self) {
        self.credit_owed += 1;
        if self.credit_owed < CREDIT_RETURNED {
            return;
        }
        let ticks = std::mem::take(&mut self.credit_owed);
        self.credit += ticks;
        let credit = TickCredit { ticks };
        let credit = parent_message::Kind::TickCredit(credit);
        self.link.send(encode_to_child(credit));
    }

    /// Describes how the clock of the child must differ from the parent's, if a tick is ahead of
    /// the parent's clock or older than anything that is computed again.
    fn clock_problem(&self, time: Millis, now: Millis) -> Option<String> {
        let backfill = self.parent.context.settings.backfill.duration().as_millis();
        let oldest = now.saturating_sub(Millis::try_from(backfill).unwrap_or(Millis::MAX));
        let seconds = time.abs_diff(now) / 1000;
        if time > now.saturating_add(AHEAD_MAX) {
            Some(format!(
                "ticks are {seconds} s ahead of the clock of this agent"
            ))
        } else if time < oldest.saturating_sub(AHEAD_MAX) {
            Some(format!(
                "ticks are {seconds} s behind the clock of this agent"
            ))
        } else {
            None
        }
    }

    fn sort_ids(&mut self) {
        let keys = &self.keys;
        let ids = (0..keys.len() as u32).filter(|id| keys[*id as usize].0 != NO_KEY);
        self.ids_by_key = ids.collect();
        self.ids_by_key
            .sort_by_key(|id| (keys[*id as usize].0, *id));
    }

    fn decode_cells(&mut self, tick: &Tick) -> Result<TickCells, ChildRefusal> {
        if self.ids_by_key.is_empty() {
            self.sort_ids();
        }
        let (gauges, counters) = self.cell_counts;
        let mut cells = TickCells::with_capacity(gauges, counters);
        match &mut self.decoder {
            TickDecoder::Values(decoder) => {
                if let Err(error) = decoder.decode(&tick.values) {
                    return malformed(error.to_string());
                }
                for &id in &self.ids_by_key {
                    let Some(value) = decoder.value(id) else {
                        continue;
                    };
                    let (key, is_counter) = self.keys[id as usize];
                    if is_counter {
                        let rate = self.rates.rate(id, tick.time_ms, value, self.started_ms);
                        cells.add_counter(key, rate, value);
                    } else {
                        cells.add_gauge(key, value);
                    }
                }
                self.cell_counts = cells.counts();
            }
            TickDecoder::Partials(decoder) => {
                if let Err(error) = decoder.decode(&tick.values) {
                    return malformed(error.to_string());
                }
                let mut sketches = 0;
                for &id in &self.ids_by_key {
                    let Some(cell) = decoder.cell(id) else {
                        continue;
                    };
                    sketches += cell.sketch.len();
                    if cell.count > tick.nodes.into() || sketches > TICK_SKETCHES_MAX {
                        return malformed(format!(
                            "a partial result of {} nodes in a tick of {}, or too large sketches",
                            cell.count, tick.nodes
                        ));
                    }
                    match decode_partial(cell) {
                        Ok(partial) => cells.add_partial(self.keys[id as usize].0, partial),
                        Err(error) => return malformed(error),
                    }
                }
            }
        }
        Ok(cells)
    }

    fn on_nodes(&mut self, updates: NodeUpdates) -> Result<(), ChildRefusal> {
        if !self.link.is_parent {
            return malformed("a child that is no parent reports nodes".to_owned());
        }
        let context = &self.parent.context;
        let (now, path) = (context.now(), context.path.read().clone());
        let mut registry = self.parent.registry.lock();
        match registry.update_nodes(&self.link.node, updates, &path, now) {
            Ok(changes) => {
                // Under the lock: a copy of the state on disk has the nodes or the marks.
                if let Some(since) = changes.missing_since {
                    self.parent.mark_dirty(since, now);
                }
                drop(registry);
                for node in changes.duplicates {
                    let message = format!("another agent with the name {node} is connected");
                    context.problem(&self.peer, &node, "duplicate", &message);
                }
                if changes.unlisted > 0 {
                    let message = format!("{} nodes exceed the limits", changes.unlisted);
                    context.problem(&self.peer, &self.link.node, "nodes", &message);
                }
                Ok(())
            }
            Err(found) => Err(ChildRefusal {
                reason: Reason::Loop,
                message: found.to_string(),
            }),
        }
    }

    fn on_pong(&self, pong: Pong) {
        let now = self.parent.context.now();
        // A response of a past ping, which took long: the offset would be wrong by as much.
        let round_trip = now.saturating_sub(pong.sent_ms);
        if !(0..=5_000).contains(&round_trip) {
            return;
        }
        let offset = pong.child_ms.saturating_sub(pong.sent_ms + round_trip / 2);
        let offset = offset.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        if let Some(child) = self.parent.registry.lock().child_mut(&self.link) {
            child.clock_offset_ms = Some(offset);
        }
    }
}

/// Returns whether a text is `name{key="value",…}`.
fn is_series_text(text: &str) -> bool {
    static FAMILY: LazyLock<Arc<Family>> =
        LazyLock::new(|| Arc::new(Family::new("", MetricKind::Unknown, "", 1, "")));
    Series::parse(text, |_| FAMILY.clone()).is_ok()
}

/// Returns the partial result of a cell that a child sent.
pub(crate) fn decode_partial(cell: &PartialCell) -> Result<Partial, String> {
    let sketch = match cell.sketch.len() {
        0 => QuantileSketch::new(),
        _ => QuantileSketch::decode(&cell.sketch).map_err(|error| error.to_string())?,
    };
    let partial = Partial {
        count: cell.count,
        sum: cell.sum,
        min: cell.min,
        max: cell.max,
        total: cell.total,
        sketch,
    };
    match partial.is_consistent() {
        true => Ok(partial),
        false => Err("the fields of a partial result do not fit together".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_must_be_a_hello_of_this_version() {
        let peer = ChildPeer {
            address: ([127, 0, 0, 1], 1).into(),
            certificate: None,
            refusal: None,
            stages: Arc::default(),
        };
        let mut hello = Hello {
            protocol: PROTOCOL_VERSION,
            node: "a".to_owned(),
            instance: vec![1; 16].into(),
            ..Hello::default()
        };
        let read = |kind| {
            let read = read_hello(ChildMessage { kind: Some(kind) }, &peer);
            read.map_err(|(_, refusal)| refusal.reason)
        };
        assert!(read(child_message::Kind::Hello(hello.clone())).is_ok());
        let pong = child_message::Kind::Pong(Pong::default());
        assert_eq!(read(pong), Err(Reason::Malformed));
        hello.protocol = 99;
        let other = child_message::Kind::Hello(hello.clone());
        assert_eq!(read(other), Err(Reason::Version));
        hello.protocol = PROTOCOL_VERSION;
        hello.node = "../a".to_owned();
        assert_eq!(
            read(child_message::Kind::Hello(hello)),
            Err(Reason::Malformed)
        );
    }
}
