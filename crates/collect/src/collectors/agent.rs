//! The agent itself: its resource usage from `/proc/self/stat`, the samples it received, kept and dropped, and the
//! state of its collectors.
//!
//! Level 0, so that these series exist at every level: an agent that hides its own state cannot be trusted. Runs on the
//! sampler's thread. The totals come from the ledger and hold for every input: received = kept + dropped.

use std::path::PathBuf;
use std::sync::Arc;

use pegel_metric::{Family, Group, Input, Kind, Ledger, Reason, Slot};

use super::agent_process::{self, AgentProcessUsage};
use super::agent_self_metrics::SelfMetricsSeries;
use crate::figures::{CollectorFigures, Figures};
use crate::scan::Fault;
use crate::single::Single;
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, Pace, State, Tier};

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, Kind::Counter, unit, 0, help)
}

static RECEIVED: Family = counter(
    "pegel_received_total",
    "",
    "Total number of samples received, by input.",
);
static KEPT: Family = counter(
    "pegel_kept_total",
    "",
    "Total number of samples stored, by input.",
);
static DROPPED: Family = counter(
    "pegel_dropped_total",
    "",
    "Total number of samples not stored, by input and reason.",
);
static LATE: Family = counter(
    "pegel_samples_late_total",
    "",
    "Total number of sampling passes that started more than half an interval late.",
);
static MISSED: Family = counter(
    "pegel_samples_missed_total",
    "",
    "Total number of sampling passes that were skipped.",
);
static CLOCK_STEPS: Family = counter(
    "pegel_clock_steps_total",
    "",
    "Total number of steps of the wall clock.",
);
static SECONDS: Family = counter(
    "pegel_collector_seconds_total",
    "seconds",
    "Total time spent in the collector, in seconds.",
);
static FAILURES: Family = counter(
    "pegel_collector_failures_total",
    "",
    "Total number of times the collector started to fail.",
);
static FAILED: Family = Family::new(
    "pegel_collector_failed",
    Kind::Gauge,
    "",
    0,
    "1 while the collector cannot read its source, otherwise 0.",
);

pub static ENTRY: Entry = Entry {
    name: "agent",
    tier: Tier::Fast,
    pace: Pace::Here,
    level: 0,
    families: &[
        &agent_process::CPU,
        &agent_process::RESIDENT,
        &agent_process::FDS,
        &agent_process::THREADS,
        &agent_process::START,
        &RECEIVED,
        &KEPT,
        &DROPPED,
        &LATE,
        &MISSED,
        &CLOCK_STEPS,
        &SECONDS,
        &FAILURES,
        &FAILED,
    ],
    open,
};

#[derive(Debug)]
struct AgentCollector {
    path: PathBuf,
    /// `None` when the configured root has no `/proc/self`.
    process: Option<AgentProcessUsage>,
    ledger_series: LedgerSeries,
    schedule: [Single; 3],
    collector_series: CollectorSeries,
    self_metrics: SelfMetricsSeries,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    Ok(Opened::Active(Box::new(AgentCollector {
        path: context.host.proc.join("self"),
        process: AgentProcessUsage::open(context)?,
        ledger_series: LedgerSeries::new(context.ledger.clone()),
        schedule: [&LATE, &MISSED, &CLOCK_STEPS].map(Single::new),
        collector_series: CollectorSeries {
            stats: context.figures.clone(),
            slots: Vec::new(),
        },
        self_metrics: SelfMetricsSeries::new(context.own.clone()),
    })))
}

impl Collector for AgentCollector {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        if let Some(process) = &mut self.process {
            process.update(out)?;
        }
        self.update(out).map_err(|fault| fault.at(&self.path))
    }
}

impl AgentCollector {
    fn update(&mut self, out: &mut Group) -> Result<(), Fault> {
        self.ledger_series.update(out)?;
        let counts = self.collector_series.stats.counts();
        let counts = [counts.late, counts.missed, counts.clock_steps];
        for (single, count) in self.schedule.iter_mut().zip(counts) {
            single.set(out, count as f64)?;
        }
        self.collector_series.update(out)?;
        self.self_metrics.update(out)
    }
}

const ALWAYS_SHOWN: (Input, Reason) = (Input::Collect, Reason::QueueFull);

/// The series of the ledger. Most pairs of input and reason never occur, so a series of `pegel_dropped_total` appears
/// with the first drop for its pair. [`ALWAYS_SHOWN`] is always present, so that the name is known.
#[derive(Debug)]
struct LedgerSeries {
    ledger: Arc<Ledger>,
    totals: Vec<[Slot; 2]>,
    dropped: Vec<(Input, Reason, Slot)>,
}

impl LedgerSeries {
    fn new(ledger: Arc<Ledger>) -> LedgerSeries {
        LedgerSeries {
            ledger,
            totals: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn update(&mut self, out: &mut Group) -> Result<(), Fault> {
        if self.totals.is_empty() {
            let [received, kept] = [&RECEIVED, &KEPT].map(|family| Arc::new(family.clone()));
            for input in Input::ALL {
                let input = [("input", input.as_str())];
                let slots = [out.declare(&received, &input)?, out.declare(&kept, &input)?];
                self.totals.push(slots);
            }
        }
        for (index, &input) in Input::ALL.iter().enumerate() {
            let [received, kept] = self.totals[index];
            out.set(received, self.ledger.received_total(input) as f64);
            out.set(kept, self.ledger.kept_total(input) as f64);
            for &reason in Reason::ALL {
                let count = self.ledger.dropped_total(input, reason);
                if count > 0 || (input, reason) == ALWAYS_SHOWN {
                    let slot = self.dropped_slot(out, input, reason)?;
                    out.set(slot, count as f64);
                }
            }
        }
        Ok(())
    }

    fn dropped_slot(
        &mut self,
        out: &mut Group,
        input: Input,
        reason: Reason,
    ) -> Result<Slot, Fault> {
        let known = self
            .dropped
            .iter()
            .find(|(i, r, _)| (*i, *r) == (input, reason));
        if let Some((.., slot)) = known {
            return Ok(*slot);
        }
        let labels = [("input", input.as_str()), ("reason", reason.as_str())];
        let slot = out.declare(&Arc::new(DROPPED.clone()), &labels)?;
        self.dropped.push((input, reason, slot));
        Ok(slot)
    }
}

/// The series of the collectors. Disabled collectors have none.
#[derive(Debug)]
struct CollectorSeries {
    stats: Arc<Figures>,
    /// For each collector: seconds, failures, failed; `None` if disabled.
    slots: Vec<Option<[Slot; 3]>>,
}

impl CollectorSeries {
    fn update(&mut self, out: &mut Group) -> Result<(), Fault> {
        if self.slots.is_empty() {
            let families = [&SECONDS, &FAILURES, &FAILED].map(|family| Arc::new(family.clone()));
            for figures in self.stats.collectors() {
                self.slots.push(declare_collector(figures, &families, out)?);
            }
        }
        for (figures, slots) in self.stats.collectors().iter().zip(&self.slots) {
            if let Some([seconds, failures, failed]) = *slots {
                let is_failed = figures.state() == State::Failed;
                out.set(seconds, figures.seconds());
                out.set(failures, figures.failures() as f64);
                out.set(failed, f64::from(u8::from(is_failed)));
            }
        }
        Ok(())
    }
}

fn declare_collector(
    figures: &CollectorFigures,
    [seconds, failures, failed]: &[Arc<Family>; 3],
    out: &mut Group,
) -> Result<Option<[Slot; 3]>, Fault> {
    if figures.state() == State::Disabled {
        return Ok(None);
    }
    let labels = [("collector", figures.name)];
    Ok(Some([
        out.declare(seconds, &labels)?,
        out.declare(failures, &labels)?,
        out.declare(failed, &labels)?,
    ]))
}
