//! What an agent tells a wrapper for which it counts: one line of text for each question.
//!
//! ```text
//! watch exec PID START [untimed]      counts the process PID, that began at START, from its exec on: `ok`, or `error WHY`
//! watch now PID START [untimed]       from now on, with all its threads
//! counts                              `counts STARTED ALIVE END [ROW:HITS:BYTES:NANOSECONDS:ERRORS]…`
//! release                             the process has ended, and its parent may know: `ok`
//! ```
//!
//! `END` is `-` while the process runs, `x3` when it has exited with 3, `k9` when signal 9 has killed it, `?` when nobody
//! knows. Rows are those that changed since the last answer, with all that they hold.

use std::fmt;
use std::str::FromStr;

use super::Time;
use super::place::{Progress, Row};
use super::programs::ROWS;
use crate::ptrace::Ending;

/// From when on a process is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Exec,
    Now,
}

/// The first word on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub from: From,
    pub pid: i32,
    /// When it began, in the kernel's ticks. A process of another namespace has another number here.
    pub start: u64,
    pub time: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub progress: Progress,
    pub ending: Option<Ending>,
    pub rows: Vec<(usize, Row)>,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            From::Exec => "exec",
            From::Now => "now",
        };
        let time = match self.time {
            Time::Measured => "",
            Time::Ignored => " untimed",
        };
        write!(f, "watch {from} {} {}{time}", self.pid, self.start)
    }
}

/// The text is no such line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not `watch exec|now PID START [untimed]`")]
pub(super) struct NoRequest;

impl FromStr for Request {
    type Err = NoRequest;

    fn from_str(text: &str) -> Result<Request, NoRequest> {
        let words: Vec<&str> = text.split(' ').collect();
        let (from, pid, start, more) = match words.as_slice() {
            ["watch", "exec", pid, start, more @ ..] => (From::Exec, pid, start, more),
            ["watch", "now", pid, start, more @ ..] => (From::Now, pid, start, more),
            _ => return Err(NoRequest),
        };
        let time = match more {
            [] => Time::Measured,
            ["untimed"] => Time::Ignored,
            _ => return Err(NoRequest),
        };
        let pid: i32 = pid.parse().map_err(|_| NoRequest)?;
        let start = start.parse().map_err(|_| NoRequest)?;
        match pid > 0 {
            true => Ok(Request {
                from,
                pid,
                start,
                time,
            }),
            false => Err(NoRequest),
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress {
            has_started,
            is_alive,
        } = self.progress;
        write!(
            f,
            "counts {} {} ",
            u8::from(has_started),
            u8::from(is_alive)
        )?;
        match self.ending {
            None => f.write_str("-")?,
            Some(Ending::Exited(code)) => write!(f, "x{code}")?,
            Some(Ending::Killed(signal)) => write!(f, "k{signal}")?,
            Some(Ending::Released) => f.write_str("?")?,
        }
        for (row, [hits, bytes, nanos, errors]) in &self.rows {
            write!(f, " {row}:{hits}:{bytes}:{nanos}:{errors}")?;
        }
        Ok(())
    }
}

impl Reading {
    /// None if it is none.
    pub(super) fn parse(text: &str) -> Option<Reading> {
        let mut words = text.strip_prefix("counts ")?.split(' ');
        let mut flag = || match words.next()? {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        let progress = Progress {
            has_started: flag()?,
            is_alive: flag()?,
        };
        let ending = match words.next()? {
            "-" => None,
            "?" => Some(Ending::Released),
            word => Some(match word.split_at_checked(1)? {
                ("x", code) => Ending::Exited(code.parse().ok()?),
                ("k", signal) => Ending::Killed(signal.parse().ok()?),
                _ => return None,
            }),
        };
        let rows = words.map(parse_row).collect::<Option<_>>()?;
        Some(Reading {
            progress,
            ending,
            rows,
        })
    }
}

fn parse_row(word: &str) -> Option<(usize, Row)> {
    let mut numbers = word.split(':').map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let row = next()? as usize;
    let counts = [next()?, next()?, next()?, next()?];
    (row < ROWS && numbers.next().is_none()).then_some((row, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for from in [From::Exec, From::Now] {
            for time in [Time::Measured, Time::Ignored] {
                let request = Request {
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
            assert_eq!(wrong.parse::<Request>(), Err(NoRequest), "{wrong}");
        }
    }

    #[test]
    fn readings_are_read_as_they_are_written() {
        let endings = [
            None,
            Some(Ending::Exited(3)),
            Some(Ending::Killed(9)),
            Some(Ending::Released),
        ];
        for ending in endings {
            let reading = Reading {
                progress: Progress {
                    has_started: true,
                    is_alive: ending.is_none(),
                },
                ending,
                rows: vec![(0, [1, 2, 3, 4]), (511, [u64::MAX, 0, 0, 0])],
            };
            assert_eq!(Reading::parse(&reading.to_string()), Some(reading));
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
            assert_eq!(Reading::parse(wrong), None, "{wrong}");
        }
    }
}
