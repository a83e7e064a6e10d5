//! What the lines of a client amount to. Waits for the log: not for async workers.

use std::sync::{Arc, Mutex, PoisonError};

use pegel_ingest::Ingest;
use pegel_ingest::admission;
use pegel_ingest::senders::Sender;
use pegel_ingest::statsd::{LineOrigin, StatsdInput};
use pegel_metric::{Level, Reason};
use pegel_run::{Station, Visitor};
use pegel_store::PushError;
use pegel_wire::{PointBatch, opentsdb, statsd};

use super::Dialect;
use crate::guard::Peer;
use crate::routes::Site;
use crate::writes::PUT;

const HELP: &str = "put METRIC TIME VALUE KEY=VALUE…\nversion\nexit\n";

#[derive(Debug, Clone)]
pub(super) struct Work {
    intake: Arc<Ingest>,
    statsd: Option<Arc<StatsdInput>>,
    version: Arc<str>,
    dialect: Dialect,
    pub sender: Arc<Sender>,
    /// Cumulative counters of two programs do not mix.
    origin: u64,
    /// Who counts programs for users of this machine.
    station: Option<(Arc<Station>, u32)>,
    /// The program that is watched for this client.
    visitor: Arc<Mutex<Option<Visitor>>>,
}

#[derive(Debug, Default)]
pub(super) struct Reply {
    pub text: String,
    /// The client said that it is done.
    pub is_over: bool,
}

/// What becomes of one line.
enum Line {
    /// At this place in the batch.
    Put(usize),
    Statsd,
    Refused(String),
    Said(String),
}

impl Work {
    pub fn new(site: &Site, dialect: Dialect, peer: &Peer, pid: Option<u32>) -> Work {
        let app = &site.app;
        let station = match (dialect, peer) {
            (Dialect::Socket, Peer::User(uid)) => Some((site.station.clone(), *uid)),
            _ => None,
        };
        Work {
            intake: app.intake.clone(),
            statsd: app.statsd.clone(),
            version: app.version.as_str().into(),
            dialect,
            sender: app.intake.sender(dialect.input(), &peer.account()),
            origin: u64::from(pid.unwrap_or_default()),
            station,
            visitor: Arc::default(),
        }
    }

    /// Takes whole lines and answers each of them.
    pub fn answer(&self, lines: &[u8]) -> Reply {
        let mut batch = PointBatch::default();
        let mut taken = Vec::new();
        let mut reply = Reply::default();
        let mut log = None;
        for line in lines.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if self.dialect == Dialect::Telnet && line.trim_ascii() == b"exit" {
                reply.is_over = true;
                break;
            }
            taken.push(match self.dialect {
                Dialect::Socket => self.socket_line(line, &mut batch, &mut log),
                Dialect::Telnet => self.telnet_line(line, &mut batch),
            });
        }
        let stored = self.intake.store_batch(&self.sender, &batch, PUT);
        let has_statsd = taken.iter().any(|line| matches!(line, Line::Statsd));
        let written = match has_statsd {
            true => self.intake.refresh(),
            false => Ok(()),
        };
        for line in taken {
            let refused: Option<String> = match line {
                Line::Put(place) => match &stored {
                    Ok(verdict) => {
                        let refused = verdict.refused.iter().find(|(at, _)| *at == place);
                        refused.map(|(_, refused)| refused.to_string())
                    }
                    Err(error) => Some(error.to_string()),
                },
                // It failed after the look before: a counter does not go back.
                Line::Statsd => written.as_ref().err().map(|error| {
                    format!("{error}; the line is counted, and stored when that is over")
                }),
                Line::Refused(reason) => Some(reason),
                Line::Said(text) => {
                    reply.text.push_str(&text);
                    continue;
                }
            };
            match (refused, self.dialect) {
                (Some(reason), dialect) => {
                    let reason = reason.replace(char::is_control, " ");
                    reply.text.push_str(&dialect.complaint(&reason));
                }
                (None, Dialect::Socket) => reply.text.push_str("ok\n"),
                (None, Dialect::Telnet) => {}
            }
        }
        reply
    }

    /// What a wrapper asks about the program that it wants to have counted.
    fn watch_line(&self, line: &[u8]) -> Option<Line> {
        let (station, uid) = self.station.as_ref()?;
        let line = std::str::from_utf8(line).ok()?;
        let mut visitor = self.visitor.lock().unwrap_or_else(PoisonError::into_inner);
        station.answer(line, *uid, &mut visitor).map(Line::Said)
    }

    /// `[level N ](put … | statsd line)`, or a wrapper's line. `log` says whether anything can be stored, as soon
    /// as someone looked.
    fn socket_line<'a>(
        &self,
        line: &'a [u8],
        batch: &mut PointBatch<'a>,
        log: &mut Option<Result<(), PushError>>,
    ) -> Line {
        if let Some(answer) = self.watch_line(line) {
            return answer;
        }
        let (level, line) = match level(line) {
            Ok(split) => split,
            Err(reason) => return self.refuse(Reason::Malformed, reason),
        };
        if line.starts_with(b"put ") || line == b"put" {
            return self.put_line(line, level, batch);
        }
        let kept = self.intake.admission().level();
        if let Some(level) = level.filter(|level| *level > kept) {
            return self.refuse(
                Reason::Level,
                admission::AdmissionError::Level(level, kept).to_string(),
            );
        }
        let Some(taker) = &self.statsd else {
            return self.refuse(Reason::Denied, "statsd lines are not taken here".to_owned());
        };
        let origin = LineOrigin {
            sender: self.sender.clone(),
            id: self.origin,
        };
        // What is counted stays counted: so look before.
        if let Err(error) = log.get_or_insert_with(|| self.intake.check_log()) {
            return self.refuse(error.reason(), error.to_string());
        }
        match taker.apply_lines(line, &origin) {
            Ok(()) => Line::Statsd,
            Err(reason) => Line::Refused(why(line, reason)),
        }
    }

    fn telnet_line<'a>(&self, line: &'a [u8], batch: &mut PointBatch<'a>) -> Line {
        let word = line
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty());
        match word {
            Some(b"put") => self.put_line(line, None, batch),
            Some(b"version") => Line::Said(format!("pegel {}\n", self.version)),
            Some(b"help") => Line::Said(HELP.to_owned()),
            None => Line::Said(String::new()),
            Some(_) => self.refuse(
                Reason::Malformed,
                "unknown command; `help` lists what there is".to_owned(),
            ),
        }
    }

    fn put_line<'a>(
        &self,
        line: &'a [u8],
        level: Option<Level>,
        batch: &mut PointBatch<'a>,
    ) -> Line {
        match opentsdb::put_line(line, batch) {
            Ok(()) => {
                if let Some(Ok(point)) = batch.points.last_mut() {
                    point.level = level;
                }
                Line::Put(batch.len() - 1)
            }
            Err(fault) => {
                let refused = pegel_ingest::point_batch::BatchPointError::from(fault);
                self.refuse(refused.reason(), refused.to_string())
            }
        }
    }

    fn refuse(&self, reason: Reason, text: String) -> Line {
        self.intake.count_refused(&self.sender, reason);
        Line::Refused(text)
    }
}

/// Takes `level N ` off a line.
fn level(line: &[u8]) -> Result<(Option<Level>, &[u8]), String> {
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
fn why(line: &[u8], reason: Reason) -> String {
    match statsd::StatsdLines::new(line).next() {
        Some(Err(error)) => error.fault.to_string(),
        _ => match reason {
            Reason::SenderLimit => {
                "the sender has as many series as it may (limits.series_per_sender)"
            }
            Reason::SenderRate => "the sender exceeds limits.sender_bytes",
            Reason::SeriesLimit => "the agent has as many series as it may (limits.series)",
            Reason::Rule => "a rule of the configuration drops it",
            Reason::Level => "it is more detailed than the agent's level",
            Reason::BadName => "the name or a tag is not accepted",
            Reason::BadValue => "the value is not accepted",
            Reason::Unsupported => "events and service checks have no place here",
            Reason::Memory => "statsd has all the memory that it may (statsd.memory)",
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
        assert_eq!(level(b"a:1|c"), Ok((None, &b"a:1|c"[..])));
        assert_eq!(level(b"level 3 a:1|c"), Ok((Some(3), &b"a:1|c"[..])));
        assert_eq!(
            level(b"level 0 put a 1 2"),
            Ok((Some(0), &b"put a 1 2"[..]))
        );
        assert_eq!(level(b"level:1|c"), Ok((None, &b"level:1|c"[..])));
        for wrong in [
            "level 3",
            "level x a:1|c",
            "level 256 a:1|c",
            "level -1 a:1|c",
            "level  a",
        ] {
            assert!(level(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_in_words() {
        assert_eq!(why(b"a:x|c", Reason::BadValue), "the value is not a number");
        assert_eq!(
            why(b"a|c", Reason::Malformed),
            "no ':' between name and value"
        );
        assert!(why(b"a:1|c", Reason::SenderLimit).contains("limits.series_per_sender"));
        assert_eq!(why(b"a:1|c", Reason::Closed), "it was dropped: closed");
    }
}
