//! Parses TZif files. Malformed input yields `None`, never a panic.

use super::TimeZone;
use super::posix_rule::{PosixTzRule, check_offset};

const HEADER_BYTES: usize = 44;
/// Far more than any zone has.
const TRANSITIONS_MAX: usize = 10_000;

struct TzifHeader {
    version: u8,
    is_ut: usize,
    is_standard: usize,
    leaps: usize,
    transitions: usize,
    local_time_types: usize,
    designation_bytes: usize,
}

/// Consumes bytes from the front; `None` if too few are left.
struct TzifReader<'a>(&'a [u8]);

impl<'a> TzifReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<i64> {
        let bytes = self.take(width)?;
        Some(match width {
            4 => i64::from(i32::from_be_bytes(bytes.try_into().ok()?)),
            _ => i64::from_be_bytes(bytes.try_into().ok()?),
        })
    }
}

pub(super) fn parse(bytes: &[u8]) -> Option<TimeZone> {
    let mut bytes = TzifReader(bytes);
    let header = read_header(&mut bytes)?;
    if header.version == 0 {
        return read_body(&mut bytes, &header, 4);
    }
    // The same data follows with 64-bit times, and then a rule for later times.
    bytes.take(body_bytes(&header, 4)?)?;
    let header = read_header(&mut bytes)?;
    let mut zone = read_body(&mut bytes, &header, 8)?;
    let footer = std::str::from_utf8(bytes.0).ok()?;
    let text = footer.strip_prefix('\n')?.split('\n').next()?;
    if !text.is_empty() {
        zone.rule = Some(PosixTzRule::parse(text)?);
    }
    Some(zone)
}

fn read_header(bytes: &mut TzifReader<'_>) -> Option<TzifHeader> {
    let head = bytes.take(HEADER_BYTES)?;
    if !head.starts_with(b"TZif") {
        return None;
    }
    let mut counts = TzifReader(&head[20..]);
    let mut count = || usize::try_from(counts.number(4)?).ok();
    let header = TzifHeader {
        version: head[4],
        is_ut: count()?,
        is_standard: count()?,
        leaps: count()?,
        transitions: count()?,
        local_time_types: count()?,
        designation_bytes: count()?,
    };
    (header.transitions <= TRANSITIONS_MAX).then_some(header)
}

fn body_bytes(header: &TzifHeader, width: usize) -> Option<usize> {
    let parts = [
        (header.transitions, width + 1),
        (header.local_time_types, 6),
        (header.designation_bytes, 1),
        (header.leaps, width + 4),
        (header.is_standard, 1),
        (header.is_ut, 1),
    ];
    parts.iter().try_fold(0usize, |sum, (count, size)| {
        sum.checked_add(count.checked_mul(*size)?)
    })
}

fn read_body(bytes: &mut TzifReader<'_>, header: &TzifHeader, width: usize) -> Option<TimeZone> {
    let mut body = TzifReader(bytes.take(body_bytes(header, width)?)?);
    let times: Vec<i64> = (0..header.transitions)
        .map(|_| body.number(width))
        .collect::<Option<_>>()?;
    let numbers = body.take(header.transitions)?;
    let mut offsets = Vec::new();
    for _ in 0..header.local_time_types {
        offsets.push(body.number(4)?);
        body.take(2)?;
    }
    if !times.is_sorted() || offsets.iter().any(|offset| check_offset(*offset).is_none()) {
        return None;
    }
    let changes = times
        .into_iter()
        .zip(numbers)
        .map(|(time, number)| Some((time, *offsets.get(usize::from(*number))?)))
        .collect::<Option<_>>()?;
    Some(TimeZone {
        transitions: changes,
        initial_offset: *offsets.first()?,
        rule: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two offsets, one change, with or without the 64-bit part and a rule.
    fn file(version: u8, rule: &str) -> Vec<u8> {
        let part = |version: u8, width: usize| {
            let mut bytes = b"TZif".to_vec();
            bytes.push(version);
            bytes.extend([0; 15]);
            for count in [0u32, 0, 0, 1, 2, 8] {
                bytes.extend(count.to_be_bytes());
            }
            match width {
                4 => bytes.extend(1_000_000i32.to_be_bytes()),
                _ => bytes.extend(1_000_000i64.to_be_bytes()),
            }
            bytes.push(1);
            for offset in [-3_600i32, 7_200] {
                bytes.extend(offset.to_be_bytes());
                bytes.extend([0, 0]);
            }
            bytes.extend(b"ONE\0TWO\0");
            bytes
        };
        let mut bytes = part(version, 4);
        if version > 0 {
            bytes.extend(part(version, 8));
            bytes.extend(format!("\n{rule}\n").bytes());
        }
        bytes
    }

    #[test]
    fn reads_both_versions() {
        for bytes in [file(0, ""), file(b'2', ""), file(b'3', "TWO-2")] {
            let zone = parse(&bytes).expect("a zone");
            assert_eq!(zone.offset(999_999), -3_600);
            assert_eq!(zone.offset(1_000_000), 7_200);
            assert_eq!(zone.offset(4_000_000_000), 7_200);
        }
        let zone = parse(&file(b'2', "TRI-3")).expect("a zone");
        assert_eq!(
            zone.offset(1_000_001),
            10_800,
            "after the last change the rule counts"
        );
    }

    #[test]
    fn damage_is_noticed() {
        let whole = file(b'2', "TWO-2");
        for len in 0..whole.len() - 8 {
            assert_eq!(parse(&whole[..len]), None, "cut at {len}");
        }
        assert_eq!(parse(&file(b'2', "nonsense,")), None);
        let mut wrong = whole.clone();
        wrong[32..36].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(parse(&wrong), None, "a count beyond all reason");
    }
}
