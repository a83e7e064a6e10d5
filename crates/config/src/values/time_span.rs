//! Durations and sample intervals.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::number_and_unit;

/// A duration: `500ms`, `0.5s`, `5m`, `2h`, `2d`; a plain number means seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSpan {
    text: String,
    duration: Duration,
}

const ACCEPTS: &str = "a length of time such as 500ms, 0.5s, 5m, 2h, 2d; a plain number is seconds";
const UNITS: &[(&str, f64)] = &[
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
];
/// 100 years: more than any use requires, and far from overflowing milliseconds.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

impl TimeSpan {
    pub fn seconds(seconds: u64) -> TimeSpan {
        let text = [(86_400, "d"), (3600, "h"), (60, "m")]
            .into_iter()
            .find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit))
            .map_or_else(
                || format!("{seconds}s"),
                |(unit, name)| format!("{}{name}", seconds / unit),
            );
        TimeSpan {
            text,
            duration: Duration::from_secs(seconds),
        }
    }

    pub fn duration(&self) -> Duration {
        self.duration
    }
}

impl From<Duration> for TimeSpan {
    fn from(duration: Duration) -> TimeSpan {
        if duration.subsec_nanos() == 0 {
            return TimeSpan::seconds(duration.as_secs());
        }
        TimeSpan {
            text: format!("{}us", duration.as_micros()),
            duration,
        }
    }
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeSpan, String> {
        let wrong = || format!("\"{text}\" is not a length of time");
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let factor = match unit {
            "" => 1.0,
            unit => {
                UNITS
                    .iter()
                    .find(|(name, _)| *name == unit)
                    .ok_or_else(wrong)?
                    .1
            }
        };
        let seconds = number * factor;
        if seconds <= 0.0 {
            return Err(format!("\"{text}\" is not greater than 0"));
        }
        if seconds > SECONDS_MAX {
            return Err(format!("\"{text}\" is more than 100 years"));
        }
        Ok(TimeSpan {
            text: text.trim().to_owned(),
            duration: Duration::from_secs_f64(seconds),
        })
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

crate::text_setting!(TimeSpan, ACCEPTS);

/// A duration, or 0 for never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionalTimeSpan(Option<TimeSpan>);

impl OptionalTimeSpan {
    pub const NEVER: OptionalTimeSpan = OptionalTimeSpan(None);

    pub fn duration(&self) -> Option<Duration> {
        self.0.as_ref().map(TimeSpan::duration)
    }
}

impl From<TimeSpan> for OptionalTimeSpan {
    fn from(span: TimeSpan) -> OptionalTimeSpan {
        OptionalTimeSpan(Some(span))
    }
}

impl FromStr for OptionalTimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<OptionalTimeSpan, String> {
        match number_and_unit(text) {
            Some((0.0, _)) => Ok(OptionalTimeSpan::NEVER),
            _ => text.parse().map(|span| OptionalTimeSpan(Some(span))),
        }
    }
}

impl fmt::Display for OptionalTimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(span) => span.fmt(f),
            None => f.write_str("0"),
        }
    }
}

crate::text_setting!(OptionalTimeSpan, format!("0, or {ACCEPTS}"));

/// The time between two samples: 1 ms to 24 h, in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleInterval(TimeSpan);

impl SampleInterval {
    const MIN: Duration = Duration::from_millis(1);
    const MAX: Duration = Duration::from_secs(24 * 3600);

    pub fn duration(&self) -> Duration {
        self.0.duration
    }

    pub fn from_millis(millis: u64) -> SampleInterval {
        let duration =
            Duration::from_millis(millis).clamp(SampleInterval::MIN, SampleInterval::MAX);
        SampleInterval(TimeSpan {
            text: format!("{}ms", duration.as_millis()),
            duration,
        })
    }
}

impl FromStr for SampleInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<SampleInterval, String> {
        let span: TimeSpan = text.parse()?;
        if span.duration < SampleInterval::MIN || span.duration > SampleInterval::MAX {
            return Err(format!(
                "\"{text}\" is not between 1ms (1000 times a second) and 24h"
            ));
        }
        // Timestamps of samples are whole milliseconds: 1500us would drift against them.
        if !span.duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(format!("\"{text}\" is not a whole number of milliseconds"));
        }
        Ok(SampleInterval(span))
    }
}

impl fmt::Display for SampleInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::text_setting!(
    SampleInterval,
    "the time between two samples, 1ms to 24h, such as 500ms or 5s; a plain number is seconds"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never() {
        for (text, seconds) in [("0", None), ("0s", None), ("5m", Some(300))] {
            let span: OptionalTimeSpan = text.parse().expect("valid");
            assert_eq!(span.duration().map(|duration| duration.as_secs()), seconds);
        }
        let error = "-1s".parse::<OptionalTimeSpan>();
        assert!(error.is_err());
    }

    #[test]
    fn reads_units_and_plain_seconds() {
        for (text, millis) in [
            ("500ms", 500),
            ("0.5", 500),
            ("5m", 300_000),
            ("2d", 172_800_000),
            ("1.5 h", 5_400_000),
            ("300", 300_000),
            ("1w", 604_800_000),
        ] {
            let span: TimeSpan = text.parse().expect("valid");
            assert_eq!(
                (span.duration().as_millis(), span.to_string()),
                (millis, text.to_owned())
            );
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for (text, message) in [
            ("fast", "\"fast\" is not a length of time"),
            ("5 minutes", "\"5 minutes\" is not a length of time"),
            ("", "\"\" is not a length of time"),
            ("-5m", "\"-5m\" is not greater than 0"),
            ("0", "\"0\" is not greater than 0"),
            ("inf", "\"inf\" is not a length of time"),
            ("1e300", "\"1e300\" is not a length of time"),
            ("6000w", "\"6000w\" is more than 100 years"),
            ("5,5s", "\"5,5s\" is not a length of time"),
        ] {
            assert_eq!(text.parse::<TimeSpan>(), Err(message.to_owned()));
        }
    }

    #[test]
    fn rates_have_limits() {
        assert!("1ms".parse::<SampleInterval>().is_ok());
        assert!("0.0001".parse::<SampleInterval>().is_err());
        assert!("25h".parse::<SampleInterval>().is_err());
        assert!("1.5ms".parse::<SampleInterval>().is_err());
        assert_eq!(SampleInterval::from_millis(500).to_string(), "500ms");
    }

    #[test]
    fn writes_the_largest_whole_unit() {
        for (seconds, text) in [(300, "5m"), (172_800, "2d"), (3600, "1h"), (90, "90s")] {
            assert_eq!(TimeSpan::seconds(seconds).to_string(), text);
        }
    }
}
