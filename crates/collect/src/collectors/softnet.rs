//! Network packets processed by each CPU, from `/proc/net/softnet_stat`.

use std::io::Write;

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_hex};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Tier};

/// The number of columns that are read. Kernels before 2.6.39 have 9, before 3.11 ten, before 5.10
/// eleven.
const COLUMNS: usize = 13;
const COLUMNS_MIN: usize = 9;
/// The column with the number of the CPU. It differs from the line number when a CPU is offline.
const CPU: usize = 12;

// With the column of each value.
families! {
    sources: usize;
    PROCESSED Counter 2 "node_softnet_processed_total" "" "Total number of packets processed by the CPU." <- 0;
    DROPPED Counter 2 "node_softnet_dropped_total" "" "Total number of packets dropped because the backlog of the CPU was full." <- 1;
    SQUEEZED Counter 2 "node_softnet_times_squeezed_total" "" "Total number of times that packet processing ran out of time or budget." <- 2;
    COLLISIONS Counter 4 "node_softnet_cpu_collision_total" "" "Total number of times that the device was locked by another CPU while sending." <- 8;
    STEERED Counter 2 "node_softnet_received_rps_total" "" "Total number of wake-ups by another CPU that steered packets to this one." <- 9;
    LIMITED Counter 2 "node_softnet_flow_limit_count_total" "" "Total number of packets dropped because a flow exceeded its share of the backlog." <- 10;
    BACKLOG Gauge 4 "node_softnet_backlog_len" "" "Number of packets in the backlog of the CPU." <- 11;
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("softnet", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/net/softnet_stat", SoftnetReadings::new())
    });

#[derive(Debug)]
struct SoftnetReadings(SeriesTable);

impl SoftnetReadings {
    fn new() -> SoftnetReadings {
        SoftnetReadings(SeriesTable::new(FAMILIES))
    }
}

impl FileParser for SoftnetReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.0.begin_pass();
        for (index, (number, line)) in (0..).zip(non_empty_lines(text)?) {
            let malformed =
                ProcParseError::at_line(number, "expected the packet counters of a CPU");
            let (columns, width) = parse(line).ok_or(malformed)?;
            let cpu: u64 = if width > CPU { columns[CPU] } else { index };
            let values = SOURCES.iter().map(|(_, column)| {
                let is_present = *column < width;
                is_present.then(|| columns[*column] as f64)
            });
            let mut name = [0; 20];
            let length = decimal(cpu, &mut name);
            self.0.set_device(out, "cpu", &name[..length], values)?;
        }
        self.0.end_pass(out);
        Ok(())
    }
}

/// Writes a number without an allocation and returns its length.
fn decimal(number: u64, text: &mut [u8; 20]) -> usize {
    let mut rest = &mut text[..];
    // Cannot fail: a u64 has at most 20 digits.
    let _ = write!(rest, "{number}");
    20 - rest.len()
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
                ("", 0, "empty file"),
                ("1 2 3 4 5 6 7 8\n", 1, what),
                ("1 2 3 4 5 6 7 8 9\n1 2 3 x 5 6 7 8 9\n", 2, what),
                ("\n", 1, what),
            ],
        );
    }
}
