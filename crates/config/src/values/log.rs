use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::LogLevel;

/// Which log messages there are, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub place: LogPlace,
    pub level: LogLevel,
}

/// Where log messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPlace {
    /// To the journal when standard error leads there, else to standard error.
    Auto,
    Stderr,
    Journal,
    Syslog,
    File(PathBuf),
}

impl Log {
    /// What an agent logs that is not told otherwise.
    pub const DEFAULT: Log = Log {
        place: LogPlace::Auto,
        level: LogLevel::Warn,
    };
}

impl FromStr for LogPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<LogPlace, ()> {
        match text.to_ascii_lowercase().as_str() {
            "stderr" => Ok(LogPlace::Stderr),
            "journal" => Ok(LogPlace::Journal),
            "syslog" => Ok(LogPlace::Syslog),
            // A file needs a slash, so that a misspelt word is not taken for one.
            _ if text.contains('/') && !text.ends_with('/') => Ok(LogPlace::File(text.into())),
            _ => Err(()),
        }
    }
}

impl FromStr for Log {
    type Err = String;

    fn from_str(text: &str) -> Result<Log, String> {
        let text = text.trim();
        if let Ok(level) = text.parse() {
            return Ok(Log {
                level,
                ..Log::DEFAULT
            });
        }
        // Paths may hold colons: only what is a level behind the last one counts.
        let with_level = text
            .rsplit_once(':')
            .and_then(|(place, level)| Some((place, level.parse().ok()?)));
        let (place, level) = with_level.unwrap_or((text, Log::DEFAULT.level));
        match place.parse() {
            Ok(place) => Ok(Log { place, level }),
            Err(()) => Err(format!("\"{text}\" is neither a log level nor a place")),
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::Auto => f.write_str("auto"),
            LogPlace::Stderr => f.write_str("stderr"),
            LogPlace::Journal => f.write_str("journal"),
            LogPlace::Syslog => f.write_str("syslog"),
            LogPlace::File(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            LogPlace::Auto => self.level.fmt(f),
            place => write!(f, "{place}:{}", self.level),
        }
    }
}

crate::text_setting!(
    Log,
    "off, error, warn, info, debug, trace; or a place: stderr, journal, syslog, /a/file; or both: journal:info"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_places_and_both_read_back() {
        for (text, place, level) in [
            ("debug", LogPlace::Auto, LogLevel::Debug),
            ("journal:info", LogPlace::Journal, LogLevel::Info),
            ("syslog:off", LogPlace::Syslog, LogLevel::Off),
            ("stderr:warn", LogPlace::Stderr, LogLevel::Warn),
            (
                "/var/log/a:b.log:trace",
                LogPlace::File("/var/log/a:b.log".into()),
                LogLevel::Trace,
            ),
        ] {
            let log = Log { place, level };
            assert_eq!(text.parse(), Ok(log.clone()));
            assert_eq!(log.to_string(), text);
        }
        assert_eq!(
            " Journal ".parse::<Log>().expect("valid").to_string(),
            "journal:warn"
        );
        assert_eq!(
            "./p:q".parse::<Log>().expect("valid").to_string(),
            "./p:q:warn"
        );
    }

    #[test]
    fn a_misspelt_word_is_not_a_file() {
        for text in [
            "loud",
            "jurnal",
            "pegel.log",
            "journal:loud",
            "",
            ":info",
            "/var/log/",
        ] {
            let error = format!("\"{text}\" is neither a log level nor a place");
            assert_eq!(text.parse::<Log>(), Err(error));
        }
    }
}
