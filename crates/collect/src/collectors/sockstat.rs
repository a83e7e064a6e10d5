//! Sockets in use by protocol, from `/proc/net/sockstat` and `/proc/net/sockstat6`.

use pegel_metric::{Family, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::{families, keyed_family};
use crate::file_collector::{FileParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    COUNT Gauge 2 "node_sockstat_<key>" "" "Number of sockets of a protocol in a state, or their memory in pages.";
    BYTES Gauge 2 "node_sockstat_<key>_bytes" "bytes" "Memory of the socket buffers of a protocol, in bytes.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("sockstat", Tier::FiveSeconds, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    open_files(["proc/net/sockstat", "proc/net/sockstat6"].map(|path| {
        let readings = SockstatReadings {
            page_bytes: context.host.page_bytes as f64,
            protocols: CursorMap::new(),
        };
        parsed_file(context, path, ReadMode::SingleRead, readings)
    }))
}

#[derive(Debug)]
struct SockstatReadings {
    page_bytes: f64,
    protocols: CursorMap<CursorMap<SockstatField>>,
}

#[derive(Debug)]
struct SockstatField {
    count: Slot,
    /// Only for the field `mem`, which the kernel counts in pages.
    bytes: Option<Slot>,
}

impl FileParser for SockstatReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.protocols.begin_pass();
        for (number, line) in non_empty_lines(text)? {
            let malformed = ProcParseError::at_line(number, "expected the sockets of a protocol");
            let mut words = Words(line);
            let name = words.next().and_then(|name| name.strip_suffix(b":"));
            let name = name.ok_or(malformed.clone())?;
            let fields = self.protocols.entry(name, || Ok(CursorMap::new()))?;
            fields.begin_pass();
            while let Some(key) = words.next() {
                let value = words.next().and_then(parse_u64).ok_or(malformed.clone())? as f64;
                let field = fields.entry(key, || SockstatField::declare(name, key, out))?;
                out.set(field.count, value);
                if let Some(bytes) = field.bytes {
                    out.set(bytes, value * self.page_bytes);
                }
            }
            fields.sweep(|field| field.retire(out));
        }
        self.protocols.sweep(|mut fields| {
            fields.begin_pass();
            fields.sweep(|field| field.retire(out));
        });
        Ok(())
    }
}

impl SockstatField {
    fn declare(
        protocol: &[u8],
        key: &[u8],
        out: &mut SampleGroup,
    ) -> Result<SockstatField, ProcParseError> {
        let (protocol, key) = (
            String::from_utf8_lossy(protocol),
            String::from_utf8_lossy(key),
        );
        let name = format!("{protocol}_{key}");
        let mut declare =
            |base: &Family, help: String| out.declare(&keyed_family(base, &name, help), &[]);
        let count = declare(
            &COUNT,
            format!("Field {key} of {protocol} in /proc/net/sockstat."),
        )?;
        let bytes = match &*key {
            "mem" => Some(declare(
                &BYTES,
                format!("Memory of the buffers of {protocol} sockets, in bytes."),
            )?),
            _ => None,
        };
        Ok(SockstatField { count, bytes })
    }

    fn retire(self, out: &mut SampleGroup) {
        out.retire(self.count);
        if let Some(bytes) = self.bytes {
            out.retire(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn readings() -> SockstatReadings {
        SockstatReadings {
            page_bytes: 4096.0,
            protocols: CursorMap::new(),
        }
    }

    #[test]
    fn pages_are_also_published_in_bytes() {
        let (mut readings, mut group) = (readings(), SampleGroup::new("sockstat", 3, 1000));
        let text = b"sockets: used 17\nTCP: inuse 1 mem 2\n";
        readings.update(text, &mut group).expect("valid");
        assert_eq!(
            present_series(&mut group),
            [
                "node_sockstat_sockets_used 17",
                "node_sockstat_TCP_inuse 1",
                "node_sockstat_TCP_mem 2",
                "node_sockstat_TCP_mem_bytes 8192",
            ]
        );
        group.clear();
        readings
            .update(b"TCP: inuse 3\n", &mut group)
            .expect("valid");
        assert_eq!(present_series(&mut group), ["node_sockstat_TCP_inuse 3"]);
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected the sockets of a protocol";
        update_fails(
            |text| readings().update(text, &mut SampleGroup::new("sockstat", 3, 1000)),
            &[
                ("", 0, "empty file"),
                ("TCP: inuse 1\nUDP: inu", 2, "the last line is cut off"),
                ("TCP: inuse\n", 1, what),
                ("TCP: inuse -1\n", 1, what),
                ("TCP inuse 1\n", 1, what),
                ("\n", 1, what),
            ],
        );
    }
}
