//! Number of entries in the ARP table per interface, from `/proc/net/arp`.

use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::file_collector::{FileParser, open_files};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, label_value, non_empty_lines};
use crate::{CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome, Tier};

static ENTRIES: Family = Family::new(
    "node_arp_entries",
    MetricKind::Gauge,
    "",
    2,
    "Number of entries in the ARP table, by interface.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "arp",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &[&ENTRIES],
    open,
};

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("net/arp");
    open_files([(path, ReadMode::UntilEof, ArpReadings::new())])
}

#[derive(Debug)]
struct ArpReadings {
    family: Arc<Family>,
    pass: u64,
    devices: CursorMap<ArpDevice>,
}

#[derive(Debug)]
struct ArpDevice {
    slot: Slot,
    count: u64,
    /// The pass in which `count` was last updated; an older count starts again at 1.
    pass: u64,
}

impl ArpReadings {
    fn new() -> ArpReadings {
        ArpReadings {
            family: Arc::new(ENTRIES.clone()),
            pass: 0,
            devices: CursorMap::new(),
        }
    }
}

impl FileParser for ArpReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let mut lines = non_empty_lines(text)?;
        if lines
            .next()
            .is_none_or(|(_, line)| !line.starts_with(b"IP "))
        {
            return Err(ProcParseError::Malformed {
                line: 1,
                what: "expected the header of the ARP table",
            });
        }
        self.pass += 1;
        let (pass, family) = (self.pass, &self.family);
        self.devices.begin_pass();
        for (number, line) in lines {
            let malformed = ProcParseError::Malformed {
                line: number,
                what: "expected an address and its interface",
            };
            let name = Words(line).nth(5).ok_or(malformed)?;
            let device = self.devices.entry(name, || {
                let slot = out.declare(family, &[("device", &label_value(name))])?;
                Ok(ArpDevice {
                    slot,
                    count: 0,
                    pass,
                })
            })?;
            device.count = if device.pass == pass {
                device.count + 1
            } else {
                1
            };
            device.pass = pass;
            out.set(device.slot, device.count as f64);
        }
        self.devices.sweep(|device| out.retire(device.slot));
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
                ("", 0, "the file is empty"),
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
