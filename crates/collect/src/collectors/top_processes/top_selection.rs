//! Selects the processes whose history is stored: the top ones by CPU time, memory, I/O and GPU
//! memory.

use std::collections::BTreeMap;

use super::tracked_process::{ScanTime, TrackedProcess};

/// The number of processes selected by each measure.
pub(super) const TOP_COUNT: usize = 10;
/// The number of processes with stored history.
pub(super) const SERIES_PROCESSES_MAX: usize = 64;
/// How long a process keeps its series after it left the top, in passes: charts have no holes, and
/// two processes that alternate at the tenth place do not alternate in the store.
const KEPT_PASSES: u64 = 6;
/// Processes below are idle: an idle node would otherwise store a random selection.
const CORES_MIN: f64 = 0.01;
const IO_BYTES_PER_SECOND_MIN: f64 = 4096.0;

/// Marks the top processes, and returns those with stored history by ID.
pub(super) fn select_top(
    processes: &mut BTreeMap<u32, TrackedProcess>,
    now: &ScanTime,
) -> Vec<u32> {
    let measures: [fn(&TrackedProcess) -> f64; 4] = [
        |process| at_least(process.cores, CORES_MIN),
        |process| process.resident_pages as f64,
        |process| at_least(process.io_rate(), IO_BYTES_PER_SECOND_MIN),
        |process| process.gpu_memory.unwrap_or(0) as f64,
    ];
    for measure in measures {
        let values = processes
            .iter()
            .map(|(pid, process)| (measure(process), *pid));
        let mut values: Vec<(f64, u32)> = values.filter(|(value, _)| *value > 0.0).collect();
        let order = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if values.len() > TOP_COUNT {
            values.select_nth_unstable_by(TOP_COUNT - 1, order);
            values.truncate(TOP_COUNT);
        }
        for (_, pid) in values {
            if let Some(process) = processes.get_mut(&pid) {
                process.top_until = now.number + KEPT_PASSES;
            }
        }
    }
    let top = processes.iter().filter(|(_, process)| process.is_top(now));
    let mut top: Vec<(u64, u32)> = top
        .map(|(pid, process)| (process.top_until, *pid))
        .collect();
    // Those that left the top first make room.
    top.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    top.truncate(SERIES_PROCESSES_MAX);
    let mut pids: Vec<u32> = top.into_iter().map(|(_, pid)| pid).collect();
    // A stable order, so that each series finds its slot with the first comparison.
    pids.sort_unstable();
    pids
}

/// Returns the value, or zero if it is below the threshold.
fn at_least(value: f64, threshold: f64) -> f64 {
    if value >= threshold { value } else { 0.0 }
}
