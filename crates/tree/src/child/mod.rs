//! The child's side: dials parents in order of preference, sends ticks and answers requests.

mod connection;
mod dial;
mod requests;
mod tick_sender;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pegel_metric::{Millis, Series, one_line};
use pegel_tree_protocol::{LocalServer, NodeOverview};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::context::TreeContext;
use crate::parent::{Parent, ReducedTick};
use connection::{ConnectionEnd, ParentConnection};

/// The pause before the next attempt grows from the first to the second, with jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A connection that lasted so long was not refused.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How often preferred parents are tried while another one is connected.
const PREFERRED_EVERY: Duration = Duration::from_secs(30);
/// Ticks that wait for the connection.
const ITEMS_MAX: usize = 8;

/// Ticks that were computed again and wait for the connection.
const CHANGED_MAX: usize = 10_000;
const CHANGED_PER_SECOND: usize = 1000;

/// A tick that was reported to the parent on a connection that ended is reported again for this
/// time: longer than a silent connection lasts on either side.
const CHANGED_REPEATED: Millis = 2 * 60 * 1000;

/// Ticks whose values changed after they were sent.
#[derive(Debug, Default)]
struct ChangedTicks {
    /// Those of which the parent was not informed.
    waiting: BTreeSet<Millis>,
    /// Those that were sent on a connection, with the time at which they were.
    sent: VecDeque<(Millis, Millis)>,
}

impl ChangedTicks {
    /// The oldest are given up if there are too many.
    fn add(&mut self, ticks: impl IntoIterator<Item = Millis>) {
        self.waiting.extend(ticks);
        while self.waiting.len() > CHANGED_MAX {
            self.waiting.pop_first();
        }
    }

    /// Takes the oldest ticks that wait, to be sent now.
    fn take(&mut self, now: Millis) -> Vec<Millis> {
        let count = self.waiting.len().min(CHANGED_PER_SECOND);
        let taken = (0..count).filter_map(|_| self.waiting.pop_first());
        let taken: Vec<Millis> = taken.collect();
        self.sent.extend(taken.iter().map(|tick| (now, *tick)));
        while self.sent.len() > CHANGED_MAX {
            self.sent.pop_front();
        }
        self.forget_sent(now);
        taken
    }

    fn forget_sent(&mut self, now: Millis) {
        let is_old = |(sent, _): &(Millis, Millis)| now - *sent > CHANGED_REPEATED;
        while self.sent.front().is_some_and(is_old) {
            self.sent.pop_front();
        }
    }

    /// Has everything sent again that may have been lost with a connection.
    fn repeat(&mut self, now: Millis) {
        self.forget_sent(now);
        let sent = std::mem::take(&mut self.sent);
        self.add(sent.into_iter().map(|(_, tick)| tick));
    }

    fn all(&mut self, now: Millis) -> BTreeSet<Millis> {
        self.forget_sent(now);
        let sent = self.sent.iter().map(|(_, tick)| *tick);
        self.waiting.iter().copied().chain(sent).collect()
    }
}

/// What goes to the parent.
#[derive(Debug)]
pub(crate) enum UplinkItem {
    /// The values of a leaf.
    Values {
        time: Millis,
        values: Vec<(Arc<Series>, f64)>,
        overview: NodeOverview,
    },
    /// The partial results of a parent.
    Partials {
        tick: ReducedTick,
        overview: NodeOverview,
    },
}

/// The state of one configured parent.
#[derive(Debug, Clone)]
struct ParentStatus {
    address: String,
    node: String,
    since: Option<Millis>,
    last_error: Option<String>,
    attempts: u64,
}

/// Whether a child reaches a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentContact {
    Connected,
    /// No parent is connected, and there may be one again.
    Lost,
    /// The machines of all parents refuse connections: no agent listens there.
    Refused,
}

/// Returns the error of a connection that is refused.
fn refused_error() -> String {
    let refused = std::io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
    format!("connect: {refused}")
}

/// The state of the connection to parents, shared with the thread that makes ticks.
#[derive(Debug)]
pub(crate) struct UplinkState {
    parents: Mutex<Vec<ParentStatus>>,
    is_attached: AtomicBool,
    /// The interval of the parent, in milliseconds.
    interval: AtomicI64,
    last_epoch: AtomicU64,
    changed: Mutex<ChangedTicks>,
    items: mpsc::Sender<UplinkItem>,
}

impl UplinkState {
    pub(crate) fn new(context: &TreeContext) -> (Arc<UplinkState>, mpsc::Receiver<UplinkItem>) {
        let (items, receiver) = mpsc::channel(ITEMS_MAX);
        let parents = context.settings.parents.iter().map(|address| ParentStatus {
            address: address.to_string(),
            node: String::new(),
            since: None,
            last_error: None,
            attempts: 0,
        });
        let state = UplinkState {
            parents: Mutex::new(parents.collect()),
            is_attached: AtomicBool::new(false),
            interval: AtomicI64::new(context.interval()),
            last_epoch: AtomicU64::new(0),
            changed: Mutex::default(),
            items,
        };
        (Arc::new(state), receiver)
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Relaxed)
    }

    pub(crate) fn interval(&self) -> Millis {
        self.interval.load(Ordering::Relaxed)
    }

    /// Queues an item. Returns false if the connection does not keep up.
    pub(crate) fn send(&self, item: UplinkItem) -> bool {
        self.items.try_send(item).is_ok()
    }

    /// Notes ticks whose values changed after they were sent.
    pub(crate) fn add_changed(&self, ticks: Vec<Millis>) {
        self.changed.lock().add(ticks);
    }

    /// Returns the ticks whose change the parent may not know.
    pub(crate) fn changed(&self, now: Millis) -> BTreeSet<Millis> {
        self.changed.lock().all(now)
    }

    pub(crate) fn contact(&self) -> ParentContact {
        let parents = self.parents.lock();
        if parents.iter().any(|parent| parent.since.is_some()) {
            return ParentContact::Connected;
        }
        let is_refused =
            |parent: &ParentStatus| parent.last_error.as_ref() == Some(&refused_error());
        match parents.iter().all(is_refused) {
            true => ParentContact::Refused,
            false => ParentContact::Lost,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let parents = self.parents.lock();
        let parents = parents.iter().map(|parent| {
            json!({
                "address": parent.address,
                "node": parent.node,
                "connected": parent.since.is_some(),
                "since": parent.since.map(|since| since as f64 / 1000.0),
                "attempts": parent.attempts,
                "last_error": parent.last_error,
            })
        });
        parents.collect()
    }

    fn update(&self, index: usize, change: impl FnOnce(&mut ParentStatus)) {
        if let Some(status) = self.parents.lock().get_mut(index) {
            change(status);
        }
    }
}

/// The connection of this agent to its parents.
pub(crate) struct Uplink {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) parent: Option<Arc<Parent>>,
    pub(crate) local: Arc<dyn LocalServer>,
    pub(crate) state: Arc<UplinkState>,
}

impl Uplink {
    /// Keeps a connection to one of the parents until `stop` becomes true.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut items: mpsc::Receiver<UplinkItem>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut pause = BACKOFF_MIN;
        let mut next: Option<(usize, Box<ParentConnection>)> = None;
        while !*stop.borrow() {
            let all = self.context.settings.parents.len();
            let connected = match next.take() {
                Some(connected) => Some(connected),
                None => tokio::select! {
                    connected = self.connect_first(all) => connected,
                    _ = stop.changed() => continue,
                },
            };
            let Some((index, connection)) = connected else {
                tokio::select! {
                    () = sleep(jittered(pause, self.context.clock.utc_nanos())) => {}
                    _ = stop.changed() => {}
                }
                pause = (pause * 2).min(BACKOFF_MAX);
                continue;
            };
            let began = Instant::now();
            self.attached(index, &connection);
            let end = tokio::select! {
                end = connection.serve(self.clone(), &mut items, &mut stop) => end,
                (index, preferred) = self.find_preferred(index) => ConnectionEnd::Moved(index, preferred),
            };
            self.detached(index, &end);
            if began.elapsed() > STABLE_AFTER {
                pause = BACKOFF_MIN;
            }
            match end {
                ConnectionEnd::Stopped => return,
                ConnectionEnd::Moved(index, preferred) => next = Some((index, preferred)),
                ConnectionEnd::Failed(_) => {
                    sleep(jittered(pause, self.context.clock.utc_nanos())).await;
                    pause = (pause * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    fn attached(&self, index: usize, connection: &ParentConnection) {
        let now = self.context.now();
        let node = connection.welcome.node.clone();
        tracing::info!(node, "attached to a parent");
        self.state.update(index, |status| {
            status.since = Some(now);
            status.node = node;
            status.last_error = None;
        });
        self.context
            .path
            .write()
            .clone_from(&connection.welcome.path);
        self.state.changed.lock().repeat(now);
        let interval = Millis::from(connection.welcome.interval_ms);
        self.state.interval.store(interval, Ordering::Relaxed);
        self.state.is_attached.store(true, Ordering::Relaxed);
    }

    fn detached(&self, index: usize, end: &ConnectionEnd) {
        self.state.is_attached.store(false, Ordering::Relaxed);
        self.context.path.write().clear();
        self.state.update(index, |status| {
            status.since = None;
            if let ConnectionEnd::Failed(error) = end {
                tracing::info!(parent = status.address, error, "lost the parent");
                status.last_error = Some(one_line(error));
            }
        });
    }

    /// Tries the first `count` parents in order.
    async fn connect_first(&self, count: usize) -> Option<(usize, Box<ParentConnection>)> {
        for index in 0..count {
            self.state.update(index, |status| status.attempts += 1);
            let address = &self.context.settings.parents[index];
            match self.connect(address).await {
                Ok(connection) => return Some((index, Box::new(connection))),
                Err(error) => {
                    tracing::debug!(parent = %address, error, "cannot attach to a parent");
                    // It may have the words of the parent.
                    self.state
                        .update(index, |status| status.last_error = Some(one_line(&error)));
                }
            }
        }
        None
    }

    /// Waits for a connection to a parent that is preferred to the one at `index`.
    async fn find_preferred(&self, index: usize) -> (usize, Box<ParentConnection>) {
        if index == 0 {
            std::future::pending::<()>().await;
        }
        loop {
            sleep(PREFERRED_EVERY).await;
            if let Some(found) = self.connect_first(index).await {
                return found;
            }
        }
    }

    /// Returns the epoch of a new connection: higher than all before, even if the clock steps back.
    fn next_epoch(&self) -> u64 {
        let now = u64::try_from(self.context.clock.utc_nanos()).unwrap_or(1);
        let last = self.state.last_epoch.load(Ordering::Relaxed);
        let epoch = now.max(last + 1);
        self.state.last_epoch.store(epoch, Ordering::Relaxed);
        epoch
    }
}

/// Returns half to all of a pause, so that the children of a lost parent do not come all at once.
fn jittered(pause: Duration, nanos: i64) -> Duration {
    let share = 0.5 + 0.5 * (nanos.rem_euclid(1000) as f64 / 1000.0);
    pause.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_were_sent_are_repeated_on_the_next_connection() {
        let mut changed = ChangedTicks::default();
        changed.add([3000, 1000, 2000]);
        assert_eq!(changed.take(50_000), [1000, 2000, 3000]);
        assert!(changed.take(50_000).is_empty());
        changed.add([4000]);
        assert_eq!(changed.all(60_000).len(), 4);
        changed.repeat(60_000);
        assert_eq!(changed.take(60_000), [1000, 2000, 3000, 4000]);
        assert!(changed.all(60_001 + CHANGED_REPEATED).is_empty());
        changed.repeat(60_001 + CHANGED_REPEATED);
        assert!(changed.take(70_000).is_empty());
        changed.add(0..2 * CHANGED_MAX as i64);
        assert_eq!(changed.all(70_000).len(), CHANGED_MAX);
    }
}
