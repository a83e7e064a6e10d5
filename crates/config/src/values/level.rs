//! Levels: of metric detail and of logging.

use std::fmt;
use std::str::FromStr;

/// The level of detail that an agent keeps: 0 (nothing) to 4 (everything).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DetailLevel(u8);

impl DetailLevel {
    pub const MAX: DetailLevel = DetailLevel(4);
    pub const DEFAULT: DetailLevel = DetailLevel(3);

    pub fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for DetailLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<DetailLevel, String> {
        match text.trim().parse::<u8>() {
            Ok(level) if level <= DetailLevel::MAX.0 => Ok(DetailLevel(level)),
            _ => Err(format!("\"{text}\" is not a level")),
        }
    }
}

impl fmt::Display for DetailLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::text_setting!(
    DetailLevel,
    "0 (off), 1 (programs), 2 (node basics), 3 (devices), 4 (per-process detail)"
);

/// The least severe log messages to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const ALL: [LogLevel; 6] = [
        LogLevel::Off,
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        LogLevel::ALL
            .into_iter()
            .find(|level| level.as_str().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| format!("\"{text}\" is not a log level"))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

crate::text_setting!(LogLevel, "off, error, warn, info, debug, trace");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_from_zero_to_four() {
        for level in 0..=4u8 {
            assert_eq!(
                level
                    .to_string()
                    .parse::<DetailLevel>()
                    .map(DetailLevel::get),
                Ok(level)
            );
        }
        for text in ["5", "-1", "all", "", "1.5"] {
            assert_eq!(
                text.parse::<DetailLevel>(),
                Err(format!("\"{text}\" is not a level"))
            );
        }
    }

    #[test]
    fn log_levels_read_back() {
        for level in LogLevel::ALL {
            assert_eq!(level.as_str().to_uppercase().parse(), Ok(level));
        }
        assert!("loud".parse::<LogLevel>().is_err());
    }
}
