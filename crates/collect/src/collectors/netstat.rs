//! Counters of the network protocols, from `/proc/net/snmp`, `/proc/net/netstat` and
//! `/proc/net/snmp6`.
//!
//! Counters that node_exporter publishes by default have level 2, all others level 4. Runs on the
//! sampler's thread.

use pegel_metric::{SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::{families, keyed_family};
use crate::file_collector::{FileParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_signed};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    DEFAULT_FAMILY Unknown 2 "node_netstat_<key>" "" "Protocol counter of /proc/net that dashboards use: segments, datagrams, octets, errors, retransmissions, full listen queues.";
    DETAIL Unknown 4 "node_netstat_<key>" "" "Any other protocol counter of /proc/net.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("netstat", Tier::FiveSeconds, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    let file = |path, readings| parsed_file(context, path, ReadMode::SingleRead, readings);
    open_files([
        file("proc/net/snmp", NetstatReadings::table()),
        file("proc/net/netstat", NetstatReadings::table()),
        file("proc/net/snmp6", NetstatReadings::list()),
    ])
}

/// The two formats in which the kernel prints such counters.
#[derive(Debug)]
enum NetstatReadings {
    /// Pairs of lines: `Tcp: Name …`, then `Tcp: 1 …`.
    Table(CursorMap<ProtocolSlots>),
    /// One line per counter: `Ip6InReceives 11`.
    List(CursorMap<Slot>),
}

#[derive(Debug, Default)]
struct ProtocolSlots {
    heading: Vec<u8>,
    slots: Vec<Slot>,
}

impl NetstatReadings {
    fn table() -> NetstatReadings {
        NetstatReadings::Table(CursorMap::new())
    }

    fn list() -> NetstatReadings {
        NetstatReadings::List(CursorMap::new())
    }
}

impl FileParser for NetstatReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        match self {
            NetstatReadings::Table(protocols) => update_table(protocols, text, out),
            NetstatReadings::List(slots) => update_list(slots, text, out),
        }
    }
}

fn update_table(
    protocols: &mut CursorMap<ProtocolSlots>,
    text: &[u8],
    out: &mut SampleGroup,
) -> Result<(), ProcParseError> {
    protocols.begin_pass();
    let mut lines = non_empty_lines(text)?;
    while let Some((number, heading)) = lines.next() {
        let malformed = |line| ProcParseError::at_line(line, "expected a header and its numbers");
        let name = Words(heading).next().ok_or(malformed(number))?;
        let (number, values) = lines.next().ok_or(malformed(number))?;
        let mut values = Words(values);
        if !name.ends_with(b":") || values.next() != Some(name) {
            return Err(malformed(number));
        }
        let protocol = protocols.entry(name, || Ok(ProtocolSlots::default()))?;
        protocol.set_heading(heading, out)?;
        let mut count = 0;
        for (slot, word) in protocol.slots.iter().zip(&mut values) {
            out.set(*slot, parse_signed(word).ok_or(malformed(number))?);
            count += 1;
        }
        if count != protocol.slots.len() || values.next().is_some() {
            return Err(malformed(number));
        }
    }
    protocols.sweep(|protocol| protocol.slots.into_iter().for_each(|slot| out.retire(slot)));
    Ok(())
}

impl ProtocolSlots {
    /// Declares the columns named in the header. The header hardly ever changes, so an unchanged
    /// one is kept.
    fn set_heading(&mut self, heading: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        if self.heading == heading {
            return Ok(());
        }
        self.slots.drain(..).for_each(|slot| out.retire(slot));
        self.heading.clear();
        let mut words = Words(heading);
        let name = words.next().and_then(|name| name.strip_suffix(b":"));
        let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        for field in words {
            let key = format!("{name}_{}", String::from_utf8_lossy(field));
            self.slots.push(declare(&key, out)?);
        }
        self.heading.extend_from_slice(heading);
        Ok(())
    }
}

fn update_list(
    slots: &mut CursorMap<Slot>,
    text: &[u8],
    out: &mut SampleGroup,
) -> Result<(), ProcParseError> {
    slots.begin_pass();
    for (number, line) in non_empty_lines(text)? {
        let malformed = ProcParseError::at_line(number, "expected a name and a number");
        let mut words = Words(line);
        let name = words.next().ok_or(malformed.clone())?;
        let value = words
            .next()
            .and_then(parse_signed)
            .ok_or(malformed.clone())?;
        let six = name.iter().position(|&byte| byte == b'6');
        let (protocol, field) = name.split_at(six.ok_or(malformed)? + 1);
        let key = || [protocol, b"_", field].concat();
        let slot = slots.entry(name, || declare(&String::from_utf8_lossy(&key()), out))?;
        out.set(*slot, value);
    }
    slots.sweep(|slot| out.retire(slot));
    Ok(())
}

/// Declares the series of a counter. Fails if its name has characters that are not permitted in
/// metric names.
fn declare(key: &str, out: &mut SampleGroup) -> Result<Slot, ProcParseError> {
    let base = if is_default_key(key) {
        &DEFAULT_FAMILY
    } else {
        &DETAIL
    };
    let help = format!("Counter {} of /proc/net.", key.replace('_', " "));
    Ok(out.declare(&keyed_family(base, key, help), &[])?)
}

/// Returns whether node_exporter publishes the counter by default or the dashboard Node Exporter
/// Full uses it.
fn is_default_key(key: &str) -> bool {
    let Some((protocol, field)) = key.split_once('_') else {
        return false;
    };
    if matches!(field, "InErrors" | "InErrs") {
        return true;
    }
    match protocol {
        "Ip" => field == "Forwarding",
        "Ip6" | "IpExt" => matches!(field, "InOctets" | "OutOctets"),
        "Icmp" | "Icmp6" => matches!(field, "InMsgs" | "OutMsgs"),
        "Tcp" => matches!(
            field,
            "ActiveOpens"
                | "PassiveOpens"
                | "InSegs"
                | "OutSegs"
                | "OutRsts"
                | "RetransSegs"
                | "CurrEstab"
                | "MaxConn"
        ),
        "TcpExt" => {
            field.starts_with("Listen")
                || field.starts_with("Syncookies")
                || matches!(
                    field,
                    "TCPSynRetrans" | "TCPTimeouts" | "TCPOFOQueue" | "TCPRcvQDrop"
                )
        }
        "Udp" | "Udp6" => matches!(
            field,
            "InDatagrams" | "OutDatagrams" | "NoPorts" | "RcvbufErrors" | "SndbufErrors"
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    #[test]
    fn a_changed_header_moves_the_columns() {
        let (mut readings, mut group) = (
            NetstatReadings::table(),
            SampleGroup::new("netstat", 4, 1000),
        );
        let cases = [
            ("Tcp: MaxConn X\nTcp: -1 2\n", 2),
            ("Tcp: X MaxConn Y\nTcp: 2 -1 3\nIcmpMsg:\nIcmpMsg:\n", 3),
            ("Tcp: MaxConn X\nTcp: -1 2\n", 2),
        ];
        for (text, count) in cases {
            group.clear();
            readings.update(text.as_bytes(), &mut group).expect("valid");
            let mut found = present_series(&mut group);
            found.sort();
            assert_eq!(found.len(), count);
            assert_eq!(
                found[..2],
                ["node_netstat_Tcp_MaxConn -1", "node_netstat_Tcp_X 2"]
            );
        }
        assert_eq!(group.members().series.len(), 3, "no duplicate series");
    }

    #[test]
    fn the_default_level_excludes_rare_counters() {
        let mut group = SampleGroup::new("netstat", 3, 1000);
        let text = b"TcpExt: ListenDrops ListenOverflows PAWSActive\nTcpExt: 1 2 3\n";
        NetstatReadings::table()
            .update(text, &mut group)
            .expect("valid");
        let text = b"Icmp6InMsgs 4\nIcmp6InCsumErrors 5\nUdp6InErrors\t6\n";
        NetstatReadings::list()
            .update(text, &mut group)
            .expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_netstat_TcpExt_ListenDrops 1",
                "node_netstat_TcpExt_ListenOverflows 2",
                "node_netstat_Icmp6_InMsgs 4",
                "node_netstat_Udp6_InErrors 6",
            ]
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let group = || SampleGroup::new("netstat", 4, 1000);
        let what = "expected a header and its numbers";
        update_fails(
            |text| NetstatReadings::table().update(text, &mut group()),
            &[
                ("", 0, "empty file"),
                ("Tcp: A\nTcp: 1", 2, "the last line is cut off"),
                ("Tcp: A\n", 1, what),
                ("Tcp: A\nUdp: 1\n", 2, what),
                ("Tcp: A B\nTcp: 1\n", 2, what),
                ("Tcp: A\nTcp: 1 2\n", 2, what),
                ("Tcp: A\nTcp: x\n", 2, what),
                ("Tcp A\nTcp 1\n", 2, what),
                ("\n\n", 1, what),
            ],
        );
        let what = "expected a name and a number";
        update_fails(
            |text| NetstatReadings::list().update(text, &mut group()),
            &[("Ip6InMsgs\n", 1, what), ("IpInMsgs 1\n", 1, what)],
        );
    }
}
