//! Traffic of each network interface, from `/proc/net/dev`.
//!
//! Runs on the sampler's thread at every tick and allocates nothing per sample.

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, check_heading, non_empty_lines, parse_u64s};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Tier};

const COLUMNS: usize = 16;

// In the order of the columns.
families! {
    RECEIVE_BYTES Counter 2 "node_network_receive_bytes_total" "bytes" "Total number of bytes received.";
    RECEIVE_PACKETS Counter 2 "node_network_receive_packets_total" "" "Total number of packets received.";
    RECEIVE_ERRS Counter 2 "node_network_receive_errs_total" "" "Total number of packets received with an error.";
    RECEIVE_DROP Counter 2 "node_network_receive_drop_total" "" "Total number of received packets that were dropped.";
    RECEIVE_FIFO Counter 2 "node_network_receive_fifo_total" "" "Total number of receive buffer overruns.";
    RECEIVE_FRAME Counter 2 "node_network_receive_frame_total" "" "Total number of frame alignment errors.";
    RECEIVE_COMPRESSED Counter 2 "node_network_receive_compressed_total" "" "Total number of compressed packets received.";
    RECEIVE_MULTICAST Counter 2 "node_network_receive_multicast_total" "" "Total number of multicast packets received.";
    TRANSMIT_BYTES Counter 2 "node_network_transmit_bytes_total" "bytes" "Total number of bytes sent.";
    TRANSMIT_PACKETS Counter 2 "node_network_transmit_packets_total" "" "Total number of packets sent.";
    TRANSMIT_ERRS Counter 2 "node_network_transmit_errs_total" "" "Total number of packets that could not be sent because of an error.";
    TRANSMIT_DROP Counter 2 "node_network_transmit_drop_total" "" "Total number of outgoing packets that were dropped.";
    TRANSMIT_FIFO Counter 2 "node_network_transmit_fifo_total" "" "Total number of transmit buffer underruns.";
    TRANSMIT_COLLS Counter 2 "node_network_transmit_colls_total" "" "Total number of collisions while sending.";
    TRANSMIT_CARRIER Counter 2 "node_network_transmit_carrier_total" "" "Total number of carrier losses while sending.";
    TRANSMIT_COMPRESSED Counter 2 "node_network_transmit_compressed_total" "" "Total number of compressed packets sent.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("network", Tier::Fast, FAMILIES, |context| {
        open_list(context, "proc/net/dev", NetworkReadings::new())
    });

#[derive(Debug)]
struct NetworkReadings(SeriesTable);

impl NetworkReadings {
    fn new() -> NetworkReadings {
        NetworkReadings(SeriesTable::new(FAMILIES))
    }
}

impl FileParser for NetworkReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        check_heading(
            &mut lines,
            b"Inter-|   Receive",
            "expected the header of interface counters",
        )?;
        lines.next();
        self.0.begin_pass();
        for (number, line) in lines {
            let malformed =
                ProcParseError::at_line(number, "expected an interface and its counters");
            let (name, counters) = parse(line).ok_or(malformed)?;
            let values = counters.map(|counter| Some(counter as f64));
            self.0.set_device(out, "device", name, values)?;
        }
        self.0.end_pass(out);
        Ok(())
    }
}

/// Parses ` eth0: 1 2 3 …`.
fn parse(line: &[u8]) -> Option<(&[u8], [u64; COLUMNS])> {
    let start = line.iter().position(|&byte| byte != b' ')?;
    let line = &line[start..];
    let colon = line.iter().position(|&byte| byte == b':')?;
    let mut counters = [0; COLUMNS];
    let count = parse_u64s(Words(&line[colon + 1..]), &mut counters)?;
    (colon > 0 && count == COLUMNS).then_some((&line[..colon], counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    const HEADING: &str = "Inter-|   Receive   |  Transmit\n face |bytes\n";

    fn pass(readings: &mut NetworkReadings, group: &mut SampleGroup, lines: &[u8]) -> Vec<String> {
        group.clear();
        let text = [HEADING.as_bytes(), lines].concat();
        readings.update(&text, group).expect("valid");
        present_series(group)
    }

    #[test]
    fn interfaces_appear_and_disappear() {
        let (mut readings, mut group) =
            (NetworkReadings::new(), SampleGroup::new("network", 3, 1000));
        let lo = b"    lo:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let both = [
            &lo[..],
            b"e\xff: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
        ]
        .concat();
        let found = pass(&mut readings, &mut group, lo);
        assert_eq!(found.len(), 16);
        assert_eq!(
            found[15],
            "node_network_transmit_compressed_total{device=\"lo\"} 16"
        );
        let found = pass(&mut readings, &mut group, &both);
        assert_eq!(
            found[16],
            "node_network_receive_bytes_total{device=\"e\\\\xff\"} 1.8446744073709552e19"
        );
        assert_eq!(pass(&mut readings, &mut group, b""), Vec::<String>::new());
        assert_eq!(pass(&mut readings, &mut group, lo).len(), 16);
        assert_eq!(group.members().series.len(), 32, "slots are reused");
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update =
            |text: &[u8]| NetworkReadings::new().update(text, &mut SampleGroup::new("n", 3, 1000));
        let what = "expected an interface and its counters";
        let bad = |line: &str| format!("{HEADING}{line}");
        update_fails(
            update,
            &[
                ("", 0, "empty file"),
                ("eth0: 1\n", 1, "expected the header of interface counters"),
                (&bad("lo: 1 2 3"), 3, "the last line is cut off"),
                (&bad("lo: 1 2 3\n"), 3, what),
                (&bad("lo 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"), 3, what),
                (&bad(": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"), 3, what),
                (&bad("lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 x\n"), 3, what),
            ],
        );
    }
}
