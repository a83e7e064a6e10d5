//! [`Store`], the handle through which all other crates use the store: `tick` and `push` send
//! samples to the writer, `latest`, `query_range` and `series` read them. Opening starts the
//! threads of the store (writer, log I/O, syncer, maintenance); dropping the last handle closes it.
//! `tick` never blocks: a tick that finds the queue full is dropped and counted in the ledger.
//! Reads never hold the state's lock while a selector or a visitor runs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use pegel_metric::{DropReason, Input, Ledger, Millis, Point, Selector, Series, Tick};
use pegel_supervisor::{CriticalThread, Heartbeat, Supervisor};

use crate::block::IndexCache;
use crate::complete_since::{CompleteSince, CompletenessRecord};
use crate::context::{BackgroundWork, StoreContext, StoreState};
use crate::drop_tracker::DropTracker;
use crate::finished_blocks::{self, FinishedBlock, FinishedVisitor, SkippedSamples};
use crate::hidden_ranges::{self, HiddenRanges};
use crate::last_rows::{LastRow, last_rows};
use crate::lock::StoreLock;
use crate::log::{LogIo, LogPosition, LogReader, kept_segments};
use crate::range_query::TimeLimit;
use crate::read_filters::{ReadFilter, ReadFilterError, ReadFilters, ShownValues, shown_values};
use crate::writer::{
    Command, CommandQueue, CommandReceiver, InFlightPoints, QueueSendError, StoreWriter,
    UncountedSamples,
};
use crate::{
    ArchiveProgress, ColumnVisitor, LatestValue, PushError, PushResult, QueryError, RangeQuery,
    SeriesVisitor, StoreLimits, StoreOpenError, StoreOptions, StoreStatus, maintenance, open, scan,
    syncer,
};

/// The memory for cached, decoded block indexes: a share of that for samples and series. The
/// indexes of an hour must fit also with many series: a query that finds none of them decodes all,
/// which takes several times as long as reading the samples.
fn index_bytes_max(limits: &StoreLimits) -> usize {
    (limits.memory.as_usize() / 16).max(4 << 20)
}

/// A handle to an open store. Clones share the store; dropping the last one closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
    /// Whether the filters of readers act on this handle.
    is_filtered: bool,
}

struct StoreInner {
    shared: Arc<StoreContext>,
    commands: Arc<CommandQueue>,
    /// Empty ticks for reuse.
    spare_ticks: Arc<Mutex<Vec<Tick>>>,
    threads: Mutex<Option<StoreThreads>>,
}

struct StoreThreads {
    writer: CriticalThread,
    others: Vec<CriticalThread>,
    /// Released last: no other process may open the store while a thread of this one writes to it.
    _lock: StoreLock,
}

impl Store {
    /// Opens the store in `options.dir`, or creates one. After a crash it contains everything that
    /// is still readable.
    pub fn open(options: StoreOptions) -> Result<Store, StoreOpenError> {
        let lock = open::lock_directory(&options.dir)?;
        let locked_dir = lock.locked_dir().map_err(|source| StoreOpenError::Io {
            path: options.dir.clone(),
            source,
        })?;
        let index_bytes_max = index_bytes_max(&options.limits);
        let released = if options.keep_log { 0 } else { u64::MAX };
        let shared = Arc::new(StoreContext {
            locked_dir: Arc::new(locked_dir),
            hidden_ranges: HiddenRanges::load(&options),
            read_filters: ReadFilters::load(&options),
            options,
            ledger: Arc::new(Ledger::default()),
            state: RwLock::new(StoreState::default()),
            stats: Mutex::default(),
            readers_waiting: AtomicUsize::new(0),
            indexes: IndexCache::new(index_bytes_max),
            background_work: Mutex::new(BackgroundWork::default()),
            wake_maintenance: Condvar::new(),
            maintenance_passed: Condvar::new(),
            wake_syncer: Condvar::new(),
            memory_bytes: AtomicU64::new(0),
            torn_bytes: AtomicU64::new(0),
            set_aside: Mutex::default(),
            damaged_segments: Mutex::default(),
            points_in_flight: AtomicU64::new(0),
            drop_tracker: DropTracker::default(),
            log_end: Mutex::default(),
            log_released: AtomicU64::new(released),
            unlogged_samples: AtomicU64::new(0),
            completeness: CompletenessRecord::default(),
        });
        open::check_versions(&shared)?;
        let blocks = open::find_blocks(&shared)?;
        let (head, head_log_bytes, next_segment) = open::replay_log(&shared, &blocks)?;
        shared.set_log_end(next_segment, 0);
        {
            let mut state = shared.write();
            state.head = head;
            state.add_blocks(blocks);
            state.head_log_bytes = head_log_bytes;
        }
        shared.completeness.load(&shared);

        let commands = Arc::new(CommandQueue::default());
        let receiver = CommandReceiver::new(commands.clone());
        let spare = Arc::new(Mutex::new(Vec::new()));
        let thread = |name: &str, body: Box<dyn FnOnce(&Heartbeat) + Send>| {
            let thread = shared.options.supervisor.thread(name);
            thread.critical(body).map_err(|source| StoreOpenError::Io {
                path: shared.options.dir.clone(),
                source,
            })
        };
        let (for_syncer, for_maintenance) = (shared.clone(), shared.clone());
        let (disk, disk_thread) = LogIo::new(
            shared.options.files.clone(),
            shared.log_dir(),
            shared.locked_dir.clone(),
            shared.options.disk_timeout,
        );
        let log = thread("store-log", Box::new(move |_| disk_thread.run()))?;
        // The log I/O thread returns when the writer has ended, also after a panic.
        log.expect_end();
        let writer = StoreWriter::new(shared.clone(), disk, spare.clone(), next_segment);
        let threads = StoreThreads {
            writer: thread(
                "store-writer",
                Box::new(move |beat| writer.run(receiver, beat)),
            )?,
            others: vec![
                log,
                thread("store-syncer", Box::new(move |_| syncer::run(&for_syncer)))?,
                thread(
                    "store-maintain",
                    Box::new(move |_| maintenance::run(&for_maintenance)),
                )?,
            ],
            _lock: lock,
        };
        let threads = Mutex::new(Some(threads));
        Ok(Store {
            inner: Arc::new(StoreInner {
                shared,
                commands,
                spare_ticks: spare,
                threads,
            }),
            is_filtered: false,
        })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &StoreContext {
        &self.inner.shared
    }

    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.inner.shared.ledger
    }

    /// Returns the supervisor of the store's threads and of those that use the store.
    pub fn supervisor(&self) -> &Supervisor {
        &self.inner.shared.options.supervisor
    }

    /// Sends a tick to the writer and replaces it with an empty one. Never blocks: if the queue is
    /// full, the tick is dropped and counted. Returns whether it was sent.
    pub fn tick(&self, tick: &mut Tick) -> bool {
        let spare = self.inner.spare_ticks.lock().pop();
        let full = std::mem::replace(tick, spare.unwrap_or_else(|| Tick::new(tick.input)));
        tick.input = full.input;
        let (input, count) = (full.input, full.sample_count());
        let unsettled = UncountedSamples::receive(self.ledger(), input, count);
        let sent = self.inner.commands.send(Command::Tick(full, unsettled));
        if let Err(QueueSendError::Full(Command::Tick(_, mut unsettled))) = sent {
            unsettled.mark_counted(count);
            let shared = &self.inner.shared;
            shared.count_dropped_tick(input, DropReason::QueueFull, count);
            return false;
        }
        true
    }

    /// Sends points to the writer. Returns once they are in the log and visible to readers.
    pub fn push(&self, input: Input, points: Vec<Point>) -> Result<PushResult, PushError> {
        let count = points.len() as u64;
        let mut unsettled = UncountedSamples::receive(self.ledger(), input, count);
        let queue_full = |unsettled: &mut UncountedSamples| {
            unsettled.mark_counted(count);
            self.ledger()
                .add_dropped(input, DropReason::QueueFull, count);
            Err(PushError::QueueFull)
        };
        let Some(_in_flight) = InFlightPoints::reserve(&self.inner.shared, count) else {
            return queue_full(&mut unsettled);
        };
        let (reply, response) = sync_channel(1);
        let command = Command::Push {
            input,
            points,
            unsettled,
            reply,
        };
        match self.inner.commands.send(command) {
            // No reply: the writer ended before it reached this push.
            Ok(()) => response.recv().unwrap_or(Err(PushError::Closed)),
            Err(QueueSendError::Full(Command::Push { mut unsettled, .. })) => {
                queue_full(&mut unsettled)
            }
            Err(_) => Err(PushError::Closed),
        }
    }

    /// Visits the live series that match and whose current value was set after change number
    /// `after` (0: all), in no particular order. Returns the number of the latest change. No lock
    /// is held while `visit` and the selector run; [`Store::latest_until`] bounds the time spent on
    /// untrusted selectors.
    pub fn latest(
        &self,
        selector: &Selector,
        after: u64,
        visit: &mut dyn FnMut(&Arc<Series>, LatestValue),
    ) -> u64 {
        let visited = self.visit_current(selector, after, &mut TimeLimit::new(None), None, visit);
        visited.expect("without a deadline it does not fail")
    }

    /// Like [`Store::latest`] of all series, but leaves out groups of one input. That costs
    /// nothing, however many series they have.
    pub fn latest_without(
        &self,
        left_out: Input,
        visit: &mut dyn FnMut(&Arc<Series>, LatestValue),
    ) -> u64 {
        let (all, limit) = (Selector::all(), &mut TimeLimit::new(None));
        let visited = self.visit_current(&all, 0, limit, Some(left_out), visit);
        visited.expect("without a deadline it does not fail")
    }

    /// Like [`Store::latest`], but fails with [`QueryError::TooLong`] at the deadline.
    pub fn latest_until(
        &self,
        deadline: Instant,
        selector: &Selector,
        after: u64,
        visit: &mut dyn FnMut(&Arc<Series>, LatestValue),
    ) -> Result<u64, QueryError> {
        let limit = &mut TimeLimit::new(Some(deadline));
        self.visit_current(selector, after, limit, None, visit)
    }

    fn visit_current(
        &self,
        selector: &Selector,
        after: u64,
        limit: &mut TimeLimit,
        left_out: Option<Input>,
        visit: &mut dyn FnMut(&Arc<Series>, LatestValue),
    ) -> Result<u64, QueryError> {
        let shared = &self.inner.shared;
        let hidden_ranges = shared.hidden_ranges.ranges();
        shared.show_due_points();
        let mut current = shared.read().head.current();
        if let Some(input) = left_out {
            current.groups.retain(|group| !group.is_of(input));
        }
        let filters = self.filters_in_force();
        limit.count_filters(&filters);
        let mut shown = |series: &Arc<Series>, latest: LatestValue| {
            let is_hidden = hidden_ranges::is_hidden(&hidden_ranges, series, latest.last_sampled);
            if !is_hidden && shown_values(&filters, series).contain(latest.value) {
                visit(series, latest);
            }
        };
        current.visit(selector, after, shared.now(), limit, &mut shown)?;
        Ok(current.changes)
    }

    /// Hides the samples of an input before `time`. Retention frees their space by age, as for all
    /// samples. The change is durable when this returns.
    pub fn hide_before(&self, input: Input, time: Millis) -> std::io::Result<()> {
        let shared = &self.inner.shared;
        shared.hidden_ranges.add(&shared.options, input, time)
    }

    /// Returns the time before which the samples of an input are hidden.
    pub fn hidden_before(&self, input: Input) -> Option<Millis> {
        hidden_ranges::hidden_before(&self.inner.shared.hidden_ranges.ranges(), input)
    }

    /// Returns a reader of the log that begins with a segment, or with the next one that exists.
    /// Requires [`StoreOptions::keep_log`].
    pub fn log_reader(&self, segment: u64) -> LogReader {
        LogReader::new(self.inner.shared.clone(), segment)
    }

    /// Returns the end of what is written to the log.
    pub fn log_end(&self) -> LogPosition {
        *self.inner.shared.log_end.lock()
    }

    /// Returns the segments that readers can read, with their sizes in bytes, sorted by number.
    pub fn log_segments(&self) -> Vec<(u64, u64)> {
        kept_segments::sizes(&self.inner.shared)
    }

    /// Returns the oldest segment with samples that are not in blocks.
    pub fn oldest_log_segment(&self) -> u64 {
        kept_segments::oldest_unstored(&self.inner.shared)
    }

    /// Permits the removal of the log's segments below a number, once their samples are in blocks.
    pub fn release_log(&self, below: u64) {
        let shared = &self.inner.shared;
        if shared.options.keep_log {
            shared.log_released.fetch_max(below, Ordering::Relaxed);
        }
    }

    /// Returns the number of samples that are kept in memory and were not written to the log,
    /// because it could not be written: readers of the log do not see them.
    pub fn unlogged_samples(&self) -> u64 {
        let count = &self.inner.shared.unlogged_samples;
        count.load(Ordering::Relaxed)
    }

    /// Returns the times from which on the store has every sample that it received.
    pub fn complete_since(&self) -> CompleteSince {
        let shared = &self.inner.shared;
        shared.completeness.complete_since(shared)
    }

    /// Returns the values of a series that the filters of readers leave on this handle.
    pub fn shown_values(&self, series: &Series) -> ShownValues {
        shown_values(&self.filters_in_force(), series)
    }

    /// Returns how long samples are kept.
    pub fn retention(&self) -> Duration {
        self.inner.shared.options.keep.disk.duration()
    }

    /// Returns the groups whose names begin with `prefix` and that were in use when the last of
    /// them was written, with the value of each member in its last row; sorted by the time of that
    /// row, the newest last. Used by an input that continues the totals of its predecessor, however
    /// long ago that ended. Reads blocks: only for use at start.
    pub fn last_group_rows(&self, prefix: &str) -> Vec<LastRow> {
        last_rows(&self.inner.shared, prefix)
    }

    /// Runs a query and visits the matching series one by one, sorted by text; points are sorted by
    /// time.
    pub fn query_range(
        &self,
        query: &RangeQuery,
        visit: &mut SeriesVisitor<'_>,
    ) -> Result<(), QueryError> {
        let filters = self.filters_in_force();
        scan::query_range(&self.inner.shared, query, &filters, visit)
    }

    /// Runs a query without a step and visits the samples of the matching series one by one, sorted
    /// by text.
    pub fn query_columns(
        &self,
        query: &RangeQuery,
        visit: &mut ColumnVisitor<'_>,
    ) -> Result<(), QueryError> {
        let filters = self.filters_in_force();
        scan::query_columns(&self.inner.shared, query, &filters, visit)
    }

    /// Visits the series that match and have samples in the range of a query, live or not, sorted
    /// by text. Does not read the samples.
    pub fn series(
        &self,
        query: &RangeQuery,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), QueryError> {
        let filters = self.filters_in_force();
        scan::list_series(&self.inner.shared, query, &filters, visit)
    }

    /// Returns a handle on which the filters of readers act: for answers to clients.
    pub fn for_readers(&self) -> Store {
        Store {
            inner: self.inner.clone(),
            is_filtered: true,
        }
    }

    fn filters_in_force(&self) -> Arc<Vec<ReadFilter>> {
        match self.is_filtered {
            true => self.read_filters(),
            false => Arc::default(),
        }
    }

    /// Returns the filters of readers, sorted by name.
    pub fn read_filters(&self) -> Arc<Vec<ReadFilter>> {
        self.inner.shared.read_filters.filters()
    }

    /// Adds a filter, or replaces the one of its name. The change is durable when this returns.
    pub fn set_read_filter(&self, filter: ReadFilter) -> Result<(), ReadFilterError> {
        let shared = &self.inner.shared;
        shared.read_filters.set(&shared.options, filter)
    }

    /// Removes a filter. Returns whether there was one. The change is durable when this returns.
    pub fn remove_read_filter(&self, name: &str) -> Result<bool, ReadFilterError> {
        let shared = &self.inner.shared;
        shared.read_filters.remove(&shared.options, name)
    }

    /// Writes the samples in memory to blocks and waits until maintenance has sealed finished hours
    /// and dropped old blocks. The store does this periodically on its own.
    pub fn flush_to_blocks(&self) {
        let (reply, frozen) = sync_channel(1);
        if self.inner.commands.send(Command::Freeze { reply }).is_err() || frozen.recv().is_err() {
            return;
        }
        let shared = &self.inner.shared;
        let mut work = shared.background_work();
        work.maintenance_requested += 1;
        let wanted = work.maintenance_requested;
        shared.wake_maintenance.notify_one();
        while work.maintenance_done < wanted && !work.stop {
            shared.maintenance_passed.wait(&mut work);
        }
    }

    /// Returns the progress of the archive, if there is one.
    pub fn archive_progress(&self) -> Option<&Arc<ArchiveProgress>> {
        self.inner.shared.options.archive.as_ref()
    }

    /// Returns the blocks that no longer change, in the order in which they were written.
    pub fn finished_blocks(&self) -> Vec<FinishedBlock> {
        finished_blocks::finished_blocks(&self.inner.shared)
    }

    /// Visits the samples of a finished block in a range of time, series by series, sorted by text.
    /// Ends early if the visitor breaks.
    pub fn visit_finished(
        &self,
        block: &FinishedBlock,
        window: Range<Millis>,
        visit: &mut FinishedVisitor<'_>,
    ) -> Result<SkippedSamples, QueryError> {
        finished_blocks::visit_finished(&self.inner.shared, block, window, visit)
    }

    /// Returns the status of the store. Never waits for the writer or for readers.
    pub fn status(&self) -> StoreStatus {
        let shared = &self.inner.shared;
        let stats = shared.stats();
        let spans = { stats.blocks.iter() }
            .filter(|block| block.min != Millis::MIN)
            .map(|block| (block.min, block.max))
            .chain(stats.span);
        let damaged = stats.blocks.iter().filter(|block| block.is_damaged());
        StoreStatus {
            dir: shared.options.dir.clone(),
            series: stats.series,
            memory_bytes: shared.memory_bytes.load(Ordering::Relaxed),
            log_bytes: stats.log_bytes,
            block_bytes: stats.blocks.iter().map(|block| block.bytes).sum(),
            blocks: stats.blocks.len() as u64,
            classes: stats.classes(shared.options.keep.bytes_max()),
            oldest: spans.clone().map(|(min, _)| min).min(),
            newest: spans.map(|(_, max)| max).max(),
            duplicates: shared.ledger.duplicates_total(),
            out_of_order: shared.ledger.out_of_order_total(),
            torn_bytes: shared.torn_bytes.load(Ordering::Relaxed),
            set_aside: shared.set_aside.lock().clone(),
            damaged_blocks: damaged.count() as u64,
            degraded: stats
                .log_failure
                .clone()
                .or_else(|| shared.sync_stalled())
                .or_else(|| stats.block_failure.clone())
                .or_else(|| shared.drop_tracker.degradation(&shared.options)),
        }
    }

    /// Writes all queued samples, syncs, and stops the store's threads. Later ticks are dropped and
    /// counted.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl StoreInner {
    fn close(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        threads.writer.expect_end();
        threads.others.iter().for_each(CriticalThread::expect_end);
        // Queued behind all other commands, so that all of them are written.
        let _ = self.commands.send(Command::Close);
        threads.writer.join();
        // Also syncs samples acknowledged by a writer that panicked.
        self.shared.sync_log();
        self.shared.background_work().stop = true;
        self.shared.wake_syncer.notify_all();
        self.shared.wake_maintenance.notify_all();
        self.shared.maintenance_passed.notify_all();
        for thread in threads.others {
            thread.join();
        }
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.inner.shared.options.dir)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_does_not_wait_for_the_state() {
        let dir = std::env::temp_dir().join(format!("pegel-status-{}", std::process::id()));
        let store = Store::open(StoreOptions::new(&dir)).expect("opens");
        let held = store.inner.shared.write();
        assert_eq!(store.status().series, 0);
        drop(held);
        store.close();
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
