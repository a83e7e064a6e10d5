//! Scheduler statistics of each CPU, from `/proc/schedstat`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::device_slots::shared_families;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, label_value, non_empty_lines, parse_u64s};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static RUNNING: Family = Family::new(
    "node_schedstat_running_seconds_total",
    MetricKind::Counter,
    "seconds",
    2,
    "Total time that the CPU spent running tasks, in seconds.",
);
static WAITING: Family = Family::new(
    "node_schedstat_waiting_seconds_total",
    MetricKind::Counter,
    "seconds",
    2,
    "Total time that tasks waited for the CPU, summed over the tasks, in seconds.",
);
static TIMESLICES: Family = Family::new(
    "node_schedstat_timeslices_total",
    MetricKind::Counter,
    "",
    2,
    "Total number of time slices run on the CPU.",
);
static FAMILIES: [&Family; 3] = [&RUNNING, &WAITING, &TIMESLICES];

/// The number of values on the line of a CPU; the last three are published. Versions 14 to 17 of the file agree.
const COLUMNS: usize = 9;

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "schedstat",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("schedstat");
    open_files([(path, ReadMode::UntilEof, SchedstatReadings::new())])
}

#[derive(Debug)]
struct SchedstatReadings {
    families: Vec<Arc<Family>>,
    cpus: CursorMap<[Slot; 3]>,
}

impl SchedstatReadings {
    fn new() -> SchedstatReadings {
        SchedstatReadings {
            families: shared_families(&FAMILIES),
            cpus: CursorMap::new(),
        }
    }
}

impl FileParser for SchedstatReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        if lines
            .next()
            .is_none_or(|(_, line)| !line.starts_with(b"version "))
        {
            return Err(ProcParseError::Malformed {
                line: 1,
                what: "expected the version of scheduler statistics",
            });
        }
        let families = &self.families;
        self.cpus.begin_pass();
        for (number, line) in lines {
            let Some(rest) = line.strip_prefix(b"cpu") else {
                continue;
            };
            let mut words = Words(rest);
            let cpu = words.next().unwrap_or_default();
            let mut columns = [0; COLUMNS];
            if cpu.is_empty() || parse_u64s(words, &mut columns) != Some(COLUMNS) {
                return Err(ProcParseError::Malformed {
                    line: number,
                    what: "expected the scheduler statistics of a CPU",
                });
            }
            let [.., running, waiting, timeslices] = columns;
            let slots = self.cpus.entry(cpu, || {
                let cpu = label_value(cpu);
                let mut slot = |index: usize| out.declare(&families[index], &[("cpu", &cpu)]);
                Ok([slot(0)?, slot(1)?, slot(2)?])
            })?;
            out.set(slots[0], running as f64 / 1e9);
            out.set(slots[1], waiting as f64 / 1e9);
            out.set(slots[2], timeslices as f64);
        }
        self.cpus
            .sweep(|slots| slots.into_iter().for_each(|slot| out.retire(slot)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn domains_are_skipped() {
        let mut group = SampleGroup::new("schedstat", 3, 1000);
        let text = b"version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 1500000000 250000000 7\n\
                     domain0 3 1 2\ncpu11 0 0 0 0 0 0 1 2 3\n";
        SchedstatReadings::new()
            .update(text, &mut group)
            .expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), 6);
        assert_eq!(
            found[..3],
            [
                "node_schedstat_running_seconds_total{cpu=\"0\"} 1.5",
                "node_schedstat_waiting_seconds_total{cpu=\"0\"} 0.25",
                "node_schedstat_timeslices_total{cpu=\"0\"} 7",
            ]
        );
        assert_eq!(found[5], "node_schedstat_timeslices_total{cpu=\"11\"} 3");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected the scheduler statistics of a CPU";
        update_fails(
            |text| {
                SchedstatReadings::new().update(text, &mut SampleGroup::new("schedstat", 3, 1000))
            },
            &[
                ("", 0, "the file is empty"),
                (
                    "cpu0 1\n",
                    1,
                    "expected the version of scheduler statistics",
                ),
                ("version 15\ncpu0 1 2 3 4 5 6 7 8\n", 2, what),
                ("version 15\ncpu0 1 2 3 4 5 6 7 8 x\n", 2, what),
                ("version 15\ncpu\n", 2, what),
            ],
        );
    }
}
