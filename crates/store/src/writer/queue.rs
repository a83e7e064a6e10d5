//! What waits for the writer, and how much of it may.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use pegel_metric::{Input, Ledger, Point, Reason, Tick};

use crate::shared::Shared;
use crate::{PushError, Pushed};

#[derive(Debug)]
pub(crate) enum Command {
    Tick(QueuedTick),
    Push {
        input: Input,
        points: Vec<Point>,
        reply: SyncSender<Result<Pushed, PushError>>,
    },
    /// Freeze the head, so that the upkeep makes a block of it.
    Freeze {
        reply: SyncSender<()>,
    },
    Close,
}

/// A tick on its way to the writer. If it does not get there, it is counted as dropped.
#[derive(Debug)]
pub(crate) struct QueuedTick {
    tick: Option<Tick>,
    ledger: Arc<Ledger>,
}

impl QueuedTick {
    pub fn new(tick: Tick, ledger: &Arc<Ledger>) -> QueuedTick {
        QueuedTick {
            tick: Some(tick),
            ledger: ledger.clone(),
        }
    }

    pub fn take(mut self) -> Tick {
        self.tick.take().expect("it is taken once, by value")
    }
}

impl Drop for QueuedTick {
    fn drop(&mut self) {
        if let Some(tick) = &self.tick {
            let count = tick.sample_count();
            self.ledger.dropped(tick.input, Reason::Closed, count);
        }
    }
}

/// Counts points between `push` and its answer.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    shared: &'a Shared,
    count: u64,
}

impl<'a> InFlight<'a> {
    /// At most this many points wait at one time, whoever sent them.
    const MAX: u64 = 1 << 20;

    pub fn enter(shared: &'a Shared, count: u64) -> Option<InFlight<'a>> {
        let before = shared.points_in_flight.fetch_add(count, Ordering::Relaxed);
        let entered = InFlight { shared, count };
        // A single push that is larger than the limit is let in when it comes alone.
        (before == 0 || before + count <= InFlight::MAX).then_some(entered)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.shared
            .points_in_flight
            .fetch_sub(self.count, Ordering::Relaxed);
    }
}
