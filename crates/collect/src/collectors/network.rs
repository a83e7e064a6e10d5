//! Traffic of each network interface, from `/proc/net/dev`.

use std::sync::Arc;

use pegel_metric::{Family, Group, Kind, Slot};

use crate::files::{Parser, open_files};
use crate::places::shared;
use crate::procfile::Shape;
use crate::roster::Roster;
use crate::scan::{Fault, Words, integers, label, whole_lines};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

const COLUMNS: usize = 16;

macro_rules! columns {
    ($($static:ident $name:literal $unit:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_network_", $name, "_total"), Kind::Counter, $unit, 2, $help);)*
        static FAMILIES: [&Family; COLUMNS] = [$(&$static),*];
    };
}

// In the order of the columns.
columns! {
    RECEIVE_BYTES "receive_bytes" "bytes" "Bytes received.";
    RECEIVE_PACKETS "receive_packets" "" "Packets received.";
    RECEIVE_ERRS "receive_errs" "" "Packets received with an error.";
    RECEIVE_DROP "receive_drop" "" "Received packets that were dropped.";
    RECEIVE_FIFO "receive_fifo" "" "Receive buffer overruns.";
    RECEIVE_FRAME "receive_frame" "" "Frame alignment errors.";
    RECEIVE_COMPRESSED "receive_compressed" "" "Compressed packets received.";
    RECEIVE_MULTICAST "receive_multicast" "" "Multicast packets received.";
    TRANSMIT_BYTES "transmit_bytes" "bytes" "Bytes sent.";
    TRANSMIT_PACKETS "transmit_packets" "" "Packets sent.";
    TRANSMIT_ERRS "transmit_errs" "" "Packets that could not be sent because of an error.";
    TRANSMIT_DROP "transmit_drop" "" "Packets that were dropped instead of being sent.";
    TRANSMIT_FIFO "transmit_fifo" "" "Send buffer underruns.";
    TRANSMIT_COLLS "transmit_colls" "" "Collisions while sending.";
    TRANSMIT_CARRIER "transmit_carrier" "" "Losses of carrier while sending.";
    TRANSMIT_COMPRESSED "transmit_compressed" "" "Compressed packets sent.";
}

pub static ENTRY: Entry = Entry {
    name: "network",
    tier: Tier::Fast,
    pace: Pace::Here,
    level: 2,
    families: &FAMILIES,
    open,
};

#[derive(Debug)]
struct NetworkReadings {
    families: Vec<Arc<Family>>,
    interfaces: Roster<[Slot; COLUMNS]>,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let path = context.host.proc.join("net/dev");
    open_files([(path, Shape::List, NetworkReadings::new())])
}

impl NetworkReadings {
    fn new() -> NetworkReadings {
        NetworkReadings {
            families: shared(&FAMILIES),
            interfaces: Roster::new(),
        }
    }
}

impl Parser for NetworkReadings {
    fn update(&mut self, text: &[u8], out: &mut Group) -> Result<(), Fault> {
        let mut lines = whole_lines(text)?;
        check_heading(lines.next())?;
        lines.next();
        self.interfaces.begin();
        for (number, line) in lines {
            let malformed = Fault::Malformed {
                line: number,
                what: "not an interface's counters",
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
    out: &mut Group,
) -> Result<[Slot; COLUMNS], Fault> {
    let device = label(name);
    let first = out.declare(&families[0], &[("device", &device)])?;
    let mut slots = [first; COLUMNS];
    for (slot, family) in slots.iter_mut().zip(families).skip(1) {
        *slot = out.declare(family, &[("device", &device)])?;
    }
    Ok(slots)
}

/// The columns are known by their order: what does not begin like the file is not taken for it.
fn check_heading(line: Option<(usize, &[u8])>) -> Result<(), Fault> {
    match line {
        Some((_, line)) if line.starts_with(b"Inter-|   Receive") => Ok(()),
        _ => Err(Fault::Malformed {
            line: 1,
            what: "not the heading of interface counters",
        }),
    }
}

/// ` eth0: 1 2 3 …`
fn parse(line: &[u8]) -> Option<(&[u8], [u64; COLUMNS])> {
    let start = line.iter().position(|&byte| byte != b' ')?;
    let line = &line[start..];
    let colon = line.iter().position(|&byte| byte == b':')?;
    let mut counters = [0; COLUMNS];
    let count = integers(Words(&line[colon + 1..]), &mut counters)?;
    (colon > 0 && count == COLUMNS).then_some((&line[..colon], counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    const HEADING: &str = "Inter-|   Receive   |  Transmit\n face |bytes\n";

    fn pass(readings: &mut NetworkReadings, group: &mut Group, lines: &[u8]) -> Vec<String> {
        group.clear();
        let text = [HEADING.as_bytes(), lines].concat();
        readings.update(&text, group).expect("valid");
        present_series(group)
    }

    #[test]
    fn interfaces_come_and_go() {
        let (mut readings, mut group) = (NetworkReadings::new(), Group::new("network", 3, 1000));
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
        assert_eq!(group.members().series.len(), 32, "slots are used again");
    }

    #[test]
    fn garbage_is_named_by_its_line() {
        let update =
            |text: &[u8]| NetworkReadings::new().update(text, &mut Group::new("n", 3, 1000));
        let what = "not an interface's counters";
        let bad = |line: &str| format!("{HEADING}{line}");
        update_fails(
            update,
            &[
                ("", 0, "the file is empty"),
                ("eth0: 1\n", 1, "not the heading of interface counters"),
                (&bad("lo: 1 2 3"), 3, "the last line is cut off"),
                (&bad("lo: 1 2 3\n"), 3, what),
                (&bad("lo 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"), 3, what),
                (&bad(": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"), 3, what),
                (&bad("lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 x\n"), 3, what),
            ],
        );
    }
}
