//! Network packets processed by each CPU, from `/proc/net/softnet_stat`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::device_slots::{DeviceSlots, shared_families};
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_hex};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

/// The number of columns that are read. Kernels before 2.6.39 have 9, before 3.11 ten, before 5.10 eleven.
const COLUMNS: usize = 13;
const COLUMNS_MIN: usize = 9;
/// The column with the number of the CPU. It differs from the line number when a CPU is offline.
const CPU: usize = 12;

const fn counter(name: &'static str, level: u8, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", level, help)
}

static PROCESSED: Family = counter(
    "node_softnet_processed_total",
    2,
    "Total number of packets processed by the CPU.",
);
static DROPPED: Family = counter(
    "node_softnet_dropped_total",
    2,
    "Total number of packets dropped because the backlog of the CPU was full.",
);
static SQUEEZED: Family = counter(
    "node_softnet_times_squeezed_total",
    2,
    "Total number of times that packet processing ran out of time or budget.",
);
static COLLISIONS: Family = counter(
    "node_softnet_cpu_collision_total",
    4,
    "Total number of times that the device was locked by another CPU while sending.",
);
static STEERED: Family = counter(
    "node_softnet_received_rps_total",
    2,
    "Total number of wake-ups by another CPU that steered packets to this one.",
);
static LIMITED: Family = counter(
    "node_softnet_flow_limit_count_total",
    2,
    "Total number of packets dropped because a flow exceeded its share of the backlog.",
);
static BACKLOG: Family = Family::new(
    "node_softnet_backlog_len",
    MetricKind::Gauge,
    "",
    4,
    "Number of packets in the backlog of the CPU.",
);

static FAMILIES: [&Family; 7] = [
    &PROCESSED,
    &DROPPED,
    &SQUEEZED,
    &COLLISIONS,
    &STEERED,
    &LIMITED,
    &BACKLOG,
];
/// The column of each family.
const FAMILY_COLUMNS: [usize; 7] = [0, 1, 2, 8, 9, 10, 11];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "softnet",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("net/softnet_stat");
    open_files([(path, ReadMode::UntilEof, SoftnetReadings::new())])
}

#[derive(Debug)]
struct SoftnetReadings {
    families: Vec<Arc<Family>>,
    cpus: Vec<SoftnetCpu>,
}

#[derive(Debug)]
struct SoftnetCpu {
    cpu: u64,
    /// The number of the CPU as text.
    label: String,
    slots: DeviceSlots,
}

impl SoftnetReadings {
    fn new() -> SoftnetReadings {
        SoftnetReadings {
            families: shared_families(&FAMILIES),
            cpus: Vec::new(),
        }
    }
}

impl FileParser for SoftnetReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut count = 0;
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected the packet counters of a CPU",
            };
            let (columns, width) = parse(line).ok_or(malformed)?;
            let cpu = if width > CPU {
                columns[CPU]
            } else {
                count as u64
            };
            if self.cpus.get(count).is_some_and(|line| line.cpu != cpu) {
                // A CPU went offline or online: the lines from here on belong to other CPUs.
                self.retire_from(count, out);
            }
            if self.cpus.len() == count {
                self.cpus.push(SoftnetCpu {
                    cpu,
                    label: cpu.to_string(),
                    slots: DeviceSlots::new(&self.families),
                });
            }
            let line = &mut self.cpus[count];
            let labels = [("cpu", &*line.label)];
            for (index, &source) in FAMILY_COLUMNS.iter().enumerate() {
                if source < width {
                    let value = columns[source] as f64;
                    line.slots.set(out, &self.families, index, &labels, value)?;
                }
            }
            count += 1;
        }
        self.retire_from(count, out);
        Ok(())
    }
}

impl SoftnetReadings {
    fn retire_from(&mut self, first: usize, out: &mut SampleGroup) {
        for line in self.cpus.drain(first..) {
            line.slots.retire(out);
        }
    }
}

fn parse(line: &[u8]) -> Option<([u64; COLUMNS], usize)> {
    let (mut columns, mut count) = ([0; COLUMNS], 0);
    for (column, word) in columns.iter_mut().zip(Words(line)) {
        *column = parse_hex(word)?;
        count += 1;
    }
    (count >= COLUMNS_MIN).then_some((columns, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn line(first: &str, cpu: &str) -> String {
        format!("{first} 2 3 0 0 0 0 0 8 9 a b {cpu} 0 0\n")
    }

    #[test]
    fn an_offline_cpu_has_no_line() {
        let (mut readings, mut group) =
            (SoftnetReadings::new(), SampleGroup::new("softnet", 4, 1000));
        let cases = [
            (
                vec![("ff", "0"), ("1", "1"), ("2", "a")],
                vec!["0", "1", "10"],
            ),
            (vec![("ff", "0"), ("2", "a")], vec!["0", "10"]),
            (
                vec![("ff", "0"), ("1", "1"), ("2", "a")],
                vec!["0", "1", "10"],
            ),
        ];
        for (lines, cpus) in cases {
            group.clear();
            let text: String = lines.iter().map(|(first, cpu)| line(first, cpu)).collect();
            readings.update(text.as_bytes(), &mut group).expect("valid");
            let found = present_series(&mut group);
            assert_eq!(found.len(), 7 * cpus.len());
            for cpu in cpus {
                let value = if cpu == "0" { 255 } else { cpu.len() };
                let expected = format!("node_softnet_processed_total{{cpu=\"{cpu}\"}} {value}");
                assert!(found.contains(&expected), "{expected}");
            }
        }
        assert_eq!(group.members().series.len(), 21);
    }

    #[test]
    fn old_kernels_have_fewer_columns() {
        let mut group = SampleGroup::new("softnet", 3, 1000);
        let text = b"000c66f0 1 2 0 0 0 0 0 0\n5 1 2 0 0 0 0 0 0\n";
        SoftnetReadings::new()
            .update(text, &mut group)
            .expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], "node_softnet_processed_total{cpu=\"0\"} 812784");
        assert_eq!(found[3], "node_softnet_processed_total{cpu=\"1\"} 5");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected the packet counters of a CPU";
        update_fails(
            |text| SoftnetReadings::new().update(text, &mut SampleGroup::new("softnet", 3, 1000)),
            &[
                ("", 0, "the file is empty"),
                ("1 2 3 4 5 6 7 8\n", 1, what),
                ("1 2 3 4 5 6 7 8 9\n1 2 3 x 5 6 7 8 9\n", 2, what),
                ("\n", 1, what),
            ],
        );
    }
}
