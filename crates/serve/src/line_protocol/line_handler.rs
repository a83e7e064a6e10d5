//! What the lines of a client amount to. Waits for the log: not for async workers.

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
    /// Cumulative counters of two programs do not mix.
    origin: u64,
    /// Who counts programs for users of this machine.
    counting_service: Option<(Arc<CountingService>, u32)>,
    /// The program that is watched for this client.
    watch_session: Arc<Mutex<Option<WatchSession>>>,
}

#[derive(Debug, Default)]
pub(super) struct LineReply {
    pub text: String,
    /// The client said that it is done.
    pub is_over: bool,
}

/// What becomes of one line.
enum LineOutcome {
    /// At this place in the batch.
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
        let station = match (dialect, peer) {
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
            counting_service: station,
            watch_session: Arc::default(),
        }
    }

    /// Takes whole lines and answers each of them.
    pub fn handle(&self, lines: &[u8]) -> LineReply {
        let mut batch = PointBatch::default();
        let mut taken = Vec::new();
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
            taken.push(match self.dialect {
                LineProtocol::Socket => self.socket_line(line, &mut batch, &mut log),
                LineProtocol::Telnet => self.telnet_line(line, &mut batch),
            });
        }
        let stored = self.ingest.store_batch(&self.sender, &batch, PUT_DEFAULTS);
        let has_statsd = taken.iter().any(|line| matches!(line, LineOutcome::Statsd));
        let written = match has_statsd {
            true => self.ingest.refresh(),
            false => Ok(()),
        };
        for line in taken {
            let refused: Option<String> = match line {
                LineOutcome::Put(place) => match &stored {
                    Ok(verdict) => {
                        let refused = verdict.refused.iter().find(|(at, _)| *at == place);
                        refused.map(|(_, refused)| refused.to_string())
                    }
                    Err(error) => Some(error.to_string()),
                },
                // It failed after the look before: a counter does not go back.
                LineOutcome::Statsd => written.as_ref().err().map(|error| {
                    format!("{error}; the line is counted, and stored when that is over")
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

    /// What a wrapper asks about the program that it wants to have counted.
    fn handle_watch_line(&self, line: &[u8]) -> Option<LineOutcome> {
        let (station, uid) = self.counting_service.as_ref()?;
        let line = std::str::from_utf8(line).ok()?;
        let mut visitor = self
            .watch_session
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        station
            .answer(line, *uid, &mut visitor)
            .map(LineOutcome::Reply)
    }

    /// `[level N ](put … | statsd line)`, or a wrapper's line. `log` says whether anything can be stored, as soon
    /// as someone looked.
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
        let Some(taker) = &self.statsd else {
            return self.refuse(
                DropReason::Denied,
                "statsd lines are not taken here".to_owned(),
            );
        };
        let origin = LineOrigin {
            sender: self.sender.clone(),
            id: self.origin,
        };
        // What is counted stays counted: so look before.
        if let Err(error) = log.get_or_insert_with(|| self.ingest.check_log()) {
            return self.refuse(error.reason(), error.to_string());
        }
        match taker.apply_lines(line, &origin) {
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
                "unknown command; `help` lists what there is".to_owned(),
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

/// Takes `level N ` off a line.
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

/// In words what is wrong with a statsd line that was dropped for `reason`.
fn statsd_refusal(line: &[u8], reason: DropReason) -> String {
    match statsd::StatsdLines::new(line).next() {
        Some(Err(error)) => error.fault.to_string(),
        _ => match reason {
            DropReason::SenderLimit => {
                "the sender has as many series as it may (limits.series_per_sender)"
            }
            DropReason::SenderRate => "the sender exceeds limits.sender_bytes",
            DropReason::SeriesLimit => "the agent has as many series as it may (limits.series)",
            DropReason::Rule => "a rule of the configuration drops it",
            DropReason::Level => "it is more detailed than the agent's level",
            DropReason::BadName => "the name or a tag is not accepted",
            DropReason::BadValue => "the value is not accepted",
            DropReason::Unsupported => "events and service checks have no place here",
            DropReason::Memory => "statsd has all the memory that it may (statsd.memory)",
            other => return format!("it was dropped: {}", other.as_str()),
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
            "it was dropped: closed"
        );
    }
}
