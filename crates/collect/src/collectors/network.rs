//! Traffic of each network interface, from `/proc/net/dev`.
//!
//! Runs on the sampler's thread at every tick and allocates nothing per sample.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::device_slots::shared_families;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, label_value, non_empty_lines, parse_u64s};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

const COLUMNS: usize = 16;

macro_rules! columns {
    ($($static:ident $name:literal $unit:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_network_", $name, "_total"), MetricKind::Counter, $unit, 2, $help);)*
        static FAMILIES: [&Family; COLUMNS] = [$(&$static),*];
    };
}

// In the order of the columns.
columns! {
    RECEIVE_BYTES "receive_bytes" "bytes" "Total number of bytes received.";
    RECEIVE_PACKETS "receive_packets" "" "Total number of packets received.";
    RECEIVE_ERRS "receive_errs" "" "Total number of packets received with an error.";
    RECEIVE_DROP "receive_drop" "" "Total number of received packets that were dropped.";
    RECEIVE_FIFO "receive_fifo" "" "Total number of receive buffer overruns.";
    RECEIVE_FRAME "receive_frame" "" "Total number of frame alignment errors.";
    RECEIVE_COMPRESSED "receive_compressed" "" "Total number of compressed packets received.";
    RECEIVE_MULTICAST "receive_multicast" "" "Total number of multicast packets received.";
    TRANSMIT_BYTES "transmit_bytes" "bytes" "Total number of bytes sent.";
    TRANSMIT_PACKETS "transmit_packets" "" "Total number of packets sent.";
    TRANSMIT_ERRS "transmit_errs" "" "Total number of packets that could not be sent because of an error.";
    TRANSMIT_DROP "transmit_drop" "" "Total number of outgoing packets that were dropped.";
    TRANSMIT_FIFO "transmit_fifo" "" "Total number of transmit buffer underruns.";
    TRANSMIT_COLLS "transmit_colls" "" "Total number of collisions while sending.";
    TRANSMIT_CARRIER "transmit_carrier" "" "Total number of carrier losses while sending.";
    TRANSMIT_COMPRESSED "transmit_compressed" "" "Total number of compressed packets sent.";
}

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "network",
    tier: Tier::Fast,
    execution: Execution::Inline,
    level: 2,
    families: &FAMILIES,
    open,
};

#[derive(Debug)]
struct NetworkReadings {
    families: Vec<Arc<Family>>,
    interfaces: CursorMap<[Slot; COLUMNS]>,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("net/dev");
    open_files([(path, ReadMode::UntilEof, NetworkReadings::new())])
}

impl NetworkReadings {
    fn new() -> NetworkReadings {
        NetworkReadings {
            families: shared_families(&FAMILIES),
            interfaces: CursorMap::new(),
        }
    }
}

impl FileParser for NetworkReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        check_heading(lines.next())?;
        lines.next();
        self.interfaces.begin_pass();
        for (number, line) in lines {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected an interface and its counters",
            };
            let (name, counters) = parse(line).ok_or(malformed)?;
            let families = &self.families;
            let slots = self
                .interfaces
                .entry(name, || declare(families, name, out))?;
            for (slot, counter) in slots.iter().zip(counters) {
                out.set(*slot, counter as f64);
            }
        }
        self.interfaces
            .sweep(|slots| slots.into_iter().for_each(|slot| out.retire(slot)));
        Ok(())
    }
}

fn declare(
    families: &[Arc<Family>],
    name: &[u8],
    out: &mut SampleGroup,
) -> Result<[Slot; COLUMNS], ProcParseError> {
    let device = label_value(name);
    let first = out.declare(&families[0], &[("device", &device)])?;
    let mut slots = [first; COLUMNS];
    for (slot, family) in slots.iter_mut().zip(families).skip(1) {
        *slot = out.declare(family, &[("device", &device)])?;
    }
    Ok(slots)
}

/// Checks the header: the columns are identified by their order, so an unknown header is rejected.
fn check_heading(line: Option<(usize, &[u8])>) -> Result<(), ProcParseError> {
    match line {
        Some((_, line)) if line.starts_with(b"Inter-|   Receive") => Ok(()),
        _ => Err(ProcParseError::Malformed {
            line: 1,
            what: "expected the header of interface counters",
        }),
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
                ("", 0, "the file is empty"),
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
