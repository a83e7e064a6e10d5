//! Scheduler statistics of each CPU, from `/proc/schedstat`.

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, check_heading, non_empty_lines, parse_u64s};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Tier};

families! {
    RUNNING Counter 2 "node_schedstat_running_seconds_total" "seconds" "Total time that the CPU spent running tasks, in seconds.";
    WAITING Counter 2 "node_schedstat_waiting_seconds_total" "seconds" "Total time that tasks waited for the CPU, summed over the tasks, in seconds.";
    TIMESLICES Counter 2 "node_schedstat_timeslices_total" "" "Total number of time slices run on the CPU.";
}

/// The number of values on the line of a CPU; the last three are published. Versions 14 to 17 of
/// the file agree.
const COLUMNS: usize = 9;

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("schedstat", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/schedstat", SchedstatReadings::new())
    });

#[derive(Debug)]
struct SchedstatReadings(SeriesTable);

impl SchedstatReadings {
    fn new() -> SchedstatReadings {
        SchedstatReadings(SeriesTable::new(FAMILIES))
    }
}

impl FileParser for SchedstatReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        check_heading(
            &mut lines,
            b"version ",
            "expected the version of scheduler statistics",
        )?;
        self.0.begin_pass();
        for (number, line) in lines {
            let Some(rest) = line.strip_prefix(b"cpu") else {
                continue;
            };
            let mut words = Words(rest);
            let cpu = words.next().unwrap_or_default();
            let mut columns = [0; COLUMNS];
            if cpu.is_empty() || parse_u64s(words, &mut columns) != Some(COLUMNS) {
                let what = "expected the scheduler statistics of a CPU";
                return Err(ProcParseError::at_line(number, what));
            }
            let [.., running, waiting, timeslices] = columns.map(|column| column as f64);
            let values = [running / 1e9, waiting / 1e9, timeslices].map(Some);
            self.0.set_device(out, "cpu", cpu, values)?;
        }
        self.0.end_pass(out);
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
                ("", 0, "empty file"),
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
