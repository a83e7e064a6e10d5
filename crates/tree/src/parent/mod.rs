//! The parent's side: accepts children, keeps the registry of nodes, reduces values and sends
//! requests down.

mod backfill;
mod backfill_file;
mod changed_ticks_budget;
mod child_link;
mod child_stream;
mod dirty_ticks;
mod disputes;
mod listener;
mod node_rows;
mod reduce;
mod registry;
mod requests;
mod restart;
mod subtree_partials;
mod unproven_connections;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pegel_metric::Millis;
use pegel_reduction::{ClosedTick, DueTick, Figure, OutlierFinder, OutlierRule};
use pegel_tree_protocol::{NodeOverview, NodeStatus};

pub(crate) use backfill::run_backfill;
pub use backfill_file::parse_backfill_file;
pub(crate) use listener::accept_children;
pub(crate) use reduce::{FIRST_SENDER_KEY, NO_KEY, ReducedGroups, ReducedTick};
pub(crate) use registry::OWN_KEY;
pub(crate) use requests::headers_of;
pub(crate) use subtree_partials::{SELECT_TARGET, subtree_partials};

use crate::child::UplinkState;
use crate::context::TreeContext;
use crate::figures::NodeFigures;
use crate::overview::unknown_overview;
use crate::tick_reader::millis;
use backfill_file::BackfillState;
use dirty_ticks::DirtyTicks;
use disputes::Disputes;
use reduce::Reduction;
use registry::Registry;

/// A tick closes this many intervals after its time, even if children are missing; one more for
/// each level between them and this agent, but not for more levels than the second number: the
/// window of open ticks is limited, and a child may claim any number. Values from further below
/// are computed again later.
const CLOSE_INTERVALS: i64 = 2;
const CLOSE_LEVELS_MAX: i64 = 8;

/// The parent's side of an agent. The HTTP server calls it as `NodeTree`.
pub(crate) struct Parent {
    pub(crate) context: Arc<TreeContext>,
    pub(crate) accept_address: SocketAddr,
    pub(crate) interval: Millis,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) reduction: Mutex<Reduction>,
    pub(crate) own_overview: Mutex<NodeOverview>,
    dirty: Mutex<DirtyTicks>,
    disputes: Mutex<Disputes>,
    outliers: Mutex<OutlierFinder>,
    node_figures: Mutex<Arc<NodeFigures>>,
    next_request: AtomicU64,
    /// Ticks up to this time are closed and stored.
    stored_until: AtomicI64,
    /// What the file of the back-fill has.
    saved: Mutex<BackfillState>,
    /// The connection to this agent's own parents, if it has any.
    pub(crate) uplink: OnceLock<Arc<UplinkState>>,
}

impl Parent {
    pub(crate) fn new(context: Arc<TreeContext>, accept_address: SocketAddr) -> Parent {
        let interval = context.interval();
        let children_max = context.settings.children_max as usize;
        Parent {
            accept_address,
            interval,
            registry: Mutex::new(Registry::new(
                &context.node,
                context.instance.clone(),
                children_max,
                interval,
                millis(context.settings.backfill.duration()),
            )),
            reduction: Mutex::new(Reduction::new(interval, context.series_max)),
            own_overview: Mutex::new(unknown_overview()),
            dirty: Mutex::default(),
            disputes: Mutex::default(),
            outliers: Mutex::new(OutlierFinder::new(OutlierRule::default())),
            node_figures: Mutex::default(),
            next_request: AtomicU64::new(1),
            stored_until: AtomicI64::new(Millis::MIN),
            saved: Mutex::default(),
            uplink: OnceLock::new(),
            context,
        }
    }

    /// Notes ticks that were computed again, for the parent of this agent.
    fn report_changed(&self, ticks: Vec<Millis>) {
        if let Some(uplink) = self.uplink.get() {
            uplink.add_changed(ticks);
        }
    }

    /// Marks ticks to be computed again, as far back as the configuration permits.
    pub(crate) fn mark_dirty(&self, from: Millis, to: Millis) {
        let now = self.context.now();
        let oldest = now - self.backfill_time();
        self.dirty.lock().mark(
            from.max(oldest),
            to.min(now + self.interval),
            self.interval,
            now,
        );
    }

    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.lock().len()
    }

    fn backfill_time(&self) -> Millis {
        millis(self.context.settings.backfill.duration())
    }

    /// Notes that the ticks up to `latest` are closed and stored.
    pub(crate) fn set_stored(&self, latest: Millis) {
        self.stored_until.store(latest, Ordering::Relaxed);
    }

    /// Closes the ticks that are due. Returns them, and the time up to which all are closed.
    pub(crate) fn close_ticks(&self, now: Millis) -> (Vec<ReducedTick>, Millis) {
        let (expected, levels) = {
            let mut registry = self.registry.lock();
            (registry.expected(now), registry.levels() as i64)
        };
        let lag = (CLOSE_INTERVALS + (levels - 2).clamp(0, CLOSE_LEVELS_MAX)) * self.interval;
        let latest = now - lag;
        // Reducing takes long, and children wait for the lock: it is not held meanwhile.
        let due = { self.reduction.lock() }.take_due(&expected, latest);
        let closed: Vec<ClosedTick> = due.iter().map(DueTick::reduce).collect();
        if closed.is_empty() {
            return (Vec::new(), latest);
        }
        (self.reduction.lock().with_series(closed), latest)
    }

    /// Finds the nodes that stand out at a tick.
    pub(crate) fn update_outliers(&self, now: Millis) {
        let mut overviews = vec![(OWN_KEY, *self.own_overview.lock())];
        {
            let registry = self.registry.lock();
            let children = registry.children.values();
            let up = children.filter(|child| registry.child_status(child, now) == NodeStatus::Up);
            overviews.extend(up.map(|child| (child.key, child.overview)));
            let below = registry.nodes.values();
            let up = below.filter(|below| registry.subtree_status(below, now) == NodeStatus::Up);
            overviews.extend(up.filter_map(|below| Some((below.key, below.update.overview?))));
        }
        let mut finder = self.outliers.lock();
        for figure in Figure::ALL {
            let value = |overview: &NodeOverview| match figure {
                Figure::Busy => overview.busy,
                Figure::Memory => overview.memory,
                Figure::Pressure => overview.pressure,
                Figure::Gpu => overview.gpu,
                Figure::Network => overview.network,
                Figure::Temperature => overview.temperature,
                Figure::Load => overview.load,
            };
            let values: Vec<(u32, f32)> = { overviews.iter() }
                .map(|(key, overview)| (*key, value(overview)))
                .collect();
            finder.update(figure, &values);
        }
    }

    /// Forgets what has been gone for long. Called once in a while.
    pub(crate) fn expire(&self, now: Millis) {
        let removed = self.registry.lock().expire(now);
        let mut finder = self.outliers.lock();
        removed.into_iter().for_each(|key| finder.forget(key));
        drop(finder);
        self.reduction.lock().reclaim(now);
    }

    /// Closes the streams of all children.
    pub(crate) fn close_children(&self) {
        self.registry
            .lock()
            .connected()
            .for_each(|link| link.close());
    }
}
