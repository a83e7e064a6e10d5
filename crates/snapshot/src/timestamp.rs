//! Timestamps with milliseconds, formatted as RFC 3339 in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// Milliseconds since the UNIX epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn now() -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp(now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Formats as `2026-03-04T05:06:07.089Z`.
    pub fn rfc3339(self) -> String {
        format!("{:.3}", self.instant())
    }

    /// Formats as `20260304T050607.089Z`, for file names.
    pub fn compact_rfc3339(self) -> String {
        self.instant().strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
    }

    fn instant(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::MAX)
    }

    /// Converts a Windows file time: ticks of 100 ns since 1601.
    pub(crate) fn from_windows_ticks(ticks: u64) -> Option<Timestamp> {
        const TO_1970: u64 = 116_444_736_000_000_000;
        let millis = ticks.checked_sub(TO_1970)? / 10_000;
        // Times after the year 9999 are malformed.
        (millis < 253_402_300_800_000).then_some(Timestamp(i64::try_from(millis).ok()?))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_in_utc() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_794_775_476_520, "2026-11-15T20:44:36.520Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(millis).rfc3339(), text);
        }
        assert_eq!(
            Timestamp(951_782_400_001).compact_rfc3339(),
            "20000229T000000.001Z"
        );
    }

    #[test]
    fn windows_ticks_count_from_1601() {
        let moment = Timestamp::from_windows_ticks(133_485_408_001_234_567);
        assert_eq!(moment.map(|m| m.0), Some(1_704_067_200_123));
        assert_eq!(Timestamp::from_windows_ticks(1), None);
        assert_eq!(Timestamp::from_windows_ticks(u64::MAX), None);
    }
}
