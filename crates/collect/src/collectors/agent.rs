//! The agent itself: its resource usage from `/proc/self/stat`, the samples it received, kept and
//! dropped, and the state of its collectors.
//!
//! Level 0, so that these series exist at every level: an agent that hides its own state cannot be
//! trusted. Runs on the sampler's thread. The totals come from the ledger and hold for every input:
//! received = kept + dropped.

use std::path::PathBuf;
use std::sync::Arc;

use pegel_metric::{DropReason, Family, Input, Ledger, SampleGroup, Slot};

use super::agent_process::AgentProcessUsage;
use super::agent_self_metrics::SelfMetricsSeries;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::stats::{CollectorStats, SamplerStats};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorState, Context, OpenOutcome, OpenResult, Tier,
};

families! {
    CPU Counter 0 "pegel_cpu_seconds_total" "seconds" "Total CPU time used by the agent, in seconds.";
    RESIDENT Gauge 0 "pegel_resident_memory_bytes" "bytes" "Resident memory of the agent, in bytes.";
    FDS Gauge 0 "pegel_open_fds" "" "Number of open file descriptors of the agent.";
    THREADS Gauge 0 "pegel_threads" "" "Number of threads of the agent.";
    START Gauge 0 "pegel_start_time_seconds" "seconds" "Start time of the agent, in seconds since the Unix epoch.";
    RECEIVED Counter 0 "pegel_received_total" "" "Total number of samples received, by input.";
    KEPT Counter 0 "pegel_kept_total" "" "Total number of samples stored, by input.";
    DROPPED Counter 0 "pegel_dropped_total" "" "Total number of samples not stored, by input and reason.";
    LATE Counter 0 "pegel_samples_late_total" "" "Total number of sampling passes that started more than half an interval late.";
    MISSED Counter 0 "pegel_samples_missed_total" "" "Total number of sampling passes that were skipped.";
    CLOCK_STEPS Counter 0 "pegel_clock_steps_total" "" "Total number of steps of the wall clock.";
    SECONDS Counter 0 "pegel_collector_seconds_total" "seconds" "Total time spent in the collector, in seconds.";
    FAILURES Counter 0 "pegel_collector_failures_total" "" "Total number of times the collector started to fail.";
    FAILED Gauge 0 "pegel_collector_failed" "" "1 while the collector cannot read its source, otherwise 0.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("agent", Tier::Fast, FAMILIES, open);

#[derive(Debug)]
struct AgentCollector {
    path: PathBuf,
    /// `None` when the configured root has no `/proc/self`.
    process: Option<AgentProcessUsage>,
    ledger_series: LedgerSeries,
    schedule: [UnlabelledSeries; 3],
    collector_series: CollectorSeries,
    self_metrics: SelfMetricsSeries,
}

fn open(context: &Context) -> OpenResult {
    OpenOutcome::active(AgentCollector {
        path: context.host.proc.join("self"),
        process: AgentProcessUsage::open(context)?,
        ledger_series: LedgerSeries::new(context.ledger.clone()),
        schedule: [&LATE, &MISSED, &CLOCK_STEPS].map(UnlabelledSeries::new),
        collector_series: CollectorSeries {
            stats: context.stats.clone(),
            slots: Vec::new(),
        },
        self_metrics: SelfMetricsSeries::new(context.self_metrics.clone()),
    })
}

impl Collector for AgentCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        if let Some(process) = &mut self.process {
            process.update(out)?;
        }
        self.update(out).map_err(|fault| fault.at_path(&self.path))
    }
}

impl AgentCollector {
    fn update(&mut self, out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.ledger_series.update(out)?;
        let counts = self.collector_series.stats.schedule_counts();
        let counts = [counts.late, counts.missed, counts.clock_steps];
        for (single, count) in self.schedule.iter_mut().zip(counts) {
            single.set(out, count as f64)?;
        }
        self.collector_series.update(out)?;
        self.self_metrics.update(out)
    }
}

const ALWAYS_SHOWN: (Input, DropReason) = (Input::Collect, DropReason::QueueFull);

/// The series of the ledger. Most pairs of input and reason never occur, so a series of
/// `pegel_dropped_total` appears with the first drop for its pair. [`ALWAYS_SHOWN`] is always
/// present, so that the name is known.
#[derive(Debug)]
struct LedgerSeries {
    ledger: Arc<Ledger>,
    totals: Vec<[Slot; 2]>,
    dropped: Vec<(Input, DropReason, Slot)>,
}

impl LedgerSeries {
    fn new(ledger: Arc<Ledger>) -> LedgerSeries {
        LedgerSeries {
            ledger,
            totals: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn update(&mut self, out: &mut SampleGroup) -> Result<(), ProcParseError> {
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
            for &reason in DropReason::ALL {
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
        out: &mut SampleGroup,
        input: Input,
        reason: DropReason,
    ) -> Result<Slot, ProcParseError> {
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
    stats: Arc<SamplerStats>,
    /// For each collector: seconds, failures, failed; `None` if disabled.
    slots: Vec<Option<[Slot; 3]>>,
}

impl CollectorSeries {
    fn update(&mut self, out: &mut SampleGroup) -> Result<(), ProcParseError> {
        if self.slots.is_empty() {
            let families = [&SECONDS, &FAILURES, &FAILED].map(|family| Arc::new(family.clone()));
            for figures in self.stats.collectors() {
                self.slots.push(declare_collector(figures, &families, out)?);
            }
        }
        for (figures, slots) in self.stats.collectors().iter().zip(&self.slots) {
            if let Some([seconds, failures, failed]) = *slots {
                let is_failed = figures.state() == CollectorState::Failed;
                out.set(seconds, figures.seconds());
                out.set(failures, figures.failures() as f64);
                out.set(failed, f64::from(u8::from(is_failed)));
            }
        }
        Ok(())
    }
}

fn declare_collector(
    figures: &CollectorStats,
    [seconds, failures, failed]: &[Arc<Family>; 3],
    out: &mut SampleGroup,
) -> Result<Option<[Slot; 3]>, ProcParseError> {
    if figures.state() == CollectorState::Disabled {
        return Ok(None);
    }
    let labels = [("collector", figures.name)];
    Ok(Some([
        out.declare(seconds, &labels)?,
        out.declare(failures, &labels)?,
        out.declare(failed, &labels)?,
    ]))
}
