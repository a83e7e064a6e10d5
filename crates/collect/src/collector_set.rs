use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Clock, Ledger, Level, Millis, Tick};

use crate::managed_collector::ManagedCollector;
use crate::proc_file::SharedFile;
use crate::stats::CollectorStats;
use crate::threaded_collector::{CurrentOperation, ThreadedCollector};
use crate::{
    CollectSettings, CollectSettingsError, CollectorEntry, CollectorStatus, Context, Execution,
    Host, REGISTRY, SamplerStats, SelfMetrics,
};

/// All collectors of a node, opened, each with its state. Belongs to one thread.
#[derive(Debug)]
pub struct CollectorSet {
    context: Context,
    /// In the order of the registry; `None` for those that are disabled.
    collectors: Vec<Option<ScheduledCollector>>,
    rates: Vec<Duration>,
}

#[derive(Debug)]
struct ScheduledCollector {
    collector: RunningCollector,
    /// Its rate, as a position in `rates`.
    track: usize,
}

/// Where a collector runs.
#[derive(Debug)]
enum RunningCollector {
    Inline(ManagedCollector),
    Threaded(ThreadedCollector),
}

impl RunningCollector {
    fn open(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
        context: &Context,
        figures: &CollectorStats,
    ) -> RunningCollector {
        match entry.execution {
            Execution::Inline => {
                let mut station = ManagedCollector::new(entry, level, rate);
                station.open(context, figures);
                RunningCollector::Inline(station)
            }
            Execution::Threaded => RunningCollector::Threaded(ThreadedCollector::new(
                entry, level, rate, context, figures,
            )),
        }
    }

    /// Takes or picks up one pass. Returns how many series have a value, and what the pass cost
    /// where that is not the time spent here.
    fn pass(
        &mut self,
        context: &Context,
        figures: &CollectorStats,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        match self {
            RunningCollector::Inline(station) => {
                station.pass(context, figures);
                (station.append_to(tick), None)
            }
            RunningCollector::Threaded(aside) => aside.pass(context, figures, tick),
        }
    }
}

impl CollectorSet {
    /// Opens every collector that the settings and the level allow.
    pub fn open(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        own: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
    ) -> Result<CollectorSet, CollectSettingsError> {
        settings.check()?;
        let figures = Arc::new(SamplerStats::new(REGISTRY.iter().map(|entry| entry.name)));
        let stat = Arc::new(SharedFile::new(host.proc.join("stat")));
        let context = Context {
            host,
            clock,
            ledger,
            self_metrics: own,
            stats: figures,
            supervisor: settings.supervisor.clone(),
            operation: CurrentOperation::default(),
            proc_stat: stat,
        };
        let mut rates: Vec<Duration> = Vec::new();
        let mut stations = Vec::new();
        for (entry, figures) in REGISTRY.iter().zip(context.stats.collectors()) {
            if !settings.is_enabled(entry) || entry.level > level {
                stations.push(None);
                continue;
            }
            let rate = settings.rate_of(entry);
            let track = rates
                .iter()
                .position(|other| *other == rate)
                .unwrap_or_else(|| {
                    rates.push(rate);
                    rates.len() - 1
                });
            let place = RunningCollector::open(entry, level, rate, &context, figures);
            stations.push(Some(ScheduledCollector {
                collector: place,
                track,
            }));
        }
        Ok(CollectorSet {
            context,
            collectors: stations,
            rates,
        })
    }

    /// The different rates. A collector's track is the position of its rate.
    pub fn rates(&self) -> &[Duration] {
        &self.rates
    }

    /// Runs the collectors of the tracks in `due` and makes `tick` the samples of `time`.
    pub fn sample(&mut self, time: Millis, due: &[usize], tick: &mut Tick) {
        self.context.proc_stat.begin_pass();
        tick.reset(time);
        let clock = &self.context.clock;
        let mut before = clock.monotonic();
        for (seat, figures) in self
            .collectors
            .iter_mut()
            .zip(self.context.stats.collectors())
        {
            let Some(seat) = seat else { continue };
            if due.contains(&seat.track) {
                let (series, cost) = seat.collector.pass(&self.context, figures, tick);
                let after = clock.monotonic();
                let cost = cost.unwrap_or_else(|| after.saturating_sub(before));
                figures.record_pass(cost, series);
                before = after;
            }
        }
    }

    /// Runs all collectors, whatever their rates.
    pub fn sample_all(&mut self, time: Millis, tick: &mut Tick) {
        // At most one track per collector: a small list, made where nothing is hot.
        let all: Vec<usize> = (0..self.rates.len()).collect();
        self.sample(time, &all, tick);
    }

    /// Waits until each collector that runs aside has a reading that was not published yet; at most
    /// `bound` in all.
    pub fn wait_for_threaded(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        for seat in self.collectors.iter().flatten() {
            if let RunningCollector::Threaded(aside) = &seat.collector {
                aside.wait_for_pass(deadline);
            }
        }
    }

    pub fn stats(&self) -> &Arc<SamplerStats> {
        &self.context.stats
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.context.clock
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.context.stats.status()
    }
}
