//! The thread of one target: reads rounds from the log and sends them. It stores the end of a round
//! before it sends it and the position after the round was confirmed, so that a restarted agent
//! repeats the same requests and skips no sample. It never blocks the writer of the log.

mod delivery;
mod lag;
mod shared;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::Millis;
use pegel_query::promql::NodeLabels;
use pegel_store::{LogPosition, Store};

use super::position::{PendingRound, PositionFile, SavedPosition};
use super::request::RequestBytes;
use super::round::Round;
use super::sample_stream::{RoundEnd, SampleStream, StreamPosition};
use super::sender::WriteSender;
use super::series_labels::SeriesLabels;
use super::series_table::TargetSeries;
use super::settings::{RemoteWriteSettings, WriteMessage};

pub(super) use shared::{LogRelease, SharedTarget};

/// How often the number of waiting bytes is determined.
const LAG_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of full requests per shard in a round if many samples wait. A larger round has more
/// samples of each series in one request, which contains the labels of a series once.
const REQUESTS_PER_ROUND: usize = 4;
/// The pause after a failure to read the log.
const READ_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The parts of the agent that a target uses.
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

/// The reason why sending ended. If shards have different reasons, the greatest one applies: the
/// position must not move beyond samples that a stopping shard has neither sent nor counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SendEnd {
    Done,
    /// More than `lag` bytes wait: the samples of the round are dropped.
    LagExceeded,
    Stopping,
}

/// How a round is split into requests.
#[derive(Debug, Clone, Copy)]
struct RoundShape {
    shards: u32,
    samples_per_request: u32,
    /// Whether its requests may have been sent before.
    is_repeated: bool,
}

/// The state of the thread.
pub(super) struct TargetThread<'a> {
    options: &'a TargetOptions,
    shared: &'a SharedTarget,
    file: PositionFile,
    confirmed: StreamPosition,
    state_segment: u64,
    round: Round,
    shards: Vec<Shard>,
    lag_checked: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Shard {
    sender: WriteSender,
    bytes: RequestBytes,
}

impl TargetThread<'_> {
    pub(super) fn new<'a>(options: &'a TargetOptions, dir: &Path) -> TargetThread<'a> {
        TargetThread {
            options,
            shared: &options.shared,
            file: PositionFile::new(dir),
            confirmed: StreamPosition::default(),
            state_segment: 0,
            round: Round::default(),
            shards: Vec::new(),
            lag_checked: Mutex::new(None),
        }
    }

    /// Sends samples until the agent stops.
    pub(super) fn run(mut self) {
        let saved = self.load_position();
        (self.confirmed, self.state_segment) = (saved.confirmed, saved.state_segment);
        let opened = loop {
            match self.open_stream() {
                Ok(stream) => break Some(stream),
                Err(error) => self
                    .shared
                    .set_error(&format!("cannot read the log: {error}")),
            }
            if !self.shared.wait(READ_RETRY_PAUSE) {
                break None;
            }
        };
        let Some(mut stream) = opened else {
            return;
        };
        self.publish_position(&stream);
        let settings = &self.options.settings;
        let mut repeated = saved.pending;
        loop {
            let shape = RoundShape {
                shards: settings.shards.get(),
                samples_per_request: settings.max_samples_per_send.get(),
                is_repeated: false,
            };
            let was_stopping = self.shared.is_stopping.load(Ordering::Relaxed);
            let sent = match &repeated {
                Some(pending) => self.repeat_round(&mut stream, pending),
                None => self.send_round(&mut stream, shape, None),
            };
            let is_at_end = match sent {
                Ok((SendEnd::Stopping, _)) => return,
                Ok((_, end)) => {
                    repeated = None;
                    end == RoundEnd::EndOfLog
                }
                Err(error) => {
                    self.shared
                        .set_error(&format!("cannot read the log: {error}"));
                    if !self.shared.wait(READ_RETRY_PAUSE) {
                        return;
                    }
                    continue;
                }
            };
            if (is_at_end && was_stopping) || self.shared.abort.load(Ordering::Relaxed) {
                return;
            }
            // Does not wait when the agent stops: samples that were written until then are sent.
            if is_at_end {
                self.shared.wait(settings.interval.duration());
            }
        }
    }

    /// Returns the position that an earlier agent saved. A new target begins with the samples that
    /// are not in blocks yet.
    fn load_position(&self) -> SavedPosition {
        let of_segment = |segment| SavedPosition {
            confirmed: StreamPosition {
                log: LogPosition { segment, offset: 0 },
                samples: 0,
            },
            state_segment: segment,
            pending: None,
        };
        let store = &self.options.store;
        let error = match self.file.load() {
            Ok(Some(saved)) if saved.confirmed.log.segment <= store.log_end().segment => {
                return saved;
            }
            Ok(Some(_)) => {
                // The position is in a log that was removed since: samples may be missing.
                self.shared.counters.damaged.fetch_add(1, Ordering::Relaxed);
                "the position is beyond the end of the log".to_owned()
            }
            Ok(None) => return of_segment(store.oldest_log_segment()),
            Err(error) => error.to_string(),
        };
        let receiver = &self.shared.name;
        tracing::error!(
            receiver,
            error,
            "cannot use the stored position; sending everything that is in the log"
        );
        let oldest = store.log_segments().first().map(|(number, _)| *number);
        of_segment(oldest.unwrap_or(store.log_end().segment))
    }

    fn open_stream(&self) -> io::Result<SampleStream> {
        let settings = &self.options.settings;
        let labels = SeriesLabels {
            node: self.options.node.clone(),
            external: settings.external_labels.clone(),
            keep: settings.keep.clone(),
            drop: settings.drop.clone(),
        };
        let table = TargetSeries::new(labels, settings.protobuf_message == WriteMessage::V2);
        let interval = self.options.interval;
        let from = (self.confirmed, self.state_segment);
        SampleStream::new(&self.options.store, table, interval, from)
    }

    /// Sends the round that an earlier agent had begun, in the same requests.
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

    /// Reads one round and sends it. If reading fails, the round keeps the samples that were read,
    /// and the next call continues it.
    fn send_round(
        &mut self,
        stream: &mut SampleStream,
        shape: RoundShape,
        until: Option<StreamPosition>,
    ) -> io::Result<(SendEnd, RoundEnd)> {
        if self.is_lag_exceeded() {
            self.drop_oldest(stream)?;
        }
        let requests = shape.shards as usize * REQUESTS_PER_ROUND;
        let max = requests * shape.samples_per_request as usize;
        // A round that is repeated ends where it ended before, regardless of its size.
        let max = until.map_or(max, |_| usize::MAX);
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
            self.publish_position(stream);
            if has_moved {
                self.save(None);
            }
            self.round.clear();
        }
        if ended == SendEnd::LagExceeded {
            self.drop_oldest(stream)?;
        }
        Ok((ended, end))
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

    /// Releases the segments of the log that are not needed to continue at the position.
    fn publish_position(&mut self, stream: &SampleStream) {
        let (position, needed) = (stream.position(), stream.state_segment());
        (self.confirmed, self.state_segment) = (position, needed);
        let shared = self.shared;
        if shared.needed_segment.swap(needed, Ordering::Relaxed) != needed {
            self.options.release.release();
        }
        *shared.confirmed.lock() = Some(position.log);
    }

    fn save(&mut self, pending: Option<PendingRound>) {
        let position = SavedPosition {
            confirmed: self.confirmed,
            state_segment: self.state_segment,
            pending,
        };
        if let Err(error) = self.file.save(&position) {
            let message = format!("cannot store the position: {error}");
            self.shared.set_error(&message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SendEnd;

    #[test]
    fn a_round_of_which_a_shard_was_not_sent_is_not_over() {
        let dropped = SendEnd::Done.max(SendEnd::LagExceeded);
        assert_eq!(dropped, SendEnd::LagExceeded);
        assert_eq!(dropped.max(SendEnd::Stopping), SendEnd::Stopping);
    }
}
