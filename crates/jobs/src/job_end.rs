//! How a job ended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How a job ended, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// Its cgroup was removed, or its last process ended.
    Ended,
    /// The kernel killed processes of the job because it reached its memory limit.
    OutOfMemory,
    /// The exit code that `pegel run` reported.
    Exit(i32),
    /// The signal that ended the program, as `pegel run` reported.
    Signal(i32),
    /// It ended while no agent was running; the end is the time when it was last seen.
    Lost,
}

impl fmt::Display for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobEnd::Ended => f.write_str("ended"),
            JobEnd::OutOfMemory => f.write_str("oom"),
            JobEnd::Exit(code) => write!(f, "exit {code}"),
            JobEnd::Signal(number) => write!(f, "signal {number}"),
            JobEnd::Lost => f.write_str("lost"),
        }
    }
}

impl FromStr for JobEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<JobEnd, String> {
        let number = |text: &str| text.parse::<i32>().map_err(|error| error.to_string());
        match text.split_once(' ') {
            Some(("exit", code)) => Ok(JobEnd::Exit(number(code)?)),
            Some(("signal", signal)) => Ok(JobEnd::Signal(number(signal)?)),
            _ => match text {
                "ended" => Ok(JobEnd::Ended),
                "oom" => Ok(JobEnd::OutOfMemory),
                "lost" => Ok(JobEnd::Lost),
                _ => Err(format!("unknown end of a job {text:?}")),
            },
        }
    }
}

impl Serialize for JobEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobEnd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JobEnd, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_read_back() {
        for end in [
            JobEnd::Ended,
            JobEnd::OutOfMemory,
            JobEnd::Exit(-1),
            JobEnd::Signal(9),
            JobEnd::Lost,
        ] {
            assert_eq!(end.to_string().parse(), Ok(end));
        }
        for bad in ["", "exit", "exit x", "signal 1 2", "done"] {
            assert!(bad.parse::<JobEnd>().is_err(), "{bad}");
        }
    }
}
