//! Time zones, read from the zone files of the system (TZif, RFC 9636). A bundled database would become outdated with
//! every change of the rules.

mod posix_rule;
mod tzif;

use std::path::Path;

use crate::error::OpentsdbError;
use pegel_metric::civil::DAY_SECONDS;
use posix_rule::PosixTzRule;

const ZONEINFO_DIR: &str = "/usr/share/zoneinfo";
/// The largest file today has 3.5 kB.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The offset of local time from UTC, at any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone {
    /// The UTC second of each change, and the offset from then on, in seconds ahead of UTC.
    transitions: Vec<(i64, i64)>,
    /// Applies before the first change.
    initial_offset: i64,
    /// Applies after the last change.
    rule: Option<PosixTzRule>,
}

impl TimeZone {
    pub fn utc() -> TimeZone {
        TimeZone {
            transitions: Vec::new(),
            initial_offset: 0,
            rule: None,
        }
    }

    /// Loads a zone by its name, such as `Europe/Berlin`.
    pub fn from_name(name: &str) -> Result<TimeZone, OpentsdbError> {
        let root = std::env::var("TZDIR");
        TimeZone::from_dir(Path::new(root.as_deref().unwrap_or(ZONEINFO_DIR)), name)
    }

    fn from_dir(root: &Path, name: &str) -> Result<TimeZone, OpentsdbError> {
        if matches!(name, "" | "UTC" | "GMT" | "Z" | "Etc/UTC") {
            return Ok(TimeZone::utc());
        }
        let unknown = || OpentsdbError::bad_request(format!("Invalid timezone name: {name}"));
        let is_plain = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte))
        };
        // Prevents path traversal: a name resolves only below `root`.
        if name.len() > 64 || !name.split('/').all(is_plain) {
            return Err(unknown());
        }
        let path = root.join(name);
        let is_small = std::fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.len() <= FILE_BYTES_MAX);
        let bytes = is_small.then(|| std::fs::read(&path).ok()).flatten();
        let zone = bytes.and_then(|bytes| tzif::parse(&bytes));
        zone.ok_or_else(|| {
            unknown().with_details(format!(
                "this node has no such zone below {}",
                root.display()
            ))
        })
    }

    /// Parses a zone file; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<TimeZone> {
        tzif::parse(bytes)
    }

    /// Returns how many seconds local time is ahead of UTC at this UTC second.
    pub fn offset(&self, utc: i64) -> i64 {
        let after = self.transitions.partition_point(|(from, _)| *from <= utc);
        match (&self.rule, after.checked_sub(1)) {
            (Some(rule), _) if after == self.transitions.len() => rule.offset(utc),
            (_, Some(last)) => self.transitions[last].1,
            (_, None) => self.initial_offset,
        }
    }

    /// Returns the first UTC second with this local time. If clocks skip it, returns the moment of the skip.
    pub fn local_to_utc(&self, local: i64) -> i64 {
        let before = self.offset(local.saturating_sub(DAY_SECONDS));
        let after = self.offset(local.saturating_add(DAY_SECONDS));
        let [first, second] = [local - before.max(after), local - before.min(after)];
        let fits = |utc: &i64| utc + self.offset(*utc) == local;
        [first, second]
            .into_iter()
            .find(fits)
            .unwrap_or(local - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pegel_metric::civil::days_of;

    fn utc(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        days_of(year, month, day) * DAY_SECONDS + hour * 3_600 + minute * 60
    }

    fn berlin() -> TimeZone {
        TimeZone {
            transitions: Vec::new(),
            initial_offset: 3_600,
            rule: PosixTzRule::parse("CET-1CEST,M3.5.0,M10.5.0/3"),
        }
    }

    #[test]
    fn local_time_is_found_on_both_sides_of_a_change() {
        let zone = berlin();
        // 2024: summer time from 31 March 01:00 UTC to 27 October 01:00 UTC.
        for (at, expected) in [
            (utc(2024, 3, 31, 0, 59), 3_600),
            (utc(2024, 3, 31, 1, 0), 7_200),
            (utc(2024, 10, 27, 0, 59), 7_200),
            (utc(2024, 10, 27, 1, 0), 3_600),
        ] {
            assert_eq!(zone.offset(at), expected);
        }
        assert_eq!(
            zone.local_to_utc(utc(2024, 7, 1, 0, 0)),
            utc(2024, 6, 30, 22, 0),
            "summer"
        );
        assert_eq!(
            zone.local_to_utc(utc(2024, 3, 31, 2, 30)),
            utc(2024, 3, 31, 1, 30),
            "a local time that is skipped counts on from before the skip"
        );
        assert_eq!(
            zone.local_to_utc(utc(2024, 10, 27, 2, 30)),
            utc(2024, 10, 27, 0, 30),
            "of two the first"
        );
    }

    #[test]
    fn only_names_below_the_directory_are_looked_up() {
        let dir = pegel_testkit::TempDir::new();
        std::fs::write(dir.join("Secret"), b"not a zone").expect("written");
        std::fs::create_dir(dir.join("Area")).expect("made");
        for name in [
            "../Secret",
            "/etc/passwd",
            "Area",
            "Area/../Secret",
            "No/Such",
            "Secret",
            "a b",
            "x\0y",
        ] {
            let problem = TimeZone::from_dir(dir.path(), name).expect_err(name);
            assert_eq!(problem.status(), 400);
            assert_eq!(
                problem.to_string(),
                format!("Invalid timezone name: {name}")
            );
        }
        assert_eq!(
            TimeZone::from_dir(dir.path(), "UTC").expect("known"),
            TimeZone::utc()
        );
    }

    #[test]
    fn the_systems_files_say_what_is_known() {
        if !Path::new(ZONEINFO_DIR).join("America/New_York").exists() {
            return;
        }
        let york = TimeZone::from_dir(Path::new(ZONEINFO_DIR), "America/New_York").expect("a zone");
        for (at, hours) in [
            (utc(2023, 3, 12, 6, 59), -5),
            (utc(2023, 3, 12, 7, 0), -4),
            (utc(2023, 11, 5, 5, 59), -4),
            (utc(2023, 11, 5, 6, 0), -5),
            (utc(2060, 7, 1, 0, 0), -4),
        ] {
            assert_eq!(york.offset(at), hours * 3_600);
        }
        let kabul = TimeZone::from_dir(Path::new(ZONEINFO_DIR), "Asia/Kabul").expect("a zone");
        assert_eq!(kabul.offset(utc(2024, 1, 1, 0, 0)), 16_200);
    }
}
