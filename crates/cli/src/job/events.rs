//! What `pegel job` waits for: the ends of its processes, and signals. One thread per source sends
//! to one queue.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Events that wait; a sender waits while the queue is full.
const EVENTS_MAX: usize = 64;
/// The signals that are passed on to the command.
const SIGNALS: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

#[derive(Debug)]
pub(super) enum JobEvent {
    Signal(i32),
    CommandEnded(ExitStatus),
    /// A client requested the end of the telemetry.
    HeadEnding,
    HeadEnded,
    /// All participants on all nodes are done.
    ParticipantsDone,
    /// The launcher with this index ended.
    LauncherEnded(usize, ExitStatus),
}

#[derive(Debug)]
pub(super) struct JobEvents {
    sender: SyncSender<JobEvent>,
    receiver: Receiver<JobEvent>,
    /// Events that came while others were waited for.
    deferred: RefCell<VecDeque<JobEvent>>,
}

impl JobEvents {
    /// Starts to receive signals; from now on they do not end this process.
    pub(super) fn start() -> anyhow::Result<JobEvents> {
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        let mut signals = Signals::new(SIGNALS).context("cannot receive signals")?;
        let to_queue = sender.clone();
        // Detached: it ends with this process.
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if to_queue.send(JobEvent::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(JobEvents {
            sender,
            receiver,
            deferred: RefCell::default(),
        })
    }

    pub(super) fn sender(&self) -> SyncSender<JobEvent> {
        self.sender.clone()
    }

    /// Waits for the next event; `None` after `bound`.
    pub(super) fn next(&self, bound: Duration) -> Option<JobEvent> {
        let deferred = self.deferred.borrow_mut().pop_front();
        deferred.or_else(|| self.next_new(bound))
    }

    /// Like [`JobEvents::next`], without the deferred events.
    pub(super) fn next_new(&self, bound: Duration) -> Option<JobEvent> {
        self.receiver.recv_timeout(bound).ok()
    }

    /// Keeps an event for the next caller of [`JobEvents::next`].
    pub(super) fn defer(&self, event: JobEvent) {
        self.deferred.borrow_mut().push_back(event);
    }
}
