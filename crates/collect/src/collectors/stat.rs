//! Interrupts, context switches, forks and the run queue, from `/proc/stat`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::proc_file::SharedFile;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static INTERRUPTS: Family = Family::new(
    "node_intr_total",
    MetricKind::Counter,
    "",
    2,
    "Total number of interrupts serviced.",
);
static SWITCHES: Family = Family::new(
    "node_context_switches_total",
    MetricKind::Counter,
    "",
    2,
    "Total number of context switches.",
);
static FORKS: Family = Family::new(
    "node_forks_total",
    MetricKind::Counter,
    "",
    2,
    "Total number of processes and threads created.",
);
static BOOT_TIME: Family = Family::new(
    "node_boot_time_seconds",
    MetricKind::Gauge,
    "seconds",
    2,
    "Boot time of the node, in seconds since the Unix epoch.",
);
static RUNNING: Family = Family::new(
    "node_procs_running",
    MetricKind::Gauge,
    "",
    2,
    "Number of runnable tasks.",
);
static BLOCKED: Family = Family::new(
    "node_procs_blocked",
    MetricKind::Gauge,
    "",
    2,
    "Number of tasks blocked on I/O.",
);
static RUNNING_DRAGON: Family = Family::new(
    "num_running_processes",
    MetricKind::Gauge,
    "",
    2,
    "Number of runnable tasks; Dragon's name.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "stat",
    tier: Tier::Fast,
    execution: Execution::Inline,
    level: 2,
    families: &[
        &INTERRUPTS,
        &SWITCHES,
        &FORKS,
        &BOOT_TIME,
        &RUNNING,
        &BLOCKED,
        &RUNNING_DRAGON,
    ],
    open,
};

#[derive(Debug)]
struct StatCollector {
    file: Arc<SharedFile>,
    readings: StatReadings,
}

#[derive(Debug)]
struct StatReadings {
    interrupts: UnlabelledSeries,
    switches: UnlabelledSeries,
    forks: UnlabelledSeries,
    boot_time: UnlabelledSeries,
    running: UnlabelledSeries,
    blocked: UnlabelledSeries,
    running_dragon: UnlabelledSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    if !context.proc_stat.open()? {
        return Ok(OpenOutcome::Absent {
            looked_for: context.proc_stat.path().to_owned(),
        });
    }
    Ok(OpenOutcome::Active(Box::new(StatCollector {
        file: context.proc_stat.clone(),
        readings: StatReadings::new(),
    })))
}

impl Collector for StatCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.file.parse_with(|text| self.readings.update(text, out))
    }
}

impl StatReadings {
    fn new() -> StatReadings {
        StatReadings {
            interrupts: UnlabelledSeries::new(&INTERRUPTS),
            switches: UnlabelledSeries::new(&SWITCHES),
            forks: UnlabelledSeries::new(&FORKS),
            boot_time: UnlabelledSeries::new(&BOOT_TIME),
            running: UnlabelledSeries::new(&RUNNING),
            blocked: UnlabelledSeries::new(&BLOCKED),
            running_dragon: UnlabelledSeries::new(&RUNNING_DRAGON),
        }
    }

    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut is_found = false;
        for (number, line) in non_empty_lines(text)? {
            if line.starts_with(b"cpu") {
                continue;
            }
            let mut words = Words(line);
            let single = match words.next() {
                Some(b"intr") => &mut self.interrupts,
                Some(b"ctxt") => &mut self.switches,
                Some(b"processes") => &mut self.forks,
                Some(b"btime") => &mut self.boot_time,
                Some(b"procs_running") => &mut self.running,
                Some(b"procs_blocked") => &mut self.blocked,
                _ => continue,
            };
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected a number after the name",
            };
            let value = words.next().and_then(parse_u64).ok_or(malformed)? as f64;
            single.set(out, value)?;
            if line.starts_with(b"procs_r") {
                self.running_dragon.set(out, value)?;
            }
            is_found = true;
        }
        if !is_found {
            return Err(ProcParseError::Malformed {
                line: 1,
                what: "missing kernel statistics",
            });
        }
        Ok(())
    }
}

/// Returns the boot time of the node, in seconds since the Unix epoch.
pub(crate) fn boot_time(text: &[u8]) -> Option<u64> {
    let lines = non_empty_lines(text).ok()?;
    let words = lines.map(|(_, line)| Words(line));
    words.into_iter().find_map(|mut words| {
        (words.next() == Some(b"btime"))
            .then(|| words.next().and_then(parse_u64))
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn missing_and_unknown_lines_are_accepted() {
        let mut group = SampleGroup::new("stat", 3, 1000);
        let text = b"cpu  1 2 3 4\nfuture 1 x\nintr 18446744073709551615 1 2\nctxt 7\n\n";
        StatReadings::new().update(text, &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_intr_total 1.8446744073709552e19",
                "node_context_switches_total 7"
            ]
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update =
            |text: &[u8]| StatReadings::new().update(text, &mut SampleGroup::new("stat", 3, 1000));
        update_fails(
            update,
            &[
                ("", 0, "the file is empty"),
                ("cpu  1 2 3 4\nctxt", 2, "the last line is cut off"),
                (
                    "cpu  1 2 3 4\nctxt\n",
                    2,
                    "expected a number after the name",
                ),
                ("ctxt 1\nbtime x\n", 2, "expected a number after the name"),
                ("\u{fffd}\0\n\n", 1, "missing kernel statistics"),
            ],
        );
    }

    #[test]
    fn the_boot_time_is_found() {
        assert_eq!(boot_time(b"cpu 1\nbtime 123\n"), Some(123));
        assert_eq!(boot_time(b"btime x\n"), None);
        assert_eq!(boot_time(b""), None);
    }
}
