//! Measures how much an agent disturbs the programs on its node: a loop of fixed work on every
//! processor runs without an agent, with Pegel, with node_exporter that is scraped, and with
//! collectd, at 2, 10 and 100 Hz.
//!
//! An interruption of the loop makes a repetition of its work longer than an undisturbed one: a
//! *delay*. The conditions alternate in short slices, and each is compared with the slices without
//! an agent around it, so that slow changes of the machine cancel out.
#![allow(clippy::print_stdout)] // The report is printed.

mod delay_chart;
mod delays;
mod disturber;
mod fixed_work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pegel_bench::{BenchReport, FigureGate, is_trial_run, median};

use delays::DelayCounts;
use disturber::{Disturber, RunningDisturber};
use fixed_work::FixedWork;

/// Samples per second.
const RATES: [u32; 3] = [2, 10, 100];
const AGENTS: [Disturber; 3] = [
    Disturber::Pegel,
    Disturber::NodeExporter,
    Disturber::Collectd,
];

/// Added losses below this, in percent of a core, are within the noise of the machine, which
/// differs by more between two slices. It is also the budget of the idle agent's CPU time.
const RESOLUTION: f64 = 0.2;

/// One slice: a condition for some seconds.
#[derive(Debug, Clone)]
pub(crate) struct NoiseSlice {
    delays: DelayCounts,
    /// Shares of a core, in percent: of the agent's processes, and of the thread that scrapes it.
    agent_cpu: f64,
    scraper_cpu: f64,
}

/// All slices of one agent at one rate, with the slices without an agent around each.
#[derive(Debug)]
pub(crate) struct NoiseCondition {
    agent: Disturber,
    rate: u32,
    slices: Vec<NoiseSlice>,
    /// Loss without an agent: mean of the slices before and after, in percent of a core.
    quiet_losses: Vec<f64>,
}

impl NoiseCondition {
    /// Returns the loss that the agent added, in percent of a core, without the share of the thread
    /// that scrapes it: in production the scraper runs on another machine.
    fn added_losses(&self) -> Vec<f64> {
        let slices = self.slices.iter().zip(&self.quiet_losses);
        let added = |(slice, quiet): (&NoiseSlice, &f64)| {
            slice.delays.lost_percent() - quiet - slice.scraper_cpu
        };
        slices.map(added).collect()
    }

    fn of_slices(&self, figure: fn(&NoiseSlice) -> f64) -> Vec<f64> {
        self.slices.iter().map(figure).collect()
    }

    fn total(&self) -> DelayCounts {
        DelayCounts::sum(self.slices.iter().map(|slice| &slice.delays))
    }
}

fn main() -> ExitCode {
    let mut report = BenchReport::new("noise");
    let work = FixedWork::calibrate();
    println!("  {work}");
    let mut quiet: Vec<NoiseSlice> = Vec::new();
    let mut conditions: Vec<NoiseCondition> = Vec::new();
    for rate in RATES {
        conditions.extend(AGENTS.map(|agent| NoiseCondition {
            agent,
            rate,
            slices: Vec::new(),
            quiet_losses: Vec::new(),
        }));
    }
    for _ in 0..report.repetitions(5) {
        measure_round(&work, &mut quiet, &mut conditions);
    }
    for rate in RATES {
        let at_rate: Vec<&NoiseCondition> =
            conditions.iter().filter(|one| one.rate == rate).collect();
        report_rate(&mut report, rate, &at_rate);
    }
    let quiet = DelayCounts::sum(quiet.iter().map(|slice| &slice.delays));
    delays::print_table(&quiet, &conditions);
    if let Some(path) = chart_path() {
        std::fs::write(&path, delay_chart::svg(&quiet, &conditions)).expect("a writable path");
        println!("  wrote {}", path.display());
    }
    report.finish()
}

/// Measures every condition once, with a slice without an agent before each and after the last.
fn measure_round(work: &FixedWork, quiet: &mut Vec<NoiseSlice>, conditions: &mut [NoiseCondition]) {
    let mut before = measure_slice(work, Disturber::None, 0).expect("nothing is missing");
    for condition in conditions {
        let Some(slice) = measure_slice(work, condition.agent, condition.rate) else {
            continue;
        };
        let after = measure_slice(work, Disturber::None, 0).expect("nothing is missing");
        let around = (before.delays.lost_percent() + after.delays.lost_percent()) / 2.0;
        condition.slices.push(slice);
        condition.quiet_losses.push(around);
        quiet.push(before);
        before = after;
    }
}

/// Returns None if the agent is not installed.
fn measure_slice(work: &FixedWork, agent: Disturber, rate: u32) -> Option<NoiseSlice> {
    let (warm_up, length) = match is_trial_run() {
        true => (Duration::from_millis(300), Duration::from_millis(500)),
        false => (Duration::from_secs(1), Duration::from_secs(4)),
    };
    let running = RunningDisturber::start(agent, rate)?;
    std::thread::sleep(if agent == Disturber::None {
        length / 10
    } else {
        warm_up
    });
    let used = running.cpu_time();
    let delays = work.run(length);
    let used = running.cpu_time() - used;
    Some(NoiseSlice {
        delays,
        agent_cpu: percent(used, length),
        scraper_cpu: running.stop().map_or(0.0, |share| share * 100.0),
    })
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64() * 100.0
}

/// A line of the report for each rate.
struct FigureRow {
    work: &'static str,
    unit: &'static str,
    /// Whether it must not exceed node_exporter's.
    is_gated: bool,
    figures: fn(&NoiseCondition) -> Vec<f64>,
}

const ROWS: [FigureRow; 4] = [
    FigureRow {
        work: "added loss",
        unit: "% of a core",
        is_gated: true,
        figures: NoiseCondition::added_losses,
    },
    FigureRow {
        work: "CPU time of the agent",
        unit: "% of a core",
        is_gated: false,
        figures: |condition| condition.of_slices(|slice| slice.agent_cpu),
    },
    FigureRow {
        work: "delays above 100 µs",
        unit: "per core-second",
        is_gated: false,
        figures: |condition| {
            condition.of_slices(|slice| slice.delays.per_core_second_above(100_000))
        },
    },
    FigureRow {
        work: "delay, p99.99",
        unit: "µs",
        is_gated: false,
        figures: |condition| vec![f64::from(condition.total().quantile_nanos(0.9999)) / 1e3],
    },
];

/// Reports Pegel's figures at one rate beside those of the peers that are installed.
fn report_rate(report: &mut BenchReport, rate: u32, conditions: &[&NoiseCondition]) {
    let measured = |agent: Disturber| {
        let mut of_agent = conditions.iter().filter(|one| one.agent == agent);
        of_agent.find(|condition| !condition.slices.is_empty())
    };
    for row in ROWS {
        let peers: Vec<(&str, f64)> = [Disturber::NodeExporter, Disturber::Collectd]
            .into_iter()
            .filter_map(|agent| {
                let mut figures = (row.figures)(measured(agent)?);
                Some((agent.name(), median(&mut figures)))
            })
            .collect();
        // node_exporter is what most sites run.
        let exporter = Disturber::NodeExporter.name();
        let gate = match peers.iter().find(|(name, _)| *name == exporter) {
            Some((_, theirs)) if row.is_gated => FigureGate::AtMost(theirs.max(RESOLUTION)),
            _ => FigureGate::None,
        };
        let ours = measured(Disturber::Pegel).expect("the agent is built");
        let work = format!("{}, {rate} Hz", row.work);
        report.row_with_peers(&work, row.unit, gate, (row.figures)(ours), &peers);
    }
}

/// Returns the path after `--svg`.
/// Returns the path for the chart. A relative one begins in the workspace: cargo runs benchmarks in
/// the directory of their package.
fn chart_path() -> Option<PathBuf> {
    let mut args = std::env::args_os().skip_while(|arg| arg != "--svg");
    let path = args.nth(1)?;
    Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path))
}
