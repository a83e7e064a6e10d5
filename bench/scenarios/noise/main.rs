//! How much an agent disturbs the programs on its node: a loop of fixed work on every processor,
//! with nothing beside it, with Pegel, with node_exporter that is scraped, and with collectd, at 2,
//! 10 and 100 Hz.
//!
//! Whatever interrupts the loop makes a repetition of its work longer than the shortest one: a
//! *delay*. The conditions alternate in short slices, and each is compared with the slices without
//! an agent around it, so that slow changes of the machine cancel out.
#![allow(clippy::print_stdout)] // The report is printed.

mod delay_chart;
mod delays;
mod disturber;
mod fixed_work;

use std::path::PathBuf;
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
    /// Returns what the agent added, in percent of a core, without the thread that scrapes it: in
    /// production it runs on another machine.
    fn added_losses(&self) -> Vec<f64> {
        let slices = self.slices.iter().zip(&self.quiet_losses);
        let added = |(slice, quiet): (&NoiseSlice, &f64)| {
            slice.delays.lost_percent() - quiet - slice.scraper_cpu
        };
        slices.map(added).collect()
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
    for _ in 0..report.repetitions(6) {
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
        false => (Duration::from_secs(1), Duration::from_secs(5)),
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

fn report_rate(report: &mut BenchReport, rate: u32, conditions: &[&NoiseCondition]) {
    let of = |agent: Disturber| conditions.iter().find(|one| one.agent == agent);
    let figures = |agent: Disturber, figure: &dyn Fn(&NoiseCondition) -> Vec<f64>| {
        of(agent).map_or(Vec::new(), |condition| figure(condition))
    };
    let row = |report: &mut BenchReport,
               work: &str,
               unit: &str,
               is_gated: bool,
               figure: &dyn Fn(&NoiseCondition) -> Vec<f64>| {
        let mut peers = Vec::new();
        for agent in [Disturber::NodeExporter, Disturber::Collectd] {
            let mut theirs = figures(agent, figure);
            if !theirs.is_empty() {
                peers.push((agent.name(), median(&mut theirs)));
            }
        }
        // node_exporter is what most sites run.
        let exporter = peers
            .iter()
            .find(|(name, _)| *name == Disturber::NodeExporter.name());
        let gate = match exporter {
            Some((_, theirs)) if is_gated => FigureGate::AtMost(*theirs),
            _ => FigureGate::None,
        };
        report.row_with_peers(
            &format!("{work}, {rate} Hz"),
            unit,
            gate,
            figures(Disturber::Pegel, figure),
            &peers,
        );
    };
    row(
        report,
        "added loss",
        "% of a core",
        true,
        &NoiseCondition::added_losses,
    );
    row(
        report,
        "CPU time of the agent",
        "% of a core",
        false,
        &|condition| {
            condition
                .slices
                .iter()
                .map(|slice| slice.agent_cpu)
                .collect()
        },
    );
    row(
        report,
        "delays above 100 µs",
        "per core-second",
        false,
        &|condition| {
            condition
                .slices
                .iter()
                .map(|slice| slice.delays.per_core_second_above(100_000))
                .collect()
        },
    );
    row(report, "delay, p99.99", "µs", false, &|condition| {
        vec![condition.total().quantile_nanos(0.9999) as f64 / 1e3]
    });
}

/// Returns the path after `--svg`.
fn chart_path() -> Option<PathBuf> {
    let mut args = std::env::args_os().skip_while(|arg| arg != "--svg");
    args.nth(1).map(PathBuf::from)
}
