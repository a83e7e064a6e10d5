//! Handles the lines of one client: parses them, passes points and statsd lines to ingest, and
//! produces one reply per line. [`super::LineClient`] calls it with all complete lines that arrived
//! together, so that they share one write to the log. Waits for the log, so it must not run on an
//! async worker.

use std::sync::{Arc, Mutex, PoisonError};

use pegel_ingest::Ingest;
use pegel_ingest::admission;
use pegel_ingest::senders::Sender;
use pegel_ingest::statsd::{LineOrigin, StatsdInput};
use pegel_metric::{DropReason, Level};
use pegel_run::{CountingService, WatchSession};
use pegel_store::PushError;
use pegel_wire::{PointBatch, opentsdb, statsd};

use super::LineProtocol;
use crate::guard::PeerIdentity;
use crate::point_defaults::PUT_DEFAULTS;
use crate::routes::AppState;

const TELNET_HELP: &str = "put METRIC TIME VALUE KEY=VALUE…\nversion\nexit\n";

#[derive(Debug, Clone)]
pub(super) struct LineHandler {
    ingest: Arc<Ingest>,
    statsd: Option<Arc<StatsdInput>>,
    version: Arc<str>,
    dialect: LineProtocol,
    pub sender: Arc<Sender>,
    /// The client's pid: cumulative counters of two programs must not mix.
    origin: u64,
    /// Counts programs for the local user with this uid.
    counting_service: Option<(Arc<CountingService>, u32)>,
    /// The program that is watched for this client.
    watch_session: Arc<Mutex<Option<WatchSession>>>,
}

#[derive(Debug, Default)]
pub(super) struct LineReply {
    pub text: String,
    /// The client ended the session.
    pub is_over: bool,
}

/// The result of one line.
enum LineOutcome {
    /// A point at this index of the batch.
    Put(usize),
    Statsd,
    Refused(String),
    Reply(String),
}

impl LineHandler {
    pub fn new(
        site: &AppState,
        dialect: LineProtocol,
        peer: &PeerIdentity,
        pid: Option<u32>,
    ) -> LineHandler {
        let app = &site.agent;
        let counting_service = match (dialect, peer) {
            (LineProtocol::Socket, PeerIdentity::User(uid)) => {
                Some((site.counting_service.clone(), *uid))
            }
            _ => None,
        };
        LineHandler {
            ingest: app.ingest.clone(),
            statsd: app.statsd.clone(),
            version: app.version.as_str().into(),
            dialect,
            sender: app.ingest.sender(dialect.input(), &peer.sender_name()),
            origin: u64::from(pid.unwrap_or_default()),
            counting_service,
            watch_session: Arc::default(),
        }
    }

    /// Handles complete lines and replies to each of them.
    pub fn handle(&self, lines: &[u8]) -> LineReply {
        let mut batch = PointBatch::default();
        let mut outcomes = Vec::new();
        let mut reply = LineReply::default();
        let mut log = None;
        for line in lines.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if self.dialect == LineProtocol::Telnet && line.trim_ascii() == b"exit" {
                reply.is_over = true;
                break;
            }
            outcomes.push(match self.dialect {
                LineProtocol::Socket => self.socket_line(line, &mut batch, &mut log),
                LineProtocol::Telnet => self.telnet_line(line, &mut batch),
            });
        }
        let stored = self.ingest.store_batch(&self.sender, &batch, PUT_DEFAULTS);
        let has_statsd = outcomes
            .iter()
            .any(|line| matches!(line, LineOutcome::Statsd));
        let written = if has_statsd {
            self.ingest.refresh()
        } else {
            Ok(())
        };
        for line in outcomes {
            let refused: Option<String> = match line {
                LineOutcome::Put(index) => match &stored {
                    Ok(verdict) => {
                        let refused = verdict.refused.iter().find(|(at, _)| *at == index);
                        refused.map(|(_, refused)| refused.to_string())
                    }
                    Err(error) => Some(error.to_string()),
                },
                // The write failed after the log was checked: the counter keeps the increment.
                LineOutcome::Statsd => written.as_ref().err().map(|error| {
                    format!("{error}; the line is counted, and will be stored once the log can be written")
                }),
                LineOutcome::Refused(reason) => Some(reason),
                LineOutcome::Reply(text) => {
                    reply.text.push_str(&text);
                    continue;
                }
            };
            match (refused, self.dialect) {
                (Some(reason), dialect) => {
                    let reason = reason.replace(char::is_control, " ");
                    reply.text.push_str(&dialect.error_line(&reason));
                }
                (None, LineProtocol::Socket) => reply.text.push_str("ok\n"),
                (None, LineProtocol::Telnet) => {}
            }
        }
        reply
    }

    /// Handles a wrapper's request about the program that it wants counted.
    fn handle_watch_line(&self, line: &[u8]) -> Option<LineOutcome> {
        let (counting_service, uid) = self.counting_service.as_ref()?;
        let line = std::str::from_utf8(line).ok()?;
        let mut session = self
            .watch_session
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counting_service
            .answer(line, *uid, &mut session)
            .map(LineOutcome::Reply)
    }

    /// Handles `[level N ](put … | statsd line)`, or a wrapper's request. `log` caches whether the
    /// log can be written.
    fn socket_line<'a>(
        &self,
        line: &'a [u8],
        batch: &mut PointBatch<'a>,
        log: &mut Option<Result<(), PushError>>,
    ) -> LineOutcome {
        if let Some(answer) = self.handle_watch_line(line) {
            return answer;
        }
        let (level, line) = match split_level(line) {
            Ok(split) => split,
            Err(reason) => return self.refuse(DropReason::Malformed, reason),
        };
        if line.starts_with(b"put ") || line == b"put" {
            return self.put_line(line, level, batch);
        }
        let kept = self.ingest.admission().level();
        if let Some(level) = level.filter(|level| *level > kept) {
            return self.refuse(
                DropReason::Level,
                admission::AdmissionError::Level(level, kept).to_string(),
            );
        }
        let Some(statsd) = &self.statsd else {
            return self.refuse(
                DropReason::Denied,
                "statsd is not enabled on this agent".to_owned(),
            );
        };
        let origin = LineOrigin {
            sender: self.sender.clone(),
            id: self.origin,
        };
        // A counted line cannot be taken back, so check the log first.
        if let Err(error) = log.get_or_insert_with(|| self.ingest.check_log()) {
            return self.refuse(error.reason(), error.to_string());
        }
        match statsd.apply_lines(line, &origin) {
            Ok(()) => LineOutcome::Statsd,
            Err(reason) => LineOutcome::Refused(statsd_refusal(line, reason)),
        }
    }

    fn telnet_line<'a>(&self, line: &'a [u8], batch: &mut PointBatch<'a>) -> LineOutcome {
        let word = line
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty());
        match word {
            Some(b"put") => self.put_line(line, None, batch),
            Some(b"version") => LineOutcome::Reply(format!("pegel {}\n", self.version)),
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
                let refused = pegel_ingest::point_batch::BatchPointError::from(fault);
                self.refuse(refused.reason(), refused.to_string())
            }
        }
    }

    fn refuse(&self, reason: DropReason, text: String) -> LineOutcome {
        self.ingest.count_refused(&self.sender, reason);
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
            DropReason::SenderLimit => {
                "the sender has reached its limit of series (limits.series_per_sender)"
            }
            DropReason::SenderRate => "the sender exceeds limits.sender_bytes",
            DropReason::SeriesLimit => "the agent has reached its limit of series (limits.series)",
            DropReason::Rule => "a rule of the configuration drops it",
            DropReason::Level => "the metric level exceeds the agent's level",
            DropReason::BadName => "the name or a tag is not accepted",
            DropReason::BadValue => "the value is not accepted",
            DropReason::Unsupported => "events and service checks are not supported",
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
            "the value is not a number"
        );
        assert_eq!(
            statsd_refusal(b"a|c", DropReason::Malformed),
            "no ':' between name and value"
        );
        assert!(
            statsd_refusal(b"a:1|c", DropReason::SenderLimit).contains("limits.series_per_sender")
        );
        assert_eq!(
            statsd_refusal(b"a:1|c", DropReason::Closed),
            "dropped: closed"
        );
    }
}
