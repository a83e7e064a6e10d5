//! Scheduler statistics of each CPU, from `/proc/schedstat`.

use std::sync::Arc;

use pegel_metric::{Family, Group, Kind, Slot};

use crate::files::{Parser, open_files};
use crate::places::shared;
use crate::procfile::Shape;
use crate::roster::Roster;
use crate::scan::{Fault, Words, integers, label, whole_lines};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

static RUNNING: Family = Family::new(
    "node_schedstat_running_seconds_total",
    Kind::Counter,
    "seconds",
    2,
    "Total time that the CPU spent running tasks, in seconds.",
);
static WAITING: Family = Family::new(
    "node_schedstat_waiting_seconds_total",
    Kind::Counter,
    "seconds",
    2,
    "Total time that tasks waited for the CPU, summed over the tasks, in seconds.",
);
static TIMESLICES: Family = Family::new(
    "node_schedstat_timeslices_total",
    Kind::Counter,
    "",
    2,
    "Total number of time slices run on the CPU.",
);
static FAMILIES: [&Family; 3] = [&RUNNING, &WAITING, &TIMESLICES];

/// The number of values on the line of a CPU; the last three are published. Versions 14 to 17 of the file agree.
const COLUMNS: usize = 9;

pub static ENTRY: Entry = Entry {
    name: "schedstat",
    tier: Tier::FiveSeconds,
    pace: Pace::Here,
    level: 2,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<Opened, OpenError> {
    let path = context.host.proc.join("schedstat");
    open_files([(path, Shape::List, SchedstatReadings::new())])
}

#[derive(Debug)]
struct SchedstatReadings {
    families: Vec<Arc<Family>>,
    cpus: Roster<[Slot; 3]>,
}

impl SchedstatReadings {
    fn new() -> SchedstatReadings {
        SchedstatReadings {
            families: shared(&FAMILIES),
            cpus: Roster::new(),
        }
    }
}

impl Parser for SchedstatReadings {
    fn update(&mut self, text: &[u8], out: &mut Group) -> Result<(), Fault> {
        let mut lines = whole_lines(text)?;
        if lines
            .next()
            .is_none_or(|(_, line)| !line.starts_with(b"version "))
        {
            return Err(Fault::Malformed {
                line: 1,
                what: "expected the version of scheduler statistics",
            });
        }
        let families = &self.families;
        self.cpus.begin();
        for (number, line) in lines {
            let Some(rest) = line.strip_prefix(b"cpu") else {
                continue;
            };
            let mut words = Words(rest);
            let cpu = words.next().unwrap_or_default();
            let mut columns = [0; COLUMNS];
            if cpu.is_empty() || integers(words, &mut columns) != Some(COLUMNS) {
                return Err(Fault::Malformed {
                    line: number,
                    what: "expected the scheduler statistics of a CPU",
                });
            }
            let [.., running, waiting, timeslices] = columns;
            let slots = self.cpus.entry(cpu, || {
                let cpu = label(cpu);
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
        let mut group = Group::new("schedstat", 3, 1000);
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
            |text| SchedstatReadings::new().update(text, &mut Group::new("schedstat", 3, 1000)),
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
