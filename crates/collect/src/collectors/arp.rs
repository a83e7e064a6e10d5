//! Number of entries in the ARP table per interface, from `/proc/net/arp`.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, Words, check_heading, label_value, non_empty_lines};
use crate::{CollectorEntry, Tier};

families! {
    ENTRIES Gauge 2 "node_arp_entries" "" "Number of entries in the ARP table, by interface.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("arp", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/net/arp", ArpReadings::new())
    });

#[derive(Debug)]
struct ArpReadings {
    family: Arc<Family>,
    devices: CursorMap<Slot>,
}

impl ArpReadings {
    fn new() -> ArpReadings {
        ArpReadings {
            family: Arc::new(ENTRIES.clone()),
            devices: CursorMap::new(),
        }
    }
}

impl FileParser for ArpReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        check_heading(&mut lines, b"IP ", "expected the header of the ARP table")?;
        self.devices.begin_pass();
        for (number, line) in lines {
            let malformed =
                ProcParseError::at_line(number, "expected an address and its interface");
            let name = Words(line).nth(5).ok_or(malformed)?;
            let family = &self.family;
            let slot = *self.devices.entry(name, || {
                Ok(out.declare(family, &[("device", &label_value(name))])?)
            })?;
            // The first entry of a pass finds no value.
            let count = out.get(slot).unwrap_or(0.0);
            out.set(slot, count + 1.0);
        }
        self.devices.sweep(|slot| out.retire(slot));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    const HEADING: &str = "IP address       HW type     Flags       HW address  Mask  Device\n";

    #[test]
    fn entries_are_counted_by_interface() {
        let (mut readings, mut group) = (ArpReadings::new(), SampleGroup::new("arp", 3, 1000));
        let line = |device: &str| format!("192.0.2.1 0x1 0x2 02:00:00:00:00:05 * {device}\n");
        let cases: [(&[&str], &[&str]); 3] = [
            (
                &["eth0", "ib0", "eth0"],
                &[
                    "node_arp_entries{device=\"eth0\"} 2",
                    "node_arp_entries{device=\"ib0\"} 1",
                ],
            ),
            (&["eth0"], &["node_arp_entries{device=\"eth0\"} 1"]),
            (&[], &[]),
        ];
        for (devices, expected) in cases {
            group.clear();
            let lines: String = devices.iter().map(|device| line(device)).collect();
            let text = format!("{HEADING}{lines}");
            readings.update(text.as_bytes(), &mut group).expect("valid");
            assert_eq!(present_series(&mut group), expected);
        }
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        update_fails(
            |text| ArpReadings::new().update(text, &mut SampleGroup::new("arp", 3, 1000)),
            &[
                ("", 0, "empty file"),
                ("192.0.2.1\n", 1, "expected the header of the ARP table"),
                (
                    &format!("{HEADING}192.0.2.1 0x1\n"),
                    2,
                    "expected an address and its interface",
                ),
            ],
        );
    }
}
