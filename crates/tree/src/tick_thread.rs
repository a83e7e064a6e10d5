//! The thread that makes ticks: it reads this node's own values, closes the ticks of a parent,
//! writes reduced points to the store and passes ticks to the connection to the parent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pegel_metric::{Input, MetricKind, Millis, Series};
use pegel_reduction::{NodeCounterRates, PutOutcome, TickCells};

use crate::child::{UplinkItem, UplinkState};
use crate::context::TreeContext;
use crate::overview::OverviewReader;
use crate::parent::{FIRST_SENDER_KEY, NO_KEY, OWN_KEY, Parent, ReducedGroups};
use crate::tick_reader::TickReader;

/// A tick is made this share of an interval after its time: the samples are stored then.
const DELAY_PERCENT: i64 = 30;
/// How often a parent looks for complete ticks.
const CLOSE_EVERY: Millis = 50;
/// How often lost nodes and unused series are removed.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);
/// How often the figures of the nodes are computed.
const FIGURES_EVERY: Duration = Duration::from_secs(1);
/// Reduced values are current for this many intervals.
const STALE_INTERVALS: i64 = 10;
/// The most intervals that the thread stays behind after the clock was set back.
const CLOCK_STEP_INTERVALS: i64 = 10;

/// Asks a thread to end.
#[derive(Debug, Default)]
pub(crate) struct TreeStop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl TreeStop {
    pub(crate) fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits, and returns whether the thread must end.
    fn wait(&self, time: Duration) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            self.changed.wait_for(&mut is_stopped, time);
        }
        *is_stopped
    }
}

/// The state of the thread.
pub(crate) struct TickThread {
    context: Arc<TreeContext>,
    parent: Option<Arc<Parent>>,
    uplink: Option<Arc<UplinkState>>,
    stop: Arc<TreeStop>,
    reader: TickReader,
    overview: OverviewReader,
    own_series: OwnDefinitions,
    reduced: ReducedGroups,
    last: Option<Millis>,
    expired: Instant,
    /// When the figures of the nodes were computed.
    figures: Option<Instant>,
}

/// The keys of a parent's own series in its reduction.
#[derive(Debug, Default)]
struct OwnDefinitions {
    keys: HashMap<Arc<Series>, (u32, bool)>,
    senders: OwnSenders,
    rates: NodeCounterRates,
    /// The numbers of gauges and counters in the last tick.
    cell_counts: (usize, usize),
}

/// The senders of a parent's own series. Each has a share of the series that are reduced, as a
/// child has: what the users of a parent send must not take the room of the nodes below.
#[derive(Debug, Default)]
struct OwnSenders(HashMap<String, u32>);

impl OwnSenders {
    /// Returns the key of the sender of a series: the node itself, a user with a label of its own,
    /// or else an input.
    fn key(&mut self, series: &Series) -> u32 {
        let input = series.family().input;
        if input == Input::Collect {
            return OWN_KEY;
        }
        let name = match series.label("user") {
            Some(user) => format!("user {user}"),
            None => input.as_str().to_owned(),
        };
        let next = FIRST_SENDER_KEY.saturating_sub(self.0.len() as u32);
        *self.0.entry(name).or_insert(next)
    }
}

impl TickThread {
    pub(crate) fn new(
        context: Arc<TreeContext>,
        parent: Option<Arc<Parent>>,
        uplink: Option<Arc<UplinkState>>,
        stop: Arc<TreeStop>,
    ) -> TickThread {
        TickThread {
            reader: TickReader::new(context.store.clone(), context.sample_interval),
            reduced: ReducedGroups::new(STALE_INTERVALS * context.interval(), context.series_max),
            context,
            parent,
            uplink,
            stop,
            overview: OverviewReader::default(),
            own_series: OwnDefinitions::default(),
            last: None,
            expired: Instant::now(),
            figures: None,
        }
    }

    /// A parent has its own interval, a leaf that of its parent.
    fn interval(&self) -> Millis {
        match (&self.parent, &self.uplink) {
            (None, Some(uplink)) => uplink.interval(),
            _ => self.context.interval(),
        }
    }

    pub(crate) fn run(mut self) {
        if let Some(parent) = &self.parent {
            // After an unexpected end of this thread, too.
            parent.find_restart_gap();
        }
        loop {
            let interval = self.interval();
            let delay = interval * DELAY_PERCENT / 100;
            let now = self.context.now();
            let mut pause = interval - (now - delay).rem_euclid(interval);
            if self.parent.is_some() {
                pause = pause.min(CLOSE_EVERY);
            }
            let pause = Duration::from_millis(pause.clamp(1, 60_000) as u64);
            if self.stop.wait(pause) {
                self.make_tick(self.context.now(), interval);
                return;
            }
            let now = self.context.now();
            self.make_tick(now - delay, interval);
            self.close_ticks(now);
            self.update_figures();
            if self.expired.elapsed() > EXPIRE_EVERY {
                self.expired = Instant::now();
                if let Some(parent) = &self.parent {
                    parent.expire(now);
                }
            }
        }
    }

    fn update_figures(&mut self) {
        let Some(parent) = &self.parent else {
            return;
        };
        if { self.figures }.is_none_or(|updated| updated.elapsed() >= FIGURES_EVERY) {
            self.figures = Some(Instant::now());
            parent.update_figures();
        }
    }

    /// Makes the newest tick at or before `until`, unless it was made.
    fn make_tick(&mut self, until: Millis, interval: Millis) {
        let time = until - until.rem_euclid(interval);
        if let Some(last) = self.last {
            if time > last + interval
                && let Some(parent) = &self.parent
            {
                parent.mark_dirty(last + interval, time - interval);
            }
            if last - time > CLOCK_STEP_INTERVALS * interval {
                self.last = None;
            } else if time <= last {
                return;
            }
        }
        self.last = Some(time);
        let uplink = self.uplink.as_ref().filter(|uplink| uplink.is_attached());
        if self.parent.is_none() && uplink.is_none() {
            return;
        }
        let uplink = uplink.cloned();
        match self.reader.read(time, interval) {
            Ok(None) => {}
            // Samples were stored after their tick was made.
            Ok(Some(changed)) => self.report_changed(changed),
            Err(error) => {
                tracing::warn!(%error, "cannot read the values of a tick");
                if let Some(parent) = &self.parent {
                    parent.mark_dirty(time, time);
                }
                return;
            }
        }
        let overview = self.overview.update(time, self.reader.values());
        if let Some(parent) = &self.parent {
            *parent.own_overview.lock() = overview;
            self.own_series
                .put(parent, time, &self.reader, self.context.started);
            parent.update_outliers(self.context.now());
        } else if let Some(uplink) = uplink {
            let values = self.reader.values();
            let values = values.map(|(series, value)| (series.clone(), value));
            let item = UplinkItem::Values {
                time,
                values: values.collect(),
                overview,
            };
            if !uplink.send(item) {
                self.context.counts.ticks_skipped.add(1);
            }
        }
    }

    /// Has a tick computed again, by this parent or by that of a leaf.
    fn report_changed(&self, tick: Millis) {
        match (&self.parent, &self.uplink) {
            (Some(parent), _) => parent.mark_dirty(tick, tick),
            (None, Some(uplink)) => uplink.add_changed(vec![tick]),
            (None, None) => {}
        }
    }

    /// Closes ticks, stores their reduced values and passes them on.
    fn close_ticks(&mut self, now: Millis) {
        let Some(parent) = &self.parent else {
            return;
        };
        let (closed, latest) = parent.close_ticks(now);
        for tick in closed {
            self.context.counts.ticks_closed.add(1);
            if !self.context.store.tick(self.reduced.tick(&tick)) {
                parent.mark_dirty(tick.time, tick.time);
            }
            let uplink = self.uplink.as_ref().filter(|uplink| uplink.is_attached());
            if let Some(uplink) = uplink {
                let overview = *parent.own_overview.lock();
                if !uplink.send(UplinkItem::Partials { tick, overview }) {
                    self.context.counts.ticks_skipped.add(1);
                }
            }
        }
        parent.set_stored(latest);
    }
}

impl OwnDefinitions {
    /// Puts the values of this agent's own series into its reduction.
    fn put(&mut self, parent: &Parent, time: Millis, reader: &TickReader, started: Millis) {
        let mut reduction = parent.reduction.lock();
        let (gauges, counters) = self.cell_counts;
        let mut cells = TickCells::with_capacity(gauges, counters);
        let mut refused = 0;
        for (series, value) in reader.values() {
            let (key, is_counter) = match self.keys.get(series) {
                Some(interned) => *interned,
                None => {
                    let family = series.family();
                    let kind: MetricKind = family.kind;
                    let (unit, help) = (&family.unit, &family.help);
                    let sender = self.senders.key(series);
                    let interned = reduction.intern(sender, series.text(), kind, unit, help);
                    refused += u64::from(interned.0 == NO_KEY);
                    self.keys.insert(series.clone(), interned);
                    interned
                }
            };
            if key == NO_KEY {
                continue;
            }
            if is_counter {
                let rate = self.rates.rate(key, time, value, started);
                cells.add_counter(key, rate, value);
            } else {
                cells.add_gauge(key, value);
            }
        }
        self.cell_counts = cells.counts();
        let live = self.cell_counts.0 + self.cell_counts.1;
        let outcome = reduction.put(OWN_KEY, 1, time, 1, cells);
        if self.keys.len() > 2 * live + 1000 {
            // Most series ended. The others are interned again at the next tick.
            for (key, _) in self.keys.values().filter(|(key, _)| *key != NO_KEY) {
                reduction.table.release(*key, time);
                self.rates.forget(*key);
            }
            self.keys.clear();
        }
        drop(reduction);
        let context = &parent.context;
        context.refused_series("", &context.node, refused);
        if outcome != PutOutcome::Open {
            parent.mark_dirty(time, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::Family;

    use super::*;

    #[test]
    fn each_user_and_each_input_is_a_sender() {
        let mut senders = OwnSenders::default();
        let mut key = |input, labels: &[(&str, &str)]| {
            let family = Family::new("", MetricKind::Gauge, "", 0, "Test.").of_input(input);
            let series = Series::named(Arc::new(family), "x", labels).expect("a name");
            senders.key(&series)
        };
        let alice = [("user", "alice")];
        assert_eq!(
            key(Input::Collect, &alice),
            OWN_KEY,
            "a label of a collector"
        );
        let of_alice = key(Input::Otlp, &alice);
        assert_eq!(key(Input::Lane, &alice), of_alice);
        let others = [
            key(Input::Otlp, &[("user", "bob")]),
            key(Input::Otlp, &[]),
            key(Input::Statsd, &[]),
        ];
        assert_eq!(others, [1, 2, 3].map(|number| of_alice - number));
    }
}
