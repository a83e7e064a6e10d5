//! The `log` setting: level and destination.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::LogLevel;

/// The level and the destination of log messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub destination: LogDestination,
    pub level: LogLevel,
}

/// The destination of log messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogDestination {
    /// The journal if standard error is connected to it, otherwise standard error.
    Auto,
    Stderr,
    Journal,
    Syslog,
    File(PathBuf),
}

impl LogConfig {
    /// The setting of an agent that is not configured otherwise.
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
            // A file requires a slash, so that a misspelt word is not taken for one.
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
        // Paths may contain colons: the part after the last one counts only if it is a level.
        let with_level = text
            .rsplit_once(':')
            .and_then(|(destination, level)| Some((destination, level.parse().ok()?)));
        let (destination, level) = with_level.unwrap_or((text, LogConfig::DEFAULT.level));
        match destination.parse() {
            Ok(destination) => Ok(LogConfig { destination, level }),
            Err(()) => Err(format!(
                "\"{text}\" is neither a log level nor a destination"
            )),
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
            destination => write!(f, "{destination}:{}", self.level),
        }
    }
}

crate::text_setting!(
    LogConfig,
    "off, error, warn, info, debug, trace; or a destination: stderr, journal, syslog, /a/file; or both: journal:info"
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
            let error = format!("\"{text}\" is neither a log level nor a destination");
            assert_eq!(text.parse::<LogConfig>(), Err(error));
        }
    }
}
