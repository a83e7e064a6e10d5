//! Computes the delays of a fixed amount of work: their sum, histogram and quantiles.
#![allow(clippy::print_stdout)] // The report is printed.

use crate::NoiseCondition;

/// Lower bounds of the histogram, in nanoseconds. Shorter delays are the jitter of the processor
/// itself and are not counted.
pub(crate) const BOUNDS: [u32; 13] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000,
];

/// The delays of all processors.
#[derive(Debug, Clone, Default)]
pub(crate) struct DelayCounts {
    /// Repetitions of the work.
    repetitions: u64,
    /// Time of all processors together.
    core_nanos: u64,
    lost_nanos: u64,
    /// Delays from each bound to the next.
    counts: [u64; BOUNDS.len()],
    /// All delays of at least the first bound, sorted.
    delays: Vec<u32>,
    processors: u64,
}

impl DelayCounts {
    /// Computes the delays of one processor. The undisturbed duration is the first percentile: the
    /// minimum may be of a moment with a higher clock frequency.
    pub(crate) fn of_durations(durations: &mut [u32]) -> DelayCounts {
        durations.sort_unstable();
        let undisturbed = durations[durations.len() / 100];
        let first =
            durations.partition_point(|duration| duration.saturating_sub(undisturbed) < BOUNDS[0]);
        let delays: Vec<u32> = durations[first..]
            .iter()
            .map(|duration| duration - undisturbed)
            .collect();
        let mut counts = [0; BOUNDS.len()];
        for delay in &delays {
            counts[BOUNDS.partition_point(|bound| bound <= delay) - 1] += 1;
        }
        let sum = |values: &[u32]| values.iter().map(|value| u64::from(*value)).sum();
        DelayCounts {
            repetitions: durations.len() as u64,
            core_nanos: sum(durations),
            lost_nanos: sum(&delays),
            counts,
            delays,
            processors: 1,
        }
    }

    /// Adds up processors, or slices of the same processors.
    pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a DelayCounts>) -> DelayCounts {
        let mut sum = DelayCounts::default();
        for one in all {
            sum.repetitions += one.repetitions;
            sum.core_nanos += one.core_nanos;
            sum.lost_nanos += one.lost_nanos;
            for (total, count) in sum.counts.iter_mut().zip(&one.counts) {
                *total += count;
            }
            sum.delays.extend(&one.delays);
            sum.processors += one.processors;
        }
        sum.delays.sort_unstable();
        sum
    }

    /// Returns the time lost to delays, in percent of one processor.
    pub(crate) fn lost_percent(&self) -> f64 {
        let share = self.lost_nanos as f64 / self.core_nanos as f64;
        share * self.processors as f64 * 100.0
    }

    /// Returns how many delays of at least `nanos` a processor had per second.
    pub(crate) fn per_core_second_above(&self, nanos: u32) -> f64 {
        let first = self.delays.partition_point(|delay| *delay < nanos);
        (self.delays.len() - first) as f64 / (self.core_nanos as f64 / 1e9)
    }

    /// Returns a quantile of the delays of all repetitions, 0 if it is below the first bound.
    pub(crate) fn quantile_nanos(&self, quantile: f64) -> u32 {
        let from_end = ((1.0 - quantile) * self.repetitions as f64).round() as usize;
        let index = self.delays.len().checked_sub(from_end.max(1));
        index.map_or(0, |index| self.delays[index])
    }
}

/// Prints the histogram as a table for docs/benchmarks.md: delays per processor and second.
pub(crate) fn print_table(quiet: &DelayCounts, conditions: &[NoiseCondition]) {
    let mut columns = vec![("no agent".to_owned(), quiet.clone())];
    for condition in conditions
        .iter()
        .filter(|condition| !condition.slices.is_empty())
    {
        let name = format!("{} {} Hz", condition.agent.name(), condition.rate);
        columns.push((name, condition.total()));
    }
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    println!("\n| delay at least | {} |", names.join(" | "));
    println!("|---{}|", "|---".repeat(columns.len()));
    for bound in BOUNDS {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, delays)| format!("{:.2}", delays.per_core_second_above(bound)))
            .collect();
        println!("| {} | {} |", bound_text(bound), cells.join(" | "));
    }
    let cells: Vec<String> = columns
        .iter()
        .map(|(_, delays)| format!("{:.3}", delays.lost_percent() / delays.processors as f64))
        .collect();
    println!("| lost, % of all processors | {} |", cells.join(" | "));
    for (text, quantile) in [("p99.9, µs", 0.999), ("p99.99, µs", 0.9999)] {
        let cells: Vec<String> = columns
            .iter()
            .map(|(_, delays)| format!("{:.1}", f64::from(delays.quantile_nanos(quantile)) / 1e3))
            .collect();
        println!("| {text} | {} |", cells.join(" | "));
    }
}

pub(crate) fn bound_text(nanos: u32) -> String {
    match nanos {
        0..1_000_000 => format!("{} µs", nanos / 1_000),
        _ => format!("{} ms", nanos / 1_000_000),
    }
}
