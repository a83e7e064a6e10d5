//! Prints the figures of a scenario and checks them against their gates.
#![allow(clippy::print_stdout)] // The report is printed.

use std::process::ExitCode;

/// The bound of a figure.
#[derive(Debug, Clone, Copy)]
pub enum FigureGate {
    AtMost(f64),
    AtLeast(f64),
    /// No bound: the figure is only reported.
    None,
}

/// The figures of one scenario.
#[derive(Debug)]
pub struct BenchReport {
    scenario: &'static str,
    missed: usize,
}

/// Whether this is only a trial run, with few repetitions and without gates.
pub fn is_trial_run() -> bool {
    std::env::var_os("PEGEL_BENCH_ONCE").is_some()
}

impl BenchReport {
    pub fn new(scenario: &'static str) -> BenchReport {
        println!("\n{scenario}");
        println!(
            "  {:<52} {:>12} {:>12} {:>20}",
            "work", "budget", "median", "spread"
        );
        BenchReport {
            scenario,
            missed: 0,
        }
    }

    /// Returns the number of repetitions: `usual`, or 1 in a trial run.
    pub fn repetitions(&self, usual: usize) -> usize {
        if is_trial_run() { 1 } else { usual }
    }

    /// Reports the median of `figures` with their minimum and maximum.
    pub fn row(&mut self, work: &str, unit: &str, gate: FigureGate, figures: Vec<f64>) {
        self.row_with_peers(work, unit, gate, figures, &[]);
    }

    /// Like [`BenchReport::row`], with the figures of other programs for the same work in the same
    /// run.
    pub fn row_with_peers(
        &mut self,
        work: &str,
        unit: &str,
        gate: FigureGate,
        mut figures: Vec<f64>,
        peers: &[(&str, f64)],
    ) {
        let median = median(&mut figures);
        let (budget, is_met) = match gate {
            FigureGate::AtMost(max) => (format!("≤ {}", rounded(max)), median <= max),
            FigureGate::AtLeast(min) => (format!("≥ {}", rounded(min)), median >= min),
            FigureGate::None => ("–".to_owned(), true),
        };
        let spread = format!(
            "{} … {}",
            rounded(figures[0]),
            rounded(figures[figures.len() - 1])
        );
        let mark = if is_met { "" } else { "  MISSED" };
        let peers: String = peers
            .iter()
            .map(|(name, figure)| format!("  {name} {}", rounded(*figure)))
            .collect();
        println!(
            "  {:<52} {budget:>12} {:>12} {spread:>20}{mark}{peers}",
            format!("{work} ({unit})"),
            rounded(median)
        );
        self.missed += usize::from(!is_met);
    }

    /// Returns failure if a gate was missed in a full run.
    pub fn finish(self) -> ExitCode {
        if self.missed > 0 && !is_trial_run() {
            println!("  {}: {} gate(s) missed", self.scenario, self.missed);
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

/// Sorts the figures and returns their median.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Formats a figure with three or four significant digits.
fn rounded(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{figure:.3}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        middle if middle < 1000.0 => format!("{figure:.1}").trim_end_matches(".0").to_owned(),
        _ => format!("{figure:.0}"),
    }
}
