//! The POSIX rule at the end of a zone file, for times after its last change: `CET-1CEST,M3.5.0,M10.5.0/3`.

use pegel_metric::civil::{DAY_SECONDS, date_of, days_of, is_leap, weekday_of};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PosixTzRule {
    standard: i64,
    daylight_saving: Option<DaylightSaving>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DaylightSaving {
    offset: i64,
    begin: Transition,
    end: Transition,
}

/// A day of the year and the seconds of local time after its midnight.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Transition {
    day: TransitionDay,
    seconds: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TransitionDay {
    /// 1 to 365; 29 February is never counted.
    Julian(i64),
    /// From 0, with leap days.
    Ordinal(i64),
    /// Month, week (5 is the last one), weekday (0 is Sunday).
    Week(i64, i64, i64),
}

impl PosixTzRule {
    pub fn parse(text: &str) -> Option<PosixTzRule> {
        let mut rest = text;
        take_name(&mut rest)?;
        // The text gives the offset that must be added to local time to get UTC.
        let standard = check_offset(-take_time(&mut rest)?)?;
        if rest.is_empty() {
            return Some(PosixTzRule {
                standard,
                daylight_saving: None,
            });
        }
        take_name(&mut rest)?;
        let offset = if rest.starts_with(',') {
            standard + 3_600
        } else {
            check_offset(-take_time(&mut rest)?)?
        };
        let (begin, end) = rest.strip_prefix(',')?.split_once(',')?;
        let summer = DaylightSaving {
            offset,
            begin: Transition::parse(begin)?,
            end: Transition::parse(end)?,
        };
        Some(PosixTzRule {
            standard,
            daylight_saving: Some(summer),
        })
    }

    pub fn offset(&self, utc: i64) -> i64 {
        let Some(summer) = &self.daylight_saving else {
            return self.standard;
        };
        let year = date_of((utc + self.standard).div_euclid(DAY_SECONDS)).0;
        let begin = summer.begin.local_seconds(year) - self.standard;
        let end = summer.end.local_seconds(year) - summer.offset;
        // In the southern hemisphere summer spans the turn of the year.
        let is_summer = if begin < end {
            begin <= utc && utc < end
        } else {
            !(end <= utc && utc < begin)
        };
        if is_summer {
            summer.offset
        } else {
            self.standard
        }
    }
}

impl Transition {
    fn parse(text: &str) -> Option<Transition> {
        let (day, time) = match text.split_once('/') {
            Some((day, time)) => (day, Some(time)),
            None => (text, None),
        };
        let within =
            |number: i64, low: i64, high: i64| (low..=high).contains(&number).then_some(number);
        let day = if let Some(parts) = day.strip_prefix('M') {
            let mut parts = parts.split('.').map(|part| part.parse::<i64>().ok());
            let week = TransitionDay::Week(
                within(parts.next()??, 1, 12)?,
                within(parts.next()??, 1, 5)?,
                within(parts.next()??, 0, 6)?,
            );
            if parts.next().is_some() {
                return None;
            }
            week
        } else if let Some(number) = day.strip_prefix('J') {
            TransitionDay::Julian(within(number.parse().ok()?, 1, 365)?)
        } else {
            TransitionDay::Ordinal(within(day.parse().ok()?, 0, 365)?)
        };
        let seconds = match time {
            Some(mut time) => {
                let seconds = take_time(&mut time)?;
                time.is_empty().then_some(seconds)?
            }
            None => 2 * 3_600,
        };
        Some(Transition { day, seconds })
    }

    fn local_seconds(&self, year: i64) -> i64 {
        let first = days_of(year, 1, 1);
        let day = match self.day {
            TransitionDay::Julian(number) => {
                let leap_day = i64::from(is_leap(year) && number >= 60);
                first + number - 1 + leap_day
            }
            TransitionDay::Ordinal(number) => first + number,
            TransitionDay::Week(month, week, weekday) => {
                let first = days_of(year, month, 1);
                let day = first + (weekday - weekday_of(first)).rem_euclid(7) + 7 * (week - 1);
                if day >= days_of(year, month + 1, 1) {
                    day - 7
                } else {
                    day
                }
            }
        };
        day * DAY_SECONDS + self.seconds
    }
}

/// Rejects offsets that no time zone has.
pub(super) fn check_offset(offset: i64) -> Option<i64> {
    (-93_600..=93_600).contains(&offset).then_some(offset)
}

/// Consumes a zone name: letters, or anything in angle brackets.
fn take_name(rest: &mut &str) -> Option<()> {
    let end = match rest.strip_prefix('<') {
        Some(quoted) => quoted.find('>')? + 2,
        None => rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len()),
    };
    *rest = &rest[end..];
    (end >= 3).then_some(())
}

/// Consumes `[+-]hh[:mm[:ss]]` and returns it in seconds.
fn take_time(rest: &mut &str) -> Option<i64> {
    let (sign, text) = match rest.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, rest.strip_prefix('+').unwrap_or(rest)),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ':')
        .unwrap_or(text.len());
    let mut seconds = 0;
    let mut unit = 3_600;
    for part in text[..end].split(':') {
        if part.len() > 3 || unit == 0 {
            return None;
        }
        seconds += part.parse::<i64>().ok()? * unit;
        unit /= 60;
    }
    *rest = &text[end..];
    Some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(year: i64, month: i64, day: i64) -> i64 {
        days_of(year, month, day) * DAY_SECONDS
    }

    #[test]
    fn north_south_and_without_summer() {
        let york = PosixTzRule::parse("EST5EDT,M3.2.0,M11.1.0").expect("a rule");
        assert_eq!(york.offset(day(2024, 1, 15)), -5 * 3_600);
        assert_eq!(york.offset(day(2024, 7, 15)), -4 * 3_600);
        let sydney = PosixTzRule::parse("AEST-10AEDT,M10.1.0,M4.1.0/3").expect("a rule");
        assert_eq!(sydney.offset(day(2024, 1, 15)), 11 * 3_600);
        assert_eq!(sydney.offset(day(2024, 7, 15)), 10 * 3_600);
        let india = PosixTzRule::parse("<+0530>-5:30").expect("a rule");
        assert_eq!(india.offset(day(2024, 7, 15)), 19_800);
        let days = PosixTzRule::parse("AAA1BBB,J60,300/1:30").expect("a rule");
        assert_eq!(
            days.daylight_saving
                .as_ref()
                .map(|summer| summer.begin.local_seconds(2024)),
            Some(day(2024, 3, 1) + 7_200),
            "day 60 is 1 March in every year"
        );
    }

    #[test]
    fn refuses_what_is_no_rule() {
        for text in [
            "",
            "A",
            "AB1",
            "CET",
            "CET-1CEST",
            "CET-1CEST,M3.5.0",
            "CET-1CEST,M13.5.0,M10.5.0",
            "CET-1CEST,M3.5,M10.5.0",
            "<AB",
            "CET-1:2:3:4",
            "CET99",
            "CET-1CEST,M3.5.0/x,M10.5.0",
        ] {
            assert_eq!(PosixTzRule::parse(text), None, "{text}");
        }
    }
}
