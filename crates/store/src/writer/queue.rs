//! The bounded queue between the inputs and the writer. Sending never blocks: a full queue returns
//! the command, and the sender counts the drop. A command that is discarded with the queue counts
//! its samples as dropped (`closed`), so the ledger balances even after a panic of the writer.
//!
//! Waking a thread costs as much as writing hundreds of samples. Ticks in quick succession
//! therefore do not each wake the writer: it sleeps for a few milliseconds and then takes
//! everything that arrived meanwhile. A command whose sender waits for the reply wakes it at once,
//! as does a tick after a pause.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pegel_metric::{DropReason, Input, Ledger, Point, Tick};

use crate::context::StoreContext;
use crate::{PushError, PushResult};

#[derive(Debug)]
pub(crate) enum Command {
    Tick(Tick, UncountedSamples),
    Push {
        input: Input,
        points: Vec<Point>,
        unsettled: UncountedSamples,
        reply: SyncSender<Result<PushResult, PushError>>,
    },
    /// Freezes the head, so that maintenance writes it to a block.
    Freeze {
        reply: SyncSender<()>,
    },
    Close,
}

/// The most ticks and pushes waiting for the writer.
const QUEUE_LEN: usize = 1024;
/// The time the writer sleeps between batches while ticks arrive fast.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Ticks count as fast after this many batches within [`QUICK_SUCCESSION`] of each other, and as
/// long as each delay collects several commands. The inputs of an agent that samples twice a second
/// send two or three ticks together: those are not fast.
const FAST_BATCHES: u32 = 8;
const QUICK_SUCCESSION: Duration = Duration::from_millis(4);
/// A delaying writer is woken when this many commands are queued, so that none is dropped.
const DELAYED_LEN_MAX: usize = QUEUE_LEN / 8;

/// The queue between the inputs and the writer.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    inner: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    commands: VecDeque<Command>,
    writer: WriterActivity,
    is_closed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WriterActivity {
    /// Working; it checks the queue before it sleeps.
    #[default]
    Awake,
    /// Sleeps for [`BATCH_DELAY`] at most.
    Delaying,
    Asleep,
}

/// The reason why a command was not queued.
#[derive(Debug)]
pub(crate) enum QueueSendError {
    /// The queue is full; returns the command.
    Full(Command),
    /// The writer has ended; the command is dropped, and a tick counts its samples as dropped.
    Closed,
}

impl CommandQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock()
    }

    /// Queues a command. Never blocks.
    pub(crate) fn send(&self, command: Command) -> Result<(), QueueSendError> {
        let mut inner = self.lock();
        if inner.is_closed {
            return Err(QueueSendError::Closed);
        }
        let is_waited_for = !matches!(command, Command::Tick(..));
        // Commands of the store's owner are queued even when the queue is full.
        let is_bounded = matches!(command, Command::Tick(..) | Command::Push { .. });
        if is_bounded && inner.commands.len() >= QUEUE_LEN {
            return Err(QueueSendError::Full(command));
        }
        inner.commands.push_back(command);
        let wakes = match inner.writer {
            WriterActivity::Awake => false,
            WriterActivity::Delaying => is_waited_for || inner.commands.len() >= DELAYED_LEN_MAX,
            WriterActivity::Asleep => true,
        };
        if wakes {
            inner.writer = WriterActivity::Awake;
            drop(inner);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Moves up to `count_max` commands into `batch`; blocks until there is at least one.
    fn take(&self, is_fast: bool, count_max: usize, batch: &mut Vec<Command>) {
        let mut inner = self.lock();
        if is_fast && inner.commands.is_empty() {
            inner.writer = WriterActivity::Delaying;
            let is_resting = |inner: &mut QueueState| inner.writer == WriterActivity::Delaying;
            self.wake
                .wait_while_for(&mut inner, is_resting, BATCH_DELAY);
        }
        while inner.commands.is_empty() {
            inner.writer = WriterActivity::Asleep;
            self.wake.wait(&mut inner);
        }
        inner.writer = WriterActivity::Awake;
        let count = inner.commands.len().min(count_max);
        batch.extend(inner.commands.drain(..count));
    }

    /// Closes the queue and drops the queued commands: ticks count their samples as dropped,
    /// senders of pushes see their reply channel close.
    fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        let left = std::mem::take(&mut inner.commands);
        drop(inner);
        drop(left);
    }
}

/// The writer's end of the queue. Dropping it closes the queue, also after a panic.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    queue: Arc<CommandQueue>,
    /// The time of the last batch, and the number of consecutive batches in quick succession.
    last: Instant,
    close_batches: u32,
}

impl CommandReceiver {
    pub(crate) fn new(queue: Arc<CommandQueue>) -> CommandReceiver {
        CommandReceiver {
            queue,
            last: Instant::now(),
            close_batches: 0,
        }
    }

    /// Receives the next batch: at least one command, at most `count_max`.
    pub(crate) fn receive(&mut self, count_max: usize, batch: &mut Vec<Command>) {
        let is_fast = self.close_batches >= FAST_BATCHES;
        self.queue.take(is_fast, count_max, batch);
        let now = Instant::now();
        let is_close =
            now.duration_since(self.last) < QUICK_SUCCESSION || (is_fast && batch.len() > 1);
        self.close_batches = if is_close { self.close_batches + 1 } else { 0 };
        self.last = now;
    }
}

impl Drop for CommandReceiver {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Samples that were received and are not yet counted as kept or dropped. Dropping this value
/// counts the rest as dropped (`closed`), because the writer was closed or panicked.
#[derive(Debug)]
pub(crate) struct UncountedSamples {
    ledger: Arc<Ledger>,
    input: Input,
    count: u64,
}

impl UncountedSamples {
    /// Counts the samples as received.
    pub(crate) fn receive(ledger: &Arc<Ledger>, input: Input, count: u64) -> UncountedSamples {
        ledger.add_received(input, count);
        UncountedSamples {
            ledger: ledger.clone(),
            input,
            count,
        }
    }

    /// Subtracts samples that were counted as kept or dropped.
    pub(crate) fn mark_counted(&mut self, count: u64) {
        self.count = self.count.saturating_sub(count);
    }
}

impl Drop for UncountedSamples {
    fn drop(&mut self) {
        if self.count > 0 {
            self.ledger
                .add_dropped(self.input, DropReason::Closed, self.count);
        }
    }
}

/// Counts points between `push` and its reply.
#[derive(Debug)]
pub(crate) struct InFlightPoints<'a> {
    shared: &'a StoreContext,
    count: u64,
}

impl<'a> InFlightPoints<'a> {
    /// The most points in flight at one time, over all senders.
    const MAX: u64 = 1 << 20;

    pub(crate) fn reserve(shared: &'a StoreContext, count: u64) -> Option<InFlightPoints<'a>> {
        let before = shared.points_in_flight.fetch_add(count, Ordering::Relaxed);
        let reservation = InFlightPoints { shared, count };
        // A single push that exceeds the limit is accepted when no other is in flight.
        (before == 0 || before + count <= InFlightPoints::MAX).then_some(reservation)
    }
}

impl Drop for InFlightPoints<'_> {
    fn drop(&mut self) {
        self.shared
            .points_in_flight
            .fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick() -> Command {
        let ledger = Arc::new(Ledger::default());
        let unsettled = UncountedSamples::receive(&ledger, Input::Collect, 0);
        Command::Tick(Tick::new(Input::Collect), unsettled)
    }

    fn set_writer(queue: &CommandQueue, state: WriterActivity) {
        queue.lock().writer = state;
    }

    /// Returns whether a command wakes a writer in this state.
    fn wakes(state: WriterActivity, command: Command) -> bool {
        let queue = CommandQueue::default();
        set_writer(&queue, state);
        queue.send(command).expect("there is room");
        let is_awake = queue.lock().writer == WriterActivity::Awake;
        is_awake && state != WriterActivity::Awake
    }

    #[test]
    fn a_resting_writer_is_woken_only_by_those_who_wait() {
        let push = || Command::Push {
            input: Input::Push,
            points: Vec::new(),
            unsettled: UncountedSamples::receive(&Arc::default(), Input::Push, 0),
            reply: std::sync::mpsc::sync_channel(1).0,
        };
        assert!(wakes(WriterActivity::Asleep, tick()));
        assert!(wakes(WriterActivity::Asleep, push()));
        assert!(!wakes(WriterActivity::Delaying, tick()));
        assert!(wakes(WriterActivity::Delaying, push()));
        assert!(wakes(WriterActivity::Delaying, Command::Close));
        assert!(!wakes(WriterActivity::Awake, push()));
    }

    #[test]
    fn many_ticks_wake_a_resting_writer_before_the_queue_is_full() {
        let queue = CommandQueue::default();
        set_writer(&queue, WriterActivity::Delaying);
        for _ in 1..DELAYED_LEN_MAX {
            queue.send(tick()).expect("there is room");
            assert_eq!(queue.lock().writer, WriterActivity::Delaying);
        }
        queue.send(tick()).expect("there is room");
        assert_eq!(queue.lock().writer, WriterActivity::Awake);
    }

    #[test]
    fn the_queue_is_bounded_and_closes_with_its_receiver() {
        let queue = Arc::new(CommandQueue::default());
        let mut receiver = CommandReceiver::new(queue.clone());
        for _ in 0..QUEUE_LEN {
            queue.send(tick()).expect("there is room");
        }
        assert!(matches!(queue.send(tick()), Err(QueueSendError::Full(_))));
        queue.send(Command::Close).expect("always");
        let mut batch = Vec::new();
        receiver.receive(256, &mut batch);
        assert_eq!(batch.len(), 256);
        queue.send(tick()).expect("there is room again");
        drop(receiver);
        assert!(matches!(queue.send(tick()), Err(QueueSendError::Closed)));
    }

    #[test]
    fn ticks_in_quick_succession_are_taken_together() {
        let queue = Arc::new(CommandQueue::default());
        let mut receiver = CommandReceiver::new(queue.clone());
        receiver.close_batches = FAST_BATCHES;
        let sender = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                // Ends the delay at a known moment: all three commands are queued then.
                for command in [tick(), tick(), Command::Close] {
                    queue.send(command).expect("there is room");
                }
            })
        };
        let mut taken = 0;
        while taken < 3 {
            let mut batch = Vec::new();
            receiver.receive(256, &mut batch);
            assert!(!batch.is_empty());
            taken += batch.len();
        }
        sender.join().expect("no panic");
    }
}
