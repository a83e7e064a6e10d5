#![allow(clippy::print_stdout)] // A bench is there to print.

use std::process::ExitCode;

/// What a figure must keep to.
#[derive(Debug, Clone, Copy)]
pub enum Gate {
    AtMost(f64),
    AtLeast(f64),
    /// Reported beside the others, without a bound.
    None,
}

/// The figures of one scenario.
#[derive(Debug)]
pub struct Report {
    scenario: &'static str,
    missed: usize,
}

/// Whether this is only a trial run, with few repetitions and without gates.
pub fn is_once() -> bool {
    std::env::var_os("PEGEL_BENCH_ONCE").is_some()
}

impl Report {
    pub fn new(scenario: &'static str) -> Report {
        println!("\n{scenario}");
        println!("  {:<52} {:>12} {:>12} {:>20}", "work", "budget", "here", "spread");
        Report { scenario, missed: 0 }
    }

    /// How often to measure.
    pub fn repetitions(&self, usual: usize) -> usize {
        if is_once() { 1 } else { usual }
    }

    /// Reports the median of `figures` with their smallest and largest.
    pub fn row(&mut self, work: &str, unit: &str, gate: Gate, mut figures: Vec<f64>) {
        figures.sort_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        let (budget, is_kept) = match gate {
            Gate::AtMost(most) => (format!("≤ {most}"), median <= most),
            Gate::AtLeast(least) => (format!("≥ {least}"), median >= least),
            Gate::None => ("–".to_owned(), true),
        };
        let spread = format!("{:.3} … {:.3}", figures[0], figures[figures.len() - 1]);
        let mark = if is_kept { "" } else { "  MISSED" };
        println!("  {:<52} {budget:>12} {median:>12.3} {spread:>20}{mark}", format!("{work} ({unit})"));
        self.missed += usize::from(!is_kept);
    }

    /// Fails when a gate was missed in a full run.
    pub fn finish(self) -> ExitCode {
        if self.missed > 0 && !is_once() {
            println!("  {}: {} gate(s) missed", self.scenario, self.missed);
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}
