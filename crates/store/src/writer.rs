//! The writer: the only thread that appends to the log and changes the head.
//!
//! It takes batches of commands from the queue, checks them (`command_check.rs`), appends them to
//! the log with one `write(2)`, applies them to the head (`head_update.rs`) and acknowledges
//! pushes, in this order: nothing becomes visible or is acknowledged before it is in the log. The
//! file operations run in the log's own thread (`log/log_io.rs`), so that a hanging disk delays the
//! writer for seconds at most.
//!
//! While the log cannot be written or synced, or is not at its path, pushes are rejected and
//! collected samples stay in memory. The writer retries with a new segment once a second and syncs
//! it; once that succeeds, the head is written to a block, because the log does not hold all of it.

mod command_check;
mod head_update;
mod pending_series;
mod queue;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use pegel_metric::{DropReason, Millis, Tick};
use pegel_supervisor::Heartbeat;

use crate::PushError;
use crate::context::{FrozenHead, StoreContext};
use crate::files::FileHandle;
use crate::head::Head;
use crate::log::{FrameEncoder, LogIo, LogSegment};

use command_check::{CheckedCommand, CheckedPoints, CommandCheck};
use head_update::{HeadUpdate, POINT_COST, SAMPLE_COST};
pub(crate) use queue::{
    Command, CommandQueue, CommandReceiver, InFlightPoints, QueueSendError, UncountedSamples,
};

/// The most commands per write.
const BATCH_MAX: usize = 256;
/// Starts a new segment at this size: replaying a longer log after a crash would take too long.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
/// The interval at which a failed log is retried and memory is measured.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Points whose series are loaded from memory together.
const POINTS_AHEAD: usize = 32;
/// The most heads waiting for their blocks; beyond that the active head keeps growing.
const FROZEN_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct StoreWriter {
    shared: Arc<StoreContext>,
    spare: Arc<Mutex<Vec<Tick>>>,
    disk: LogIo,
    log: Option<OpenLog>,
    /// The last check that the log is at its path.
    log_checked: Option<Duration>,
    next_segment: u64,
    log_retried: Option<Duration>,
    head_since: Duration,
    /// The size of the segments that were replayed into the active head.
    older_log_bytes: u64,
    memory_checked: Option<Duration>,
    memory_bytes: u64,
    /// The memory used by the active head, now and initially: it starts with the series of its
    /// predecessor.
    head_bytes: u64,
    head_bytes_initial: u64,
}

#[derive(Debug)]
struct OpenLog {
    segment: LogSegment,
    encoder: FrameEncoder,
}

impl StoreWriter {
    pub(crate) fn new(
        shared: Arc<StoreContext>,
        disk: LogIo,
        spare: Arc<Mutex<Vec<Tick>>>,
        next_segment: u64,
    ) -> StoreWriter {
        let head_since = shared.options.clock.monotonic();
        let mut writer = StoreWriter {
            shared,
            spare,
            disk,
            log: None,
            log_checked: None,
            next_segment,
            log_retried: None,
            head_since,
            older_log_bytes: 0,
            memory_checked: None,
            memory_bytes: 0,
            head_bytes: 0,
            head_bytes_initial: 0,
        };
        writer.older_log_bytes = writer.shared.read().head_log_bytes;
        // Replayed samples belong to earlier segments and to the same head.
        if let Err(error) = writer.open_segment(false) {
            writer.abandon_log(&error.to_string());
        }
        writer
    }

    /// Processes commands in batches until the store is closed.
    pub(crate) fn run(mut self, mut commands: CommandReceiver, heartbeat: &Heartbeat) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut received = Vec::with_capacity(BATCH_MAX);
        loop {
            commands.receive(BATCH_MAX, &mut received);
            heartbeat.busy();
            let mut closing = false;
            let mut freeze = Vec::new();
            let mut check = CommandCheck::new(&self.shared);
            for command in received.drain(..) {
                match command {
                    Command::Tick(tick, unsettled) => batch.push(check.tick(tick, unsettled)),
                    Command::Push {
                        input,
                        points,
                        unsettled,
                        reply,
                    } => batch.push(check.push(input, points, unsettled, reply)),
                    Command::Freeze { reply } => freeze.push(reply),
                    Command::Close => closing = true,
                }
            }
            self.commit(&mut batch);
            self.rotate_if_due(!freeze.is_empty());
            for reply in freeze {
                let _ = reply.send(());
            }
            if closing {
                // Commands that arrive from here on are dropped and counted when the queue is
                // closed.
                return;
            }
            heartbeat.idle();
        }
    }

    /// Logs a batch, applies it to the head, counts its samples and acknowledges its pushes. If the
    /// log cannot be written, pushes are rejected, and ticks are kept in memory only.
    fn commit(&mut self, batch: &mut Vec<CheckedCommand>) {
        if batch.is_empty() {
            return;
        }
        let logged = self.write_log(batch);
        let is_full = self.is_memory_full();
        let mut replies = Vec::new();
        let mut changes = HeadUpdate::new(&self.shared);
        let now = self.shared.now();
        while changes.head(POINT_COST).show_due_point(now) {}
        for checked in batch.drain(..) {
            match checked {
                CheckedCommand::Tick(mut tick, rows, mut unsettled) => {
                    let head = changes.head(tick.sample_count() as usize * SAMPLE_COST);
                    let kept = self.apply_tick(head, &tick, &rows, is_full, &mut unsettled);
                    if logged.is_err() {
                        self.shared
                            .unlogged_samples
                            .fetch_add(kept, Ordering::Relaxed);
                    }
                    tick.reset(0);
                    recycle(&self.spare, tick);
                }
                CheckedCommand::Push(input, mut points, mut unsettled, pushed, reply) => {
                    let count = points.points.len() as u64;
                    let result = match &logged {
                        Err(reason) => {
                            self.shared
                                .ledger
                                .add_dropped(input, DropReason::Degraded, count);
                            Err(PushError::Degraded(reason.clone()))
                        }
                        Ok(()) => {
                            points.resolve_for(changes.head(0).number);
                            self.apply_points(&mut changes, &points, now);
                            self.shared.ledger.add_kept(input, count);
                            Ok(pushed)
                        }
                    };
                    unsettled.mark_counted(count);
                    replies.push((reply, result));
                }
            }
        }
        if let Some(log) = &self.log {
            changes.state().head_log_bytes = self.older_log_bytes + log.segment.len();
        }
        drop(changes);
        for (reply, result) in replies {
            // The sender may have given up waiting; its points are kept.
            let _ = reply.send(result);
        }
    }

    fn apply_points(&self, changes: &mut HeadUpdate<'_>, checked: &CheckedPoints, now: Millis) {
        let chunks = checked.points.chunks(POINTS_AHEAD);
        for (points, slots) in chunks.zip(checked.slots.chunks(POINTS_AHEAD)) {
            let head = changes.head(points.len() * POINT_COST);
            head.ungrouped.load_ahead(slots.iter().copied());
            head.append_points(points, slots, now, &self.shared.ledger);
        }
    }

    /// Applies the accepted rows of a tick. If memory is full, only the current values are updated.
    /// Returns the number of samples kept.
    fn apply_tick(
        &self,
        head: &mut Head,
        tick: &Tick,
        rows: &[bool],
        is_full: bool,
        unsettled: &mut UncountedSamples,
    ) -> u64 {
        let mut kept = 0;
        for (row, _) in tick.rows().iter().zip(rows).filter(|(_, fits)| **fits) {
            let count = row.present_count();
            if is_full {
                head.set_current_row(tick.time, row);
                self.shared
                    .count_dropped_tick(tick.input, DropReason::Memory, count);
            } else {
                head.append_row(tick.time, row, &self.shared.ledger);
                self.shared.ledger.add_kept(tick.input, count);
                kept += count;
            }
            unsettled.mark_counted(count);
        }
        kept
    }

    /// Writes all accepted commands with one call. Returns the reason on failure.
    fn write_log(&mut self, batch: &[CheckedCommand]) -> Result<(), String> {
        let sync_failure = self
            .shared
            .background_work()
            .take_sync_failure(self.shared.options.disk_timeout);
        if let Some(reason) = sync_failure {
            self.abandon_log(&reason);
        }
        self.retry_log();
        let is_full = self.is_memory_full();
        let Some(log) = &mut self.log else {
            let state = self.shared.read();
            return Err(state
                .log_failure
                .as_ref()
                .map_or_else(String::new, |degradation| degradation.reason.clone()));
        };
        if is_full {
            return Err("memory is full (limits.memory) and blocks cannot be written".to_owned());
        }
        let mut unlogged = 0;
        for checked in batch {
            match checked {
                CheckedCommand::Tick(tick, rows, _) => unlogged += log.encoder.tick(tick, rows),
                CheckedCommand::Push(input, points, ..) => {
                    let CheckedPoints {
                        points,
                        slots,
                        head,
                    } = points;
                    log.encoder.push_with_slots(*input, points, (slots, *head));
                }
            }
        }
        // Pushes are acknowledged only if the log is still reachable. Ticks are not acknowledged
        // individually.
        let now = self.shared.options.clock.monotonic();
        let is_acknowledged = batch
            .iter()
            .any(|checked| matches!(checked, CheckedCommand::Push(..)));
        let is_check_due = self
            .log_checked
            .is_none_or(|checked| now.saturating_sub(checked) >= RETRY_INTERVAL);
        let check = is_acknowledged || is_check_due;
        match self.disk.append(&mut log.segment, &mut log.encoder, check) {
            Ok(()) => {
                if check {
                    self.log_checked = Some(now);
                }
                self.shared
                    .unlogged_samples
                    .fetch_add(unlogged, Ordering::Relaxed);
                let end = log.segment.len();
                self.shared.set_log_end(self.next_segment - 1, end);
                let mut work = self.shared.background_work();
                let is_listed = |file: &Arc<dyn FileHandle>| Arc::ptr_eq(file, &log.segment.file);
                if !work.unsynced.iter().any(is_listed) {
                    work.unsynced.push(log.segment.file.clone());
                    self.shared.wake_syncer.notify_one();
                }
                Ok(())
            }
            Err(error) => {
                let reason = format!("{}: {error}", log.segment.path.display());
                self.abandon_log(&reason);
                Err(reason)
            }
        }
    }

    /// Gives up the current segment, which can no longer be trusted: further samples go to a new
    /// one.
    fn abandon_log(&mut self, reason: &str) {
        self.log = None;
        self.log_retried = Some(self.shared.options.clock.monotonic());
        self.shared.set_log_failure(Some(reason.to_owned()));
    }

    /// Tries to open a new segment after a failure, at most once per [`RETRY_INTERVAL`].
    fn retry_log(&mut self) {
        let now = self.shared.options.clock.monotonic();
        let is_due = self
            .log_retried
            .is_none_or(|tried| now.saturating_sub(tried) >= RETRY_INTERVAL);
        if self.log.is_some() || !is_due || !self.disk.is_idle() {
            return;
        }
        self.log_retried = Some(now);
        // Synced at once: a disk that accepts writes but fails to sync would look healthy for a
        // moment after every retry.
        match self.rotate(true) {
            Ok(()) => self.shared.set_log_failure(None),
            Err(error) => self.abandon_log(&error.to_string()),
        }
    }

    /// Rotates on request, or when the head is old or large, or its log is long.
    fn rotate_if_due(&mut self, is_requested: bool) {
        let now = self.shared.options.clock.monotonic();
        let options = &self.shared.options;
        let Some(log) = &self.log else {
            return;
        };
        let is_old = now.saturating_sub(self.head_since) >= options.keep.memory.duration();
        let is_long = log.segment.len() >= SEGMENT_BYTES_MAX.min(options.keep.bytes_max() / 16);
        // Writing a block frees samples, not live series: series alone do not trigger one.
        let growth = self.head_bytes.saturating_sub(self.head_bytes_initial);
        let is_large = growth >= options.limits.memory.count() / 4;
        let has_room = self.shared.read().frozen.len() < FROZEN_MAX;
        if (is_requested || is_old || is_long || is_large)
            && has_room
            && let Err(error) = self.rotate(false)
        {
            self.abandon_log(&error.to_string());
        }
    }

    /// Starts a new segment and a new head; the old head is frozen and written to a block.
    fn rotate(&mut self, sync: bool) -> io::Result<()> {
        let log_through = self.next_segment - 1;
        self.open_segment(sync)?;
        // Prepared without the lock: only this thread adds series and points.
        let successor = {
            let state = self.shared.read();
            (!state.head.is_empty()).then(|| {
                let duplicates = state.head.ungrouped.late_duplicates();
                self.shared.ledger.add_duplicates(duplicates);
                state.head.successor(self.shared.now())
            })
        };
        let mut state = self.shared.write();
        if let Some(mut successor) = successor {
            // A reader may have made due points current meanwhile.
            successor.changes = state.head.changes;
            let head = std::mem::replace(&mut state.head, successor);
            let log_bytes = std::mem::take(&mut state.head_log_bytes);
            state.frozen.push(Arc::new(FrozenHead {
                head,
                log_through,
                log_bytes,
            }));
        }
        drop(state);
        self.head_bytes_initial = self.shared.read().head.bytes() as u64;
        self.head_bytes = self.head_bytes_initial;
        self.head_since = self.shared.options.clock.monotonic();
        self.older_log_bytes = 0;
        self.memory_checked = None;
        self.shared.background_work().maintenance_requested += 1;
        self.shared.wake_maintenance.notify_one();
        Ok(())
    }

    fn open_segment(&mut self, sync: bool) -> io::Result<()> {
        let segment = self.disk.open(self.next_segment, sync)?;
        self.shared.set_log_end(self.next_segment, segment.len());
        self.next_segment += 1;
        self.shared.background_work().unsynced_dir |= !sync;
        self.log = Some(OpenLog {
            segment,
            encoder: FrameEncoder::default(),
        });
        Ok(())
    }

    /// Returns whether samples and series exceed `limits.memory`. Only possible while blocks cannot
    /// be written: otherwise the head is written to a block long before.
    fn is_memory_full(&mut self) -> bool {
        let now = self.shared.options.clock.monotonic();
        if self
            .memory_checked
            .is_none_or(|checked| now.saturating_sub(checked) >= RETRY_INTERVAL)
        {
            self.memory_checked = Some(now);
            (self.head_bytes, self.memory_bytes) = self.shared.measure_memory();
            self.shared
                .memory_bytes
                .store(self.memory_bytes, Ordering::Relaxed);
        }
        self.memory_bytes >= self.shared.options.limits.memory.count()
    }
}

fn recycle(spare: &Mutex<Vec<Tick>>, tick: Tick) {
    let mut spare = spare.lock();
    if spare.len() < 4 {
        spare.push(tick);
    }
}
