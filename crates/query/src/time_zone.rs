//! Finds time zones by name: in the zone files of the system (`$TZDIR`, `/usr/share/zoneinfo`),
//! which follow changes of the rules, and on nodes without them in the copy in the binary.

use jiff::tz::TimeZone;

use crate::error::OpentsdbError;

/// Loads a zone by its name, such as `Europe/Berlin`. The empty name is UTC.
pub(crate) fn find_time_zone(name: &str) -> Result<TimeZone, OpentsdbError> {
    if matches!(name, "" | "UTC" | "GMT" | "Z" | "Etc/UTC") {
        return Ok(TimeZone::UTC);
    }
    // The name is looked up in a list of known names: it cannot reach files outside the directory.
    TimeZone::get(name).map_err(|_| {
        OpentsdbError::bad_request(format!("Invalid timezone name: {name}"))
            .with_details("this node has no such zone in /usr/share/zoneinfo or $TZDIR")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use jiff::civil::datetime;

    #[test]
    fn offsets_follow_daylight_saving() {
        let new_york = find_time_zone("America/New_York").expect("a zone");
        for (utc, hours) in [
            ("2023-03-12T06:59Z", -5),
            ("2023-03-12T07:00Z", -4),
            ("2023-11-05T05:59Z", -4),
            ("2023-11-05T06:00Z", -5),
            ("2060-07-01T00:00Z", -4),
        ] {
            let utc: Timestamp = utc.parse().expect("a time");
            assert_eq!(new_york.to_offset(utc).seconds(), hours * 3_600, "{utc}");
        }
        let kabul = find_time_zone("Asia/Kabul").expect("a zone");
        assert_eq!(kabul.to_offset(Timestamp::UNIX_EPOCH).seconds(), 16_200);
    }

    #[test]
    fn local_time_is_found_on_both_sides_of_a_change() {
        let berlin = find_time_zone("Europe/Berlin").expect("a zone");
        for (local, utc, why) in [
            (
                datetime(2024, 7, 1, 0, 0, 0, 0),
                "2024-06-30T22:00:00Z",
                "summer",
            ),
            (
                datetime(2024, 3, 31, 2, 30, 0, 0),
                "2024-03-31T01:30:00Z",
                "a skipped local time counts on from before the skip",
            ),
            (
                datetime(2024, 10, 27, 2, 30, 0, 0),
                "2024-10-27T00:30:00Z",
                "of two, the first",
            ),
        ] {
            let found = berlin.to_timestamp(local).expect("in range");
            assert_eq!(found.to_string(), utc, "{why}");
        }
    }

    #[test]
    fn only_known_names_are_found() {
        for name in [
            "../zoneinfo/Europe/Berlin",
            "/etc/passwd",
            "Europe",
            "Europe/../Asia/Kabul",
            "No/Such",
            "tzdata.zi",
            "a b",
            "x\0y",
        ] {
            let problem = find_time_zone(name).expect_err(name);
            assert_eq!(problem.status(), 400);
            assert_eq!(
                problem.to_string(),
                format!("Invalid timezone name: {name}")
            );
        }
        assert_eq!(find_time_zone("UTC").expect("known"), TimeZone::UTC);
    }
}
