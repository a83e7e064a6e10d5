//! All collectors of a node. Opens those that settings and level enable, runs the due ones in the
//! order of the registry, and appends their rows to a tick. Called by the sampler thread only.
//! Threaded collectors are never waited for, except before the first sample.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Clock, Ledger, Level, Millis, Tick};

use crate::managed_collector::ManagedCollector;
use crate::pass_ticks::{PassTicks, PassTime};
use crate::proc_file::SharedFile;
use crate::{
    CollectSettings, CollectSettingsError, CollectorStatus, Context, CurrentOperation, Host,
    LiveProcesses, REGISTRY, SamplerStats, SelfMetrics,
};

/// The collectors of a node, each with its state. Owned by one thread.
#[derive(Debug)]
pub struct CollectorSet {
    context: Context,
    /// In the order of the registry, each with the index of its rate in `rates`; `None` for
    /// disabled collectors.
    collectors: Vec<Option<(usize, ManagedCollector)>>,
    rates: Vec<Duration>,
    /// The buffers of [`CollectorSet::sample`].
    untimed: Option<PassTicks>,
}

impl CollectorSet {
    /// Opens every collector that settings and level enable.
    pub fn open(
        settings: &CollectSettings,
        host: Host,
        level: Level,
        self_metrics: Vec<Arc<dyn SelfMetrics>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
    ) -> Result<CollectorSet, CollectSettingsError> {
        settings.check()?;
        let stats = Arc::new(SamplerStats::new(REGISTRY.iter().map(|entry| entry.name)));
        let proc_stat = Arc::new(SharedFile::new(host.proc.join("stat"), clock.clone()));
        let context = Context {
            host,
            clock,
            ledger,
            self_metrics,
            stats,
            supervisor: settings.supervisor.clone(),
            operation: CurrentOperation::default(),
            proc_stat,
            live_processes: Arc::default(),
        };
        let mut rates: Vec<Duration> = Vec::new();
        let mut collectors = Vec::new();
        for (entry, stats) in REGISTRY.iter().zip(context.stats.collectors()) {
            if !settings.is_enabled(entry) || entry.level > level {
                collectors.push(None);
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
            let collector = ManagedCollector::start(entry, level, rate, &context, stats);
            collectors.push(Some((track, collector)));
        }
        Ok(CollectorSet {
            context,
            collectors,
            rates,
            untimed: None,
        })
    }

    /// Returns the distinct rates. The track of a collector is the index of its rate.
    pub fn rates(&self) -> &[Duration] {
        &self.rates
    }

    /// Runs the collectors of the tracks in `due` and fills `tick` with the samples. All of them
    /// carry `time`, whenever they are read.
    pub fn sample(&mut self, time: Millis, due: &[usize], tick: &mut Tick) {
        let mut ticks = self.untimed.take().unwrap_or_else(PassTicks::new);
        std::mem::swap(ticks.nominal(), tick);
        let time = PassTime {
            nominal: time,
            offset: None,
        };
        self.sample_timed(time, due, &mut ticks);
        std::mem::swap(ticks.nominal(), tick);
        self.untimed = Some(ticks);
    }

    /// Runs the collectors of the tracks in `due` and fills `ticks` with the samples, by the time
    /// at which they are read. Publishes completed passes of all threaded collectors too.
    pub(crate) fn sample_timed(&mut self, time: PassTime, due: &[usize], ticks: &mut PassTicks) {
        self.context.proc_stat.begin_pass();
        ticks.begin(time);
        let clock = &self.context.clock;
        let mut before = clock.monotonic();
        let all_stats = self.context.stats.collectors();
        for (collector, stats) in self.collectors.iter_mut().zip(all_stats) {
            let Some((track, collector)) = collector else {
                continue;
            };
            let published = if due.contains(track) {
                collector.pass(&self.context, stats, ticks)
            } else {
                collector.publish_completed(&self.context, stats, ticks)
            };
            if let Some((series, cost)) = published {
                let after = clock.monotonic();
                let cost = cost.unwrap_or_else(|| after.saturating_sub(before));
                stats.record_pass(cost, series);
                before = after;
            }
        }
    }

    /// Returns whether a pass of a threaded collector was requested and not published yet.
    pub(crate) fn is_pass_pending(&self) -> bool {
        let mut collectors = self.collectors.iter().flatten();
        collectors.any(|(_, collector)| collector.is_pass_pending())
    }

    /// Like [`CollectorSet::sample_timed`], for all collectors.
    pub(crate) fn sample_all_timed(&mut self, time: PassTime, ticks: &mut PassTicks) {
        let all: Vec<usize> = (0..self.rates.len()).collect();
        self.sample_timed(time, &all, ticks);
    }

    /// Runs all collectors, regardless of their rates.
    pub fn sample_all(&mut self, time: Millis, tick: &mut Tick) {
        // At most one track per collector: a small allocation, outside the hot path.
        let all: Vec<usize> = (0..self.rates.len()).collect();
        self.sample(time, &all, tick);
    }

    /// Waits until each threaded collector has a completed pass that was not published yet; at most
    /// `bound` in total.
    pub fn wait_for_threaded(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        for (_, collector) in self.collectors.iter().flatten() {
            collector.wait_for_thread(deadline);
        }
    }

    pub fn stats(&self) -> &Arc<SamplerStats> {
        &self.context.stats
    }

    /// Returns the table of processes, which the collector `top_processes` fills.
    pub fn live_processes(&self) -> &Arc<LiveProcesses> {
        &self.context.live_processes
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.context.clock
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.context.stats.status()
    }
}
