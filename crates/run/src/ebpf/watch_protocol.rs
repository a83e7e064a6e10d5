//! The protocol between a wrapper and an agent that counts for it: one line of text per request and
//! per answer.
//!
//! ```text
//! watch exec PID START [untimed]      counts process PID, started at START, from its exec on: `ok`, or `error WHY`
//! watch now PID START [untimed]       counts all its threads from now on
//! counts                              `counts STARTED ALIVE END [ROW:HITS:BYTES:NANOSECONDS:ERRORS]…`
//! release                             lets the parent of an exited process be notified: `ok`
//! ```
//!
//! `END` is `-` while the process runs, `x3` after exit status 3, `k9` after signal 9, `?` if
//! unknown. An answer contains the rows that changed since the previous one, with their totals.

use std::fmt;
use std::str::FromStr;

use super::CallTiming;
use super::programs::ROWS;
use super::watch_slot::TaskProgress;
use crate::ptrace::ProcessEnd;
use crate::syscall_tally::CallCount;

/// The point from which a process is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountFrom {
    Exec,
    Now,
}

/// The first line of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatchRequest {
    pub from: CountFrom,
    pub pid: i32,
    /// Its start time in clock ticks. Detects a process ID of another PID namespace, and one that
    /// was reused.
    pub start: u64,
    pub time: CallTiming,
}

/// The answer to `counts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CountsReading {
    pub progress: TaskProgress,
    pub end: Option<ProcessEnd>,
    pub rows: Vec<(usize, CallCount)>,
}

impl fmt::Display for WatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            CountFrom::Exec => "exec",
            CountFrom::Now => "now",
        };
        let time = match self.time {
            CallTiming::Measured => "",
            CallTiming::Ignored => " untimed",
        };
        write!(f, "watch {from} {} {}{time}", self.pid, self.start)
    }
}

/// A malformed `watch` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `watch exec|now PID START [untimed]`")]
pub(super) struct InvalidWatchRequest;

impl FromStr for WatchRequest {
    type Err = InvalidWatchRequest;

    fn from_str(text: &str) -> Result<WatchRequest, InvalidWatchRequest> {
        let words: Vec<&str> = text.split(' ').collect();
        let (from, pid, start, more) = match words.as_slice() {
            ["watch", "exec", pid, start, more @ ..] => (CountFrom::Exec, pid, start, more),
            ["watch", "now", pid, start, more @ ..] => (CountFrom::Now, pid, start, more),
            _ => return Err(InvalidWatchRequest),
        };
        let time = match more {
            [] => CallTiming::Measured,
            ["untimed"] => CallTiming::Ignored,
            _ => return Err(InvalidWatchRequest),
        };
        let pid: i32 = pid.parse().map_err(|_| InvalidWatchRequest)?;
        let start = start.parse().map_err(|_| InvalidWatchRequest)?;
        if pid <= 0 {
            return Err(InvalidWatchRequest);
        }
        Ok(WatchRequest {
            from,
            pid,
            start,
            time,
        })
    }
}

impl fmt::Display for CountsReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskProgress {
            has_started,
            is_alive,
        } = self.progress;
        write!(
            f,
            "counts {} {} ",
            u8::from(has_started),
            u8::from(is_alive)
        )?;
        match self.end {
            None => f.write_str("-")?,
            Some(ProcessEnd::Exited(code)) => write!(f, "x{code}")?,
            Some(ProcessEnd::Killed(signal)) => write!(f, "k{signal}")?,
            Some(ProcessEnd::Released) => f.write_str("?")?,
        }
        for (row, count) in &self.rows {
            let CallCount {
                hits,
                bytes,
                nanos,
                errors,
            } = count;
            write!(f, " {row}:{hits}:{bytes}:{nanos}:{errors}")?;
        }
        Ok(())
    }
}

impl CountsReading {
    /// Parses an answer; None if it is malformed.
    pub(super) fn parse(text: &str) -> Option<CountsReading> {
        let mut words = text.strip_prefix("counts ")?.split(' ');
        let mut flag = || match words.next()? {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let progress = TaskProgress {
            has_started: flag()?,
            is_alive: flag()?,
        };
        let ending = match words.next()? {
            "-" => None,
            "?" => Some(ProcessEnd::Released),
            word => Some(match word.split_at_checked(1)? {
                ("x", code) => ProcessEnd::Exited(code.parse().ok()?),
                ("k", signal) => ProcessEnd::Killed(signal.parse().ok()?),
                _ => return None,
            }),
        };
        let rows = words.map(parse_row).collect::<Option<_>>()?;
        Some(CountsReading {
            progress,
            end: ending,
            rows,
        })
    }
}

fn parse_row(word: &str) -> Option<(usize, CallCount)> {
    let mut numbers = word.split(':').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let row = next()? as usize;
    let count = CallCount {
        hits: next()?,
        bytes: next()?,
        nanos: next()?,
        errors: next()?,
    };
    (row < ROWS && numbers.next().is_none()).then_some((row, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for from in [CountFrom::Exec, CountFrom::Now] {
            for time in [CallTiming::Measured, CallTiming::Ignored] {
                let request = WatchRequest {
                    from,
                    pid: 4711,
                    start: u64::MAX,
                    time,
                };
                assert_eq!(request.to_string().parse(), Ok(request));
            }
        }
        for wrong in [
            "",
            "watch",
            "watch exec",
            "watch exec 1",
            "watch then 1 2",
            "watch exec -1 2",
            "watch exec 0 2",
            "watch exec 1 2 3",
            "watch exec 1 2 untimed untimed",
            "watch exec 99999999999 2",
            "watch  exec 1 2",
        ] {
            assert_eq!(
                wrong.parse::<WatchRequest>(),
                Err(InvalidWatchRequest),
                "{wrong}"
            );
        }
    }

    #[test]
    fn readings_are_read_as_they_are_written() {
        let count = |hits| CallCount {
            hits,
            bytes: 2,
            nanos: 3,
            errors: 4,
        };
        let endings = [
            None,
            Some(ProcessEnd::Exited(3)),
            Some(ProcessEnd::Killed(9)),
            Some(ProcessEnd::Released),
        ];
        for ending in endings {
            let reading = CountsReading {
                progress: TaskProgress {
                    has_started: true,
                    is_alive: ending.is_none(),
                },
                end: ending,
                rows: vec![(0, count(1)), (511, count(u64::MAX))],
            };
            assert_eq!(CountsReading::parse(&reading.to_string()), Some(reading));
        }
    }

    #[test]
    fn what_is_no_reading_is_refused() {
        for wrong in [
            "",
            "ok",
            "counts",
            "counts 1 1",
            "counts 2 1 -",
            "counts 1 1 y",
            "counts 1 1 x",
            "counts 1 1 é",
            "counts 1 1 - 512:1:1:1:1",
            "counts 1 1 - 1:1:1:1",
            "counts 1 1 - 1:1:1:1:1:1",
            "counts 1 1 - -1:1:1:1:1",
            "counts 1 1 -  1:1:1:1:1",
        ] {
            assert_eq!(CountsReading::parse(wrong), None, "{wrong}");
        }
    }
}
