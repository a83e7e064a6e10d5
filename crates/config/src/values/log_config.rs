use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::LogLevel;

/// Which log messages there are, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub destination: LogDestination,
    pub level: LogLevel,
}

/// Where log messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogDestination {
    /// To the journal when standard error leads there, else to standard error.
    Auto,
    Stderr,
    Journal,
    Syslog,
    File(PathBuf),
}

impl LogConfig {
    /// What an agent logs that is not told otherwise.
    pub const DEFAULT: LogConfig = LogConfig {
        destination: LogDestination::Auto,
        level: LogLevel::Warn,
    };
}

impl FromStr for LogDestination {
    type Err = ();

    fn from_str(text: &str) -> Result<LogDestination, ()> {
        match text.to_ascii_lowercase().as_str() {
            "stderr" => Ok(LogDestination::Stderr),
            "journal" => Ok(LogDestination::Journal),
            "syslog" => Ok(LogDestination::Syslog),
            // A file needs a slash, so that a misspelt word is not taken for one.
            _ if text.contains('/') && !text.ends_with('/') => {
                Ok(LogDestination::File(text.into()))
            }
            _ => Err(()),
        }
    }
}

impl FromStr for LogConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<LogConfig, String> {
        let text = text.trim();
        if let Ok(level) = text.parse() {
            return Ok(LogConfig {
                level,
                ..LogConfig::DEFAULT
            });
        }
        // Paths may hold colons: only what is a level behind the last one counts.
        let with_level = text
            .rsplit_once(':')
            .and_then(|(place, level)| Some((place, level.parse().ok()?)));
        let (place, level) = with_level.unwrap_or((text, LogConfig::DEFAULT.level));
        match place.parse() {
            Ok(place) => Ok(LogConfig {
                destination: place,
                level,
            }),
            Err(()) => Err(format!("\"{text}\" is neither a log level nor a place")),
        }
    }
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Auto => f.write_str("auto"),
            LogDestination::Stderr => f.write_str("stderr"),
            LogDestination::Journal => f.write_str("journal"),
            LogDestination::Syslog => f.write_str("syslog"),
            LogDestination::File(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for LogConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.destination {
            LogDestination::Auto => self.level.fmt(f),
            place => write!(f, "{place}:{}", self.level),
        }
    }
}

crate::text_setting!(
    LogConfig,
    "off, error, warn, info, debug, trace; or a place: stderr, journal, syslog, /a/file; or both: journal:info"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_places_and_both_read_back() {
        for (text, place, level) in [
            ("debug", LogDestination::Auto, LogLevel::Debug),
            ("journal:info", LogDestination::Journal, LogLevel::Info),
            ("syslog:off", LogDestination::Syslog, LogLevel::Off),
            ("stderr:warn", LogDestination::Stderr, LogLevel::Warn),
            (
                "/var/log/a:b.log:trace",
                LogDestination::File("/var/log/a:b.log".into()),
                LogLevel::Trace,
            ),
        ] {
            let log = LogConfig {
                destination: place,
                level,
            };
            assert_eq!(text.parse(), Ok(log.clone()));
            assert_eq!(log.to_string(), text);
        }
        assert_eq!(
            " Journal ".parse::<LogConfig>().expect("valid").to_string(),
            "journal:warn"
        );
        assert_eq!(
            "./p:q".parse::<LogConfig>().expect("valid").to_string(),
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
            assert_eq!(text.parse::<LogConfig>(), Err(error));
        }
    }
}
