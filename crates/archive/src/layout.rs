//! The names of files: `date=2026-11-18/node=n1/points-0000000042-00-0123456789abcdef.parquet`.
//! Readers with support for partitions (pyarrow, DuckDB, Spark) get the columns `date` and `node`
//! from them.

use std::ops::Range;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pegel_metric::Millis;
use pegel_sample_file::{SampleDigest, SampleFileFormat};
use pegel_store::BlockIdentity;

const DAY_MS: Millis = 86_400_000;

/// A day in UTC, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day(i64);

impl Day {
    pub(crate) fn of(time: Millis) -> Day {
        Day(time.div_euclid(DAY_MS))
    }

    pub(crate) fn next(self) -> Day {
        Day(self.0.saturating_add(1))
    }

    /// Returns the times of the day.
    pub(crate) fn window(self) -> Range<Millis> {
        let start = self.0.saturating_mul(DAY_MS);
        start..start.saturating_add(DAY_MS)
    }

    /// Returns the folder of a node's files of this day.
    pub(crate) fn folder(self, node: &str) -> String {
        format!("date={}/node={}", self.text(), escaped(node))
    }

    fn text(self) -> String {
        // No input accepts times beyond the calendar.
        match Timestamp::from_millisecond(self.window().start) {
            Ok(time) => time.to_zoned(TimeZone::UTC).date().to_string(),
            Err(_) => "unknown".to_owned(),
        }
    }
}

/// Returns the name of a file of the continuous archive. Of two rows with the same series and
/// time, the one in the block with the higher number is newer.
pub(crate) fn block_file(
    day: Day,
    node: &str,
    class: &str,
    block: BlockIdentity,
    part: u32,
    digest: SampleDigest,
) -> String {
    let folder = day.folder(node);
    format!(
        "{folder}/{class}-{:010}-{part:02}-{digest}.parquet",
        block.id
    )
}

/// Returns the name of a file of an export.
pub(crate) fn export_file(
    day: Day,
    node: &str,
    start: Millis,
    digest: SampleDigest,
    format: SampleFileFormat,
) -> String {
    let millis = start.rem_euclid(DAY_MS);
    let (hours, minutes, seconds) = (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60);
    let folder = day.folder(node);
    let extension = format.as_str();
    format!("{folder}/export-{hours:02}{minutes:02}{seconds:02}-{digest}.{extension}")
}

/// Escapes characters that a name in a partition cannot contain, as Hive does.
fn escaped(node: &str) -> String {
    let mut text = String::new();
    for byte in node.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(byte.into()),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    // "." and ".." would leave the folder of the day.
    match text.as_str() {
        "" => "unknown".to_owned(),
        "." | ".." => text.replace('.', "%2E"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_day_and_node() {
        for (time, node, expected) in [
            (0, "n1", "date=1970-01-01/node=n1"),
            (-1, "n1", "date=1969-12-31/node=n1"),
            (1_794_959_999_999, "a.b-c_d", "date=2026-11-17/node=a.b-c_d"),
            (
                1_794_960_000_000,
                "x/../y z",
                "date=2026-11-18/node=x%2F..%2Fy%20z",
            ),
            (0, "..", "date=1970-01-01/node=%2E%2E"),
        ] {
            assert_eq!(Day::of(time).folder(node), expected);
        }
        assert!(Day::of(5).window().contains(&86_399_999));
        assert!(!Day::of(5).window().contains(&86_400_000));
    }
}
