//! Lines of cgroup files that are more than a key and a number: I/O by device, and pressure.

use crate::{Words, parse_decimal, parse_u64};

/// A line of `io.stat`: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoStatLine<'a> {
    /// The numbers of the device: `8:0`.
    pub device: &'a str,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub writes: Option<u64>,
}

impl<'a> IoStatLine<'a> {
    /// Parses a line without its newline; unknown fields are skipped.
    pub fn parse(line: &'a [u8]) -> Option<IoStatLine<'a>> {
        let mut words = Words(line);
        let mut found = IoStatLine {
            device: std::str::from_utf8(words.next()?).ok()?,
            read_bytes: None,
            written_bytes: None,
            reads: None,
            writes: None,
        };
        for word in words {
            for (field, key) in [
                (&mut found.read_bytes, &b"rbytes="[..]),
                (&mut found.written_bytes, b"wbytes="),
                (&mut found.reads, b"rios="),
                (&mut found.writes, b"wios="),
            ] {
                *field = field.or_else(|| word.strip_prefix(key).and_then(parse_u64));
            }
        }
        Some(found)
    }
}

/// A line of `blkio.throttle.io_service_bytes` and similar files of cgroups v1: `8:0 Read 123`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlkioLine<'a> {
    pub device: &'a str,
    /// `Read`, `Write`, `Sync`, `Async`, `Discard` or `Total`.
    pub kind: &'a [u8],
    pub value: u64,
}

impl<'a> BlkioLine<'a> {
    /// Parses a line without its newline. The last line of a file, the sum, has no device.
    pub fn parse(line: &'a [u8]) -> Option<BlkioLine<'a>> {
        let mut words = Words(line);
        Some(BlkioLine {
            device: std::str::from_utf8(words.next()?).ok()?,
            kind: words.next()?,
            value: parse_u64(words.next()?)?,
        })
    }
}

/// A line of a pressure file: `some avg10=0.00 avg60=0.12 avg300=0.05 total=123`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureLine {
    /// All tasks waited (`full`), not only some.
    pub is_full: bool,
    /// Percent of the time, averaged over 10, 60 and 300 seconds.
    pub averages: [Option<f64>; 3],
    pub total_micros: Option<u64>,
}

impl PressureLine {
    /// Parses a line without its newline; `None` if it is neither of `some` nor of `full`.
    pub fn parse(line: &[u8]) -> Option<PressureLine> {
        let mut words = Words(line);
        let is_full = match words.next()? {
            b"some" => false,
            b"full" => true,
            _ => return None,
        };
        let fields = words;
        let field = |key: &[u8]| fields.clone().find_map(|word| word.strip_prefix(key));
        let averages = [&b"avg10="[..], b"avg60=", b"avg300="];
        Some(PressureLine {
            is_full,
            averages: averages.map(|key| field(key).and_then(parse_decimal)),
            total_micros: field(b"total=").and_then(parse_u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_of_a_device_is_read_in_both_versions() {
        let found = IoStatLine::parse(b"8:0 rbytes=1 wbytes=x rios=3 dbytes=5").expect("a line");
        assert_eq!((found.device, found.read_bytes), ("8:0", Some(1)));
        assert_eq!((found.written_bytes, found.reads), (None, Some(3)));
        assert_eq!(IoStatLine::parse(b""), None);
        let found = BlkioLine::parse(b"8:0 Read 123").expect("a line");
        assert_eq!((found.kind, found.value), (&b"Read"[..], 123));
        assert_eq!(BlkioLine::parse(b"Total 123"), None);
    }

    #[test]
    fn pressure_has_averages_and_a_total() {
        let line = b"full avg10=0.07 avg60=1.00 avg300=x total=42";
        let found = PressureLine::parse(line).expect("a line");
        assert!(found.is_full);
        assert_eq!(found.averages, [Some(0.07), Some(1.0), None]);
        assert_eq!(found.total_micros, Some(42));
        assert_eq!(PressureLine::parse(b"half total=1"), None);
        assert_eq!(PressureLine::parse(b""), None);
    }
}
