//! Interrupts, context switches, forks and the run queue, from `/proc/stat`.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::proc_file::SharedFile;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, Collector, CollectorEntry, Context, OpenOutcome, OpenResult, Tier};

families! {
    INTERRUPTS Counter 2 "node_intr_total" "" "Total number of interrupts serviced.";
    SWITCHES Counter 2 "node_context_switches_total" "" "Total number of context switches.";
    FORKS Counter 2 "node_forks_total" "" "Total number of processes and threads created.";
    BOOT_TIME Gauge 2 "node_boot_time_seconds" "seconds" "Boot time of the node, in seconds since the Unix epoch.";
    RUNNING Gauge 2 "node_procs_running" "" "Number of runnable tasks.";
    BLOCKED Gauge 2 "node_procs_blocked" "" "Number of tasks blocked on I/O.";
    RUNNING_DRAGON Gauge 2 "num_running_processes" "" "Number of runnable tasks; Dragon's name.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("stat", Tier::Fast, FAMILIES, open);

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

fn open(context: &Context) -> OpenResult {
    if !context.proc_stat.open()? {
        return OpenOutcome::absent(context.proc_stat.path().to_owned());
    }
    OpenOutcome::active(StatCollector {
        file: context.proc_stat.clone(),
        readings: StatReadings::new(),
    })
}

impl Collector for StatCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.file.parse_with(|text| self.readings.update(text, out))
    }

    fn read_at(&self) -> Option<Duration> {
        self.file.read_at()
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
            let malformed = ProcParseError::at_line(number, "expected a number after the name");
            let value = words.next().and_then(parse_u64).ok_or(malformed)? as f64;
            single.set(out, value)?;
            if line.starts_with(b"procs_r") {
                self.running_dragon.set(out, value)?;
            }
            is_found = true;
        }
        if !is_found {
            return Err(ProcParseError::at_line(1, "missing kernel statistics"));
        }
        Ok(())
    }
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
                ("", 0, "empty file"),
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
}
