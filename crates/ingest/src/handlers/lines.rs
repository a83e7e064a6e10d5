//! The lines of programs: the text protocol of the UNIX socket, and OpenTSDB's telnet protocol.
//! Lines that arrive together share one write to the log; each gets one reply.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::{DropReason, Input, Level};
use pegel_store::PushError;
use pegel_wire::statsd::StatsdMessage;
use pegel_wire::{LineClient, LineHandler, LineInput, LineReply, PointBatch, opentsdb, statsd};

use super::put::PUT_DEFAULTS;
use crate::Ingest;
use crate::admission::AdmissionError;
use crate::point_batch::{BatchPointError, BatchResult};
use crate::senders::Sender;
use crate::statsd::{LineOrigin, LineRefusal, StatsdInput, add_timed_gauge};

const TELNET_HELP: &str = "put METRIC TIME VALUE KEY=VALUE…\nversion\nexit\n";

/// Answers lines of one client that are neither statsd nor `put`; `None` for lines that are.
pub type CommandSession = Box<dyn FnMut(&str) -> Option<String> + Send>;

/// The protocol of the UNIX socket: `[level N ](put … | statsd line)`.
pub struct SocketLines {
    pub ingest: Arc<Ingest>,
    pub statsd: Arc<StatsdInput>,
    /// Further commands, for a client of the user with this uid.
    pub open_commands: Box<dyn Fn(u32) -> CommandSession + Send + Sync>,
}

/// OpenTSDB's telnet protocol: `put …`, `version`, `help`. The server handles `exit`.
#[derive(Debug)]
pub struct TelnetLines {
    pub ingest: Arc<Ingest>,
    pub version: Arc<str>,
}

/// The session of one client.
struct LineSession {
    ingest: Arc<Ingest>,
    sender: Arc<Sender>,
    syntax: LineSyntax,
}

enum LineSyntax {
    Socket {
        statsd: Arc<StatsdInput>,
        /// The client's pid: cumulative counters of two programs must not mix.
        origin: u64,
        commands: Option<Mutex<CommandSession>>,
    },
    Telnet {
        version: Arc<str>,
    },
}

/// The result of one line.
enum LineOutcome {
    /// A point at this index of the batch.
    Put(usize),
    Statsd,
    /// A mark, which is on disk already.
    Stored,
    Refused(String),
    Reply(String),
}

impl fmt::Debug for SocketLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketLines").finish_non_exhaustive()
    }
}

impl LineInput for SocketLines {
    fn open(&self, client: &LineClient) -> Arc<dyn LineHandler> {
        Arc::new(LineSession {
            ingest: self.ingest.clone(),
            sender: self.ingest.sender(Input::Push, &client.sender),
            syntax: LineSyntax::Socket {
                statsd: self.statsd.clone(),
                origin: u64::from(client.pid.unwrap_or_default()),
                commands: client.uid.map(|uid| Mutex::new((self.open_commands)(uid))),
            },
        })
    }
}

impl LineInput for TelnetLines {
    fn open(&self, client: &LineClient) -> Arc<dyn LineHandler> {
        Arc::new(LineSession {
            ingest: self.ingest.clone(),
            sender: self.ingest.sender(Input::Put, &client.sender),
            syntax: LineSyntax::Telnet {
                version: self.version.clone(),
            },
        })
    }
}

impl LineHandler for LineSession {
    fn handle(&self, lines: &[u8]) -> Vec<LineReply> {
        let mut batch = PointBatch::default();
        let mut log = None;
        let lines = lines.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let outcomes: Vec<LineOutcome> = lines
            .filter(|line| !line.is_empty())
            .map(|line| self.line(line, &mut batch, &mut log))
            .collect();
        let stored = self.ingest.store_batch(&self.sender, &batch, PUT_DEFAULTS);
        let has_statsd = outcomes
            .iter()
            .any(|line| matches!(line, LineOutcome::Statsd));
        let written = if has_statsd {
            self.ingest.write_awaited()
        } else {
            Ok(())
        };
        let reply = |outcome| self.reply(outcome, &stored, &written);
        outcomes.into_iter().map(reply).collect()
    }

    fn count_refused(&self, reason: DropReason) {
        self.ingest.count_refused(&self.sender, reason);
    }
}

impl LineSession {
    fn reply(
        &self,
        outcome: LineOutcome,
        stored: &Result<BatchResult, PushError>,
        written: &Result<(), PushError>,
    ) -> LineReply {
        match outcome {
            LineOutcome::Put(index) => {
                let verdict = stored.as_ref().map_err(ToString::to_string)?;
                let mut refused = verdict.refused.iter();
                if let Some((_, reason)) = refused.find(|(at, _)| *at == index) {
                    return Err(reason.to_string());
                }
            }
            LineOutcome::Statsd => {
                // The write failed after the log was checked: the counter keeps the increment.
                let lost = "the line is counted, and will be stored once the log can be written";
                written
                    .as_ref()
                    .map_err(|error| format!("{error}; {lost}"))?;
            }
            LineOutcome::Stored => {}
            LineOutcome::Refused(reason) => return Err(reason),
            LineOutcome::Reply(text) => return Ok(text.into()),
        }
        Ok(Cow::Borrowed(match self.syntax {
            LineSyntax::Socket { .. } => "ok\n",
            LineSyntax::Telnet { .. } => "",
        }))
    }

    /// Handles one line. `log` caches whether the log can be written.
    fn line<'a>(
        &self,
        line: &'a [u8],
        batch: &mut PointBatch<'a>,
        log: &mut Option<Result<(), PushError>>,
    ) -> LineOutcome {
        match &self.syntax {
            LineSyntax::Telnet { version } => self.telnet_line(line, batch, version),
            LineSyntax::Socket {
                statsd,
                origin,
                commands,
            } => {
                if let Some(commands) = commands
                    && let Ok(text) = std::str::from_utf8(line)
                    && let Some(reply) = commands.lock()(text)
                {
                    return LineOutcome::Reply(reply);
                }
                let (level, line) = match split_level(line) {
                    Ok(split) => split,
                    Err(reason) => return self.refuse(DropReason::Malformed, reason),
                };
                if line.starts_with(b"put ") || line == b"put" {
                    return self.put_line(line, level, batch);
                }
                self.statsd_line(line, level, (statsd, *origin), batch, log)
            }
        }
    }

    fn statsd_line<'a>(
        &self,
        line: &'a [u8],
        level: Option<Level>,
        (statsd, origin): (&StatsdInput, u64),
        batch: &mut PointBatch<'a>,
        log: &mut Option<Result<(), PushError>>,
    ) -> LineOutcome {
        let kept = self.ingest.admission().level();
        if let Some(level) = level.filter(|level| *level > kept) {
            let refusal = AdmissionError::Level(level, kept);
            return self.refuse(DropReason::Level, refusal.to_string());
        }
        // Stored with the points of the other lines: its reply depends on the result.
        if add_timed_gauge(line, batch) {
            return LineOutcome::Put(batch.len() - 1);
        }
        if let Some(Ok(StatsdMessage::Event(event))) = statsd::StatsdLines::new(line).next() {
            let origin = LineOrigin {
                sender: self.sender.clone(),
                id: origin | LineOrigin::PROCESS,
            };
            return match statsd.store_mark(&event, &origin) {
                Ok(()) => LineOutcome::Stored,
                Err(refusal) => LineOutcome::Refused(refusal.message),
            };
        }
        // A counted line cannot be taken back, so check the log first.
        if let Err(error) = log.get_or_insert_with(|| self.ingest.check_log()) {
            return self.refuse(error.reason(), error.to_string());
        }
        let origin = LineOrigin {
            sender: self.sender.clone(),
            id: origin,
        };
        match statsd.apply_lines(line, &origin) {
            Ok(()) => LineOutcome::Statsd,
            Err(LineRefusal {
                error: Some(error), ..
            }) => LineOutcome::Refused(error.to_string()),
            Err(refusal) => LineOutcome::Refused(statsd_refusal(line, refusal.reason)),
        }
    }

    fn telnet_line<'a>(
        &self,
        line: &'a [u8],
        batch: &mut PointBatch<'a>,
        version: &str,
    ) -> LineOutcome {
        let word = line
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty());
        match word {
            Some(b"put") => self.put_line(line, None, batch),
            Some(b"version") => LineOutcome::Reply(format!("pegel {version}\n")),
            Some(b"help") => LineOutcome::Reply(TELNET_HELP.to_owned()),
            None => LineOutcome::Reply(String::new()),
            Some(_) => self.refuse(
                DropReason::Malformed,
                "unknown command; `help` lists the commands".to_owned(),
            ),
        }
    }

    fn put_line<'a>(
        &self,
        line: &'a [u8],
        level: Option<Level>,
        batch: &mut PointBatch<'a>,
    ) -> LineOutcome {
        match opentsdb::put_line(line, batch) {
            Ok(()) => {
                if let Some(Ok(point)) = batch.points.last_mut() {
                    point.level = level;
                }
                LineOutcome::Put(batch.len() - 1)
            }
            Err(fault) => {
                let refused = BatchPointError::from(fault);
                self.refuse(refused.reason(), refused.to_string())
            }
        }
    }

    fn refuse(&self, reason: DropReason, text: String) -> LineOutcome {
        self.count_refused(reason);
        LineOutcome::Refused(text)
    }
}

/// Splits `level N ` off a line.
fn split_level(line: &[u8]) -> Result<(Option<Level>, &[u8]), String> {
    let Some(rest) = line.strip_prefix(b"level ") else {
        return Ok((None, line));
    };
    let end = rest.iter().position(|byte| *byte == b' ');
    let level = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok()?.parse().ok());
    match (level, end) {
        (Some(level), Some(end)) => Ok((Some(level), &rest[end + 1..])),
        _ => Err("not `level N LINE`: the level is a whole number".to_owned()),
    }
}

/// Describes why a statsd line was dropped.
fn statsd_refusal(line: &[u8], reason: DropReason) -> String {
    match statsd::StatsdLines::new(line).next() {
        Some(Err(error)) => error.fault.to_string(),
        _ => match reason {
            DropReason::SenderLimit => "the sender has reached its limit of cumulative counters",
            DropReason::SenderRate => "the sender exceeds limits.sender_bytes",
            DropReason::BadName => "the name or a tag is not accepted",
            DropReason::BadValue => "the value is not accepted",
            DropReason::Unsupported => "service checks are not supported",
            DropReason::Memory => "statsd has reached its memory limit (statsd.memory)",
            other => return format!("dropped: {}", other.as_str()),
        }
        .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_may_stand_in_front() {
        assert_eq!(split_level(b"a:1|c"), Ok((None, &b"a:1|c"[..])));
        assert_eq!(split_level(b"level 3 a:1|c"), Ok((Some(3), &b"a:1|c"[..])));
        assert_eq!(
            split_level(b"level 0 put a 1 2"),
            Ok((Some(0), &b"put a 1 2"[..]))
        );
        assert_eq!(split_level(b"level:1|c"), Ok((None, &b"level:1|c"[..])));
        for wrong in [
            "level 3",
            "level x a:1|c",
            "level 256 a:1|c",
            "level -1 a:1|c",
            "level  a",
        ] {
            assert!(split_level(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_in_words() {
        assert_eq!(
            statsd_refusal(b"a:x|c", DropReason::BadValue),
            "malformed value; expected a number"
        );
        assert_eq!(
            statsd_refusal(b"a|c", DropReason::Malformed),
            "no ':' between name and value"
        );
        assert!(statsd_refusal(b"a:1|ms", DropReason::Memory).contains("statsd.memory"));
        assert_eq!(
            statsd_refusal(b"a:1|c", DropReason::Closed),
            "dropped: closed"
        );
    }
}
