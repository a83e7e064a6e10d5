//! The thread of one target: reads rounds from the log and sends them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::Millis;
use pegel_query::promql::NodeLabels;
use pegel_store::{LogPosition, Store};

use super::counts::TargetCounters;
use super::position::{PendingRound, PositionFile, SavedPosition};
use super::request::{PlannedRequest, RequestBytes, plan_requests};
use super::retry::RetryPause;
use super::round::Round;
use super::sample_stream::{RoundEnd, SampleStream, StreamPosition};
use super::sender::{PostOutcome, RequestSender};
use super::series_labels::SeriesLabels;
use super::series_table::SeriesTable;
use super::settings::{RemoteWriteSettings, WriteMessage};

/// How often the number of waiting bytes is determined.
const LAG_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a failure to read the log.
const READ_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What the thread of a target shares with its handle.
#[derive(Debug)]
pub(super) struct SharedTarget {
    pub name: String,
    pub counters: TargetCounters,
    /// Set when the agent stops: what is left is sent once, without repetitions.
    pub is_stopping: AtomicBool,
    /// Ends waits for the receiver.
    pub abort: Arc<AtomicBool>,
    pub waits: Mutex<()>,
    pub wake: Condvar,
    /// What the receiver confirmed; `None` until it is known.
    pub confirmed: Mutex<Option<LogPosition>>,
    /// The oldest segment of the log that the target needs.
    pub needed_segment: Arc<AtomicU64>,
}

impl SharedTarget {
    /// Waits; returns false when the agent stops.
    fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut waits = self.waits.lock();
        while !self.is_stopping.load(Ordering::Relaxed) && Instant::now() < until {
            self.wake.wait_until(&mut waits, until);
        }
        !self.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the log that are not confirmed: exact if they are in one segment, else
    /// as determined a second ago.
    pub(super) fn pending_bytes(&self, store: &Store) -> u64 {
        let (end, confirmed) = (store.log_end(), *self.confirmed.lock());
        match confirmed {
            Some(confirmed) if confirmed.segment == end.segment => {
                end.offset.saturating_sub(confirmed.offset)
            }
            _ => { &self.counters.pending_bytes }
                .load(Ordering::Relaxed)
                .max(end.offset),
        }
    }

    fn set_error(&self, message: &str) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        let mut last = self.counters.last_error.lock();
        // Only the first of equal errors is logged.
        if last.as_deref() != Some(message) {
            tracing::warn!(
                receiver = self.name,
                error = message,
                "cannot send samples with remote write"
            );
            *last = Some(message.to_owned());
        }
    }

    fn clear_error(&self) {
        if self.counters.last_error.lock().take().is_some() {
            tracing::info!(receiver = self.name, "samples are sent again");
        }
    }
}

/// What a target needs.
#[derive(Debug)]
pub(super) struct TargetOptions {
    pub settings: Arc<RemoteWriteSettings>,
    pub node: Arc<NodeLabels>,
    /// The interval at which series of programs are sampled.
    pub interval: Millis,
    pub store: Store,
    pub shared: Arc<SharedTarget>,
    pub release: Arc<LogRelease>,
}

/// Tells the store which segments no target needs.
#[derive(Debug)]
pub(super) struct LogRelease {
    pub store: Store,
    /// The oldest segment that each target needs.
    pub needed: Vec<Arc<AtomicU64>>,
}

impl LogRelease {
    fn release(&self) {
        let needed = self.needed.iter();
        let needed = needed.map(|segment| segment.load(Ordering::Relaxed));
        self.store.release_log(needed.min().unwrap_or(0));
    }
}

/// Why sending ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendEnd {
    Done,
    Stopping,
    /// Too many bytes wait: these samples are dropped.
    LagExceeded,
}

/// How a round is split into requests.
#[derive(Debug, Clone, Copy)]
struct RoundShape {
    shards: u32,
    samples_per_request: u32,
    /// Its requests may have been sent before.
    is_repeated: bool,
}

/// The state of the thread.
pub(super) struct TargetThread<'a> {
    options: &'a TargetOptions,
    shared: &'a SharedTarget,
    file: PositionFile,
    confirmed: StreamPosition,
    round: Round,
    shards: Vec<Shard>,
    lag_checked: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Shard {
    sender: RequestSender,
    bytes: RequestBytes,
}

impl TargetThread<'_> {
    pub(super) fn new<'a>(options: &'a TargetOptions, dir: &Path) -> TargetThread<'a> {
        TargetThread {
            options,
            shared: &options.shared,
            file: PositionFile::new(dir),
            confirmed: StreamPosition::default(),
            round: Round::default(),
            shards: Vec::new(),
            lag_checked: Mutex::new(None),
        }
    }

    /// Sends samples until the agent stops.
    pub(super) fn run(mut self) {
        let saved = self.load_position();
        self.confirmed = saved.confirmed;
        let opened = loop {
            match self.open_stream() {
                Ok(stream) => break Some(stream),
                Err(error) => self.shared.set_error(&format!("the log: {error}")),
            }
            if !self.shared.wait(READ_RETRY_PAUSE) {
                break None;
            }
        };
        let Some(mut stream) = opened else {
            return;
        };
        self.publish_position(stream.position());
        let settings = &self.options.settings;
        let mut repeated = saved.pending;
        loop {
            let shape = RoundShape {
                shards: settings.shards.get(),
                samples_per_request: settings.max_samples_per_send.get(),
                is_repeated: false,
            };
            let was_stopping = self.shared.is_stopping.load(Ordering::Relaxed);
            let sent = match repeated.take() {
                Some(pending) => self.repeat_round(&mut stream, &pending),
                None => self.send_round(&mut stream, shape, None),
            };
            let is_at_end = match sent {
                Ok((SendEnd::Stopping, _)) => return,
                Ok((_, end)) => end == RoundEnd::EndOfLog,
                Err(error) => {
                    self.shared.set_error(&format!("the log: {error}"));
                    if !self.shared.wait(READ_RETRY_PAUSE) {
                        return;
                    }
                    continue;
                }
            };
            if is_at_end && was_stopping {
                return;
            }
            // When the agent stops, what was written until then is still sent.
            if is_at_end {
                self.shared.wait(settings.interval.duration());
            }
        }
    }

    /// Returns the position of an earlier agent, or that of a new target: what is not in blocks
    /// yet.
    fn load_position(&self) -> SavedPosition {
        let of_segment = |segment| SavedPosition {
            confirmed: StreamPosition {
                log: LogPosition { segment, offset: 0 },
                samples: 0,
            },
            pending: None,
        };
        let store = &self.options.store;
        match self.file.load() {
            Ok(Some(saved)) => saved,
            Ok(None) => of_segment(store.oldest_log_segment()),
            Err(error) => {
                let receiver = &self.shared.name;
                tracing::error!(receiver, %error, "sending everything that is in the log");
                let oldest = store.log_segments().first().map(|(number, _)| *number);
                of_segment(oldest.unwrap_or(store.log_end().segment))
            }
        }
    }

    fn open_stream(&self) -> io::Result<SampleStream> {
        let settings = &self.options.settings;
        let labels = SeriesLabels {
            node: self.options.node.clone(),
            external: settings.external_labels.clone(),
            keep: settings.keep.clone(),
            drop: settings.drop.clone(),
        };
        let table = SeriesTable::new(labels, settings.protobuf_message == WriteMessage::V2);
        let interval = self.options.interval;
        SampleStream::new(&self.options.store, table, interval, self.confirmed)
    }

    /// Sends the round that an earlier agent had begun, as the same requests.
    fn repeat_round(
        &mut self,
        stream: &mut SampleStream,
        pending: &PendingRound,
    ) -> io::Result<(SendEnd, RoundEnd)> {
        let shape = RoundShape {
            shards: pending.shards,
            samples_per_request: pending.samples_per_request,
            is_repeated: true,
        };
        self.send_round(stream, shape, Some(pending.end))
    }

    /// Reads one round and sends it.
    fn send_round(
        &mut self,
        stream: &mut SampleStream,
        shape: RoundShape,
        until: Option<StreamPosition>,
    ) -> io::Result<(SendEnd, RoundEnd)> {
        if self.is_lag_exceeded() {
            self.drop_oldest(stream)?;
        }
        let max = shape.shards as usize * shape.samples_per_request as usize;
        // A round that is repeated has a known end, however many samples it has.
        let max = until.map_or(max, |_| usize::MAX);
        self.round.clear();
        let end = stream.take(&mut self.round, max, until)?;
        self.count_losses(stream);
        let mut ended = SendEnd::Done;
        if self.round.len() > 0 {
            self.save(Some(PendingRound {
                end: stream.position(),
                shards: shape.shards,
                samples_per_request: shape.samples_per_request,
            }));
            ended = self.send(&stream.table, shape);
        }
        if ended != SendEnd::Stopping {
            self.shared.counters.pending.store(0, Ordering::Relaxed);
            let has_moved = stream.position() != self.confirmed;
            self.publish_position(stream.position());
            if has_moved {
                self.save(None);
            }
        }
        if ended == SendEnd::LagExceeded {
            self.drop_oldest(stream)?;
        }
        Ok((ended, end))
    }

    /// Sends the samples of the round; each shard its requests, one after the other.
    fn send(&mut self, table: &SeriesTable, shape: RoundShape) -> SendEnd {
        let counters = &self.shared.counters;
        let in_order = self.round.series_in_order(table);
        let (late, replaced) = self.round.late_series(table);
        counters.replaced.fetch_add(replaced, Ordering::Relaxed);
        let to_send = self.round.len() as u64 - replaced;
        counters.pending.store(to_send, Ordering::Relaxed);
        let RoundShape {
            shards,
            samples_per_request,
            is_repeated,
        } = shape;
        let lists = (&in_order, &late);
        let planned = plan_requests(lists, table, shards, samples_per_request);
        let (settings, abort) = (&self.options.settings, &self.shared.abort);
        while self.shards.len() < planned.len() {
            self.shards.push(Shard {
                sender: RequestSender::new(settings, abort),
                bytes: RequestBytes::default(),
            });
        }
        let mut shards = std::mem::take(&mut self.shards);
        let this = &*self;
        let mut busy: Vec<(&mut Shard, Vec<PlannedRequest<'_>>)> = { shards.iter_mut() }
            .zip(planned)
            .filter(|(_, requests)| !requests.is_empty())
            .collect();
        let ended = match busy.pop() {
            None => SendEnd::Done,
            // The last one on this thread.
            Some((last, of_last)) => thread::scope(|scope| {
                let others = busy.into_iter().map(|(shard, requests)| {
                    scope.spawn(move || this.send_shard(shard, &requests, table, is_repeated))
                });
                let others: Vec<_> = others.collect();
                let mut ended = this.send_shard(last, &of_last, table, is_repeated);
                for other in others {
                    match other.join() {
                        Ok(SendEnd::Done) => {}
                        Ok(end) => ended = end,
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                ended
            }),
        };
        self.shards = shards;
        ended
    }

    /// Sends the requests of one shard.
    fn send_shard(
        &self,
        shard: &mut Shard,
        requests: &[PlannedRequest<'_>],
        table: &SeriesTable,
        is_repeated: bool,
    ) -> SendEnd {
        for (at, request) in requests.iter().enumerate() {
            let ended = self.send_request(shard, request, table, is_repeated);
            if ended == SendEnd::LagExceeded {
                let dropped = requests[at..].iter().map(|request| request.samples);
                let counters = &self.shared.counters;
                counters
                    .dropped_lag
                    .fetch_add(dropped.sum(), Ordering::Relaxed);
            }
            if ended != SendEnd::Done {
                return ended;
            }
        }
        SendEnd::Done
    }

    /// Sends a request until the receiver accepts or refuses it.
    fn send_request(
        &self,
        shard: &mut Shard,
        request: &PlannedRequest<'_>,
        table: &SeriesTable,
        mut is_repeated: bool,
    ) -> SendEnd {
        let counters = &self.shared.counters;
        let mut pause = RetryPause::default();
        let is_v2 = || counters.speaks_v2.load(Ordering::Relaxed);
        let mut encoded = (is_v2(), shard.bytes.encode(request, table, is_v2()));
        for attempt in 0.. {
            if encoded.0 != is_v2() {
                encoded = (is_v2(), shard.bytes.encode(request, table, is_v2()));
            }
            match shard.sender.post(&encoded.1, encoded.0, attempt) {
                PostOutcome::Stored => {
                    self.count_stored(request, encoded.1.len());
                    return SendEnd::Done;
                }
                PostOutcome::Refused { message, written } => {
                    self.count_refused(request, &message, written, is_repeated);
                    return SendEnd::Done;
                }
                PostOutcome::NoVersion2 => {
                    if counters.speaks_v2.swap(false, Ordering::Relaxed) {
                        let receiver = &self.shared.name;
                        tracing::warn!(
                            receiver,
                            "the receiver does not read remote write 2.0; sending 1.0"
                        );
                    }
                }
                PostOutcome::Retry { message, after } => {
                    self.shared.set_error(&message);
                    // Its samples may be stored although the answer was lost.
                    is_repeated = true;
                    let ended = self.pause(pause.next(after));
                    if ended != SendEnd::Done {
                        return ended;
                    }
                }
            }
        }
        SendEnd::Done
    }

    /// Waits before the next attempt, unless the agent stops or too much waits.
    fn pause(&self, pause: Duration) -> SendEnd {
        let until = Instant::now() + pause;
        loop {
            if self.is_lag_exceeded() {
                return SendEnd::LagExceeded;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.shared.wait(left.min(LAG_CHECK_INTERVAL)) {
                return SendEnd::Stopping;
            }
            if Instant::now() >= until {
                return SendEnd::Done;
            }
        }
    }

    fn count_stored(&self, request: &PlannedRequest<'_>, bytes: usize) {
        let counters = &self.shared.counters;
        counters.sent.fetch_add(request.samples, Ordering::Relaxed);
        if request.is_late {
            counters
                .sent_late
                .fetch_add(request.samples, Ordering::Relaxed);
        }
        counters
            .pending
            .fetch_sub(request.samples, Ordering::Relaxed);
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counters
            .newest_sent
            .fetch_max(request.newest(), Ordering::Relaxed);
        self.shared.clear_error();
    }

    fn count_refused(
        &self,
        request: &PlannedRequest<'_>,
        message: &str,
        written: u64,
        is_repeated: bool,
    ) {
        let counters = &self.shared.counters;
        let written = written.min(request.samples);
        counters.sent.fetch_add(written, Ordering::Relaxed);
        let count = match is_repeated {
            true => &counters.refused_again,
            false => &counters.refused,
        };
        count.fetch_add(request.samples - written, Ordering::Relaxed);
        counters
            .pending
            .fetch_sub(request.samples, Ordering::Relaxed);
        self.shared.clear_error();
        let mut last = counters.last_refusal.lock();
        if last.as_deref() != Some(message) {
            tracing::warn!(
                receiver = self.shared.name,
                samples = request.samples,
                message,
                "the receiver refused samples"
            );
            *last = Some(message.to_owned());
        }
    }

    fn count_losses(&self, stream: &mut SampleStream) {
        let counters = &self.shared.counters;
        let losses = std::mem::take(&mut stream.losses);
        let lost = losses.damaged_frames + losses.gaps;
        if lost > 0 {
            tracing::error!(
                receiver = self.shared.name,
                ?losses,
                "parts of the log are missing"
            );
        }
        counters.damaged.fetch_add(lost, Ordering::Relaxed);
        let hidden = self.round.hidden;
        counters.hidden.fetch_add(hidden, Ordering::Relaxed);
    }

    /// Returns whether more bytes wait than may. Determined once a second.
    fn is_lag_exceeded(&self) -> bool {
        let mut checked = self.lag_checked.lock();
        let now = Instant::now();
        if checked.is_some_and(|last| now - last < LAG_CHECK_INTERVAL) {
            return false;
        }
        *checked = Some(now);
        let lag = self.measure_lag(self.confirmed.log);
        lag > self.options.settings.lag_bytes()
    }

    /// Returns the bytes of the log after a position.
    fn measure_lag(&self, from: LogPosition) -> u64 {
        let store = &self.options.store;
        let end = store.log_end();
        let mut lag = end.offset;
        if end.segment == from.segment {
            lag = end.offset.saturating_sub(from.offset);
        } else {
            for (number, bytes) in store.log_segments() {
                if number == from.segment {
                    lag += bytes.saturating_sub(from.offset);
                } else if (from.segment..end.segment).contains(&number) {
                    lag += bytes;
                }
            }
        }
        let counters = &self.shared.counters;
        counters.pending_bytes.store(lag, Ordering::Relaxed);
        lag
    }

    /// Reads samples without sending them, until few enough wait.
    fn drop_oldest(&mut self, stream: &mut SampleStream) -> io::Result<()> {
        let bound = self.options.settings.lag_bytes();
        let counters = &self.shared.counters;
        tracing::warn!(
            receiver = self.shared.name,
            bytes = bound,
            "more samples wait than permitted (lag); dropping the oldest"
        );
        while self.measure_lag(stream.position().log) > bound {
            self.round.clear();
            let end = stream.take(&mut self.round, 1 << 16, None)?;
            self.count_losses(stream);
            let dropped = self.round.len() as u64;
            counters.dropped_lag.fetch_add(dropped, Ordering::Relaxed);
            if end == RoundEnd::EndOfLog || self.shared.abort.load(Ordering::Relaxed) {
                break;
            }
        }
        self.publish_position(stream.position());
        self.save(None);
        Ok(())
    }

    /// Lets the store remove what is before the position, but for one segment: a stream that begins
    /// at the position reads it.
    fn publish_position(&mut self, position: StreamPosition) {
        self.confirmed = position;
        let needed = position.log.segment.saturating_sub(1);
        let shared = self.shared;
        if shared.needed_segment.swap(needed, Ordering::Relaxed) != needed {
            self.options.release.release();
        }
        *shared.confirmed.lock() = Some(position.log);
    }

    fn save(&mut self, pending: Option<PendingRound>) {
        let position = SavedPosition {
            confirmed: self.confirmed,
            pending,
        };
        if let Err(error) = self.file.save(&position) {
            let message = format!("cannot store the position: {error}");
            self.shared.set_error(&message);
        }
    }
}
