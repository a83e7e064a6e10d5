//! `pegel push`: sends values from scripts over the text protocol of the agent's socket.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;

/// The longest accepted reply, which is `ok` or `error REASON`.
const REPLY_BYTES_MAX: u64 = 16 << 10;

/// Send values to the agent
///
/// Sets a gauge to VALUE, increments a counter by VALUE, or records VALUE as one duration of a
/// timer in milliseconds. When the command returns, the values are stored and can be read.
#[derive(Debug, clap::Args)]
pub(crate) struct PushArgs {
    /// Name and value to send; may be repeated
    #[arg(required = true, value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// Metric type of the values
    #[arg(short = 't', long = "type", value_enum, default_value_t = PushKind::Gauge)]
    kind: PushKind,
    /// Label for all values; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Timestamp in milliseconds since 1970 (up to 10 digits: seconds); VALUE is then stored as is
    #[arg(long, value_name = "MS")]
    ts: Option<u64>,
    /// Metric level of the values; agents with a lower level drop them
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PushKind {
    Counter,
    Gauge,
    Timer,
}

pub(crate) fn run(args: &PushArgs) -> anyhow::Result<()> {
    // Reject malformed arguments before connecting.
    let lines = args.lines().map_err(CommandError::usage)?;
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    let replies = exchange(client.connect()?, &lines)?;
    let rejected = args
        .values
        .iter()
        .zip(&replies)
        .filter_map(|(value, reply)| {
            let reason = reply.strip_prefix("error ")?;
            Some(format!("{value}: {reason}"))
        });
    let rejected: Vec<String> = rejected.collect();
    if rejected.is_empty() {
        return Ok(());
    }
    bail!(
        "the agent rejected {} of {} values\n{}\nhint: `pegel doctor` shows the agent's limits",
        rejected.len(),
        args.values.len(),
        rejected.join("\n")
    )
}

/// Sends all lines at once and reads one reply per line.
fn exchange(mut stream: UnixStream, lines: &str) -> anyhow::Result<Vec<String>> {
    let closed = "the agent closed the connection; some values may not be stored";
    stream.write_all(lines.as_bytes()).context(closed)?;
    let mut reader = BufReader::new(stream);
    let mut replies = Vec::new();
    for _ in lines.lines() {
        let mut reply = String::new();
        let count = reader
            .by_ref()
            .take(REPLY_BYTES_MAX)
            .read_line(&mut reply)
            .context(closed)?;
        let reply = reply.trim_end();
        if count == 0 {
            bail!(closed);
        }
        if reply != "ok" && !reply.starts_with("error ") {
            bail!(
                "unexpected reply {reply:?}, expected \"ok\" or \"error …\"; the agent may be older than this command"
            );
        }
        replies.push(reply.to_owned());
    }
    Ok(replies)
}

impl PushArgs {
    /// Formats one protocol line per value.
    fn lines(&self) -> Result<String, String> {
        let tags = self.tags()?;
        let mut lines = String::new();
        for text in &self.values {
            let (name, value) = text
                .rsplit_once('=')
                .ok_or_else(|| format!("{text:?}: expected NAME=VALUE, such as queue.depth=42"))?;
            check_name(name)?;
            let number = parse_number(name, value)?;
            if let Some(level) = self.level {
                let _ = write!(lines, "level {level} ");
            }
            match self.ts {
                Some(time) => write_put_line(&mut lines, name, time, value, &tags),
                None => self.write_statsd_line(&mut lines, name, value, number, &tags)?,
            }
        }
        Ok(lines)
    }

    fn write_statsd_line(
        &self,
        lines: &mut String,
        name: &str,
        value: &str,
        number: f64,
        tags: &[(&str, &str)],
    ) -> Result<(), String> {
        let is_signed = number.is_sign_negative() || value.starts_with(['+', '-']);
        let (value, kind) = match self.kind {
            PushKind::Counter if number < 0.0 => {
                return Err(format!(
                    "{name}={value}: a counter cannot decrease; use -t gauge"
                ));
            }
            PushKind::Counter => (value.to_owned(), "c"),
            PushKind::Timer => (value.to_owned(), "ms"),
            // A signed value changes a gauge by that amount: set it to zero first, in the same
            // line.
            PushKind::Gauge if is_signed => (format!("0:{value}"), "g"),
            PushKind::Gauge => (value.to_owned(), "g"),
        };
        let _ = write!(lines, "{name}:{value}|{kind}");
        for (index, (key, value)) in tags.iter().enumerate() {
            let separator = if index == 0 { "|#" } else { "," };
            let _ = write!(lines, "{separator}{key}:{value}");
        }
        lines.push('\n');
        Ok(())
    }

    fn tags(&self) -> Result<Vec<(&str, &str)>, String> {
        let mut tags = Vec::new();
        for text in &self.tags {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("--tag {text:?}: expected KEY=VALUE, such as q=main"))?;
            if key.is_empty() || value.is_empty() {
                return Err(format!("--tag {text:?}: key and value must not be empty"));
            }
            let in_key = find_forbidden_char(key, "{}\"=,!~:|");
            if let Some(c) = in_key.or_else(|| find_forbidden_char(value, ",|")) {
                return Err(format!("--tag {text:?}: {c:?} is not permitted in a tag"));
            }
            tags.push((key, value));
        }
        Ok(tags)
    }
}

/// Returns the first character that the protocol cannot carry: control, white space, or one of
/// `forbidden`.
fn find_forbidden_char(text: &str, forbidden: &str) -> Option<char> {
    text.chars()
        .find(|c| c.is_control() || c.is_whitespace() || forbidden.contains(*c))
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("empty name; expected NAME=VALUE".to_owned());
    }
    if name.len() > pegel_metric::NAME_BYTES_MAX {
        let max = pegel_metric::NAME_BYTES_MAX;
        return Err(format!(
            "name of {} bytes exceeds the limit of {max}",
            name.len()
        ));
    }
    match find_forbidden_char(name, "{}\":|") {
        Some(c) => Err(format!(
            "{name:?}: {c:?} is not permitted in a name; pass labels with --tag"
        )),
        None => Ok(()),
    }
}

fn parse_number(name: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) => Err(format!("{name}={value}: value is not finite")),
        Err(_) => Err(format!(
            "{name}={value}: malformed value; expected a number"
        )),
    }
}

fn write_put_line(lines: &mut String, name: &str, time: u64, value: &str, tags: &[(&str, &str)]) {
    let _ = write!(lines, "put {name} {time} {value}");
    for (key, value) in tags {
        let _ = write!(lines, " {key}={value}");
    }
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(values: &[&str]) -> PushArgs {
        PushArgs {
            values: values.iter().map(|&value| value.to_owned()).collect(),
            kind: PushKind::Gauge,
            tags: Vec::new(),
            ts: None,
            level: None,
            socket: None,
        }
    }

    #[test]
    fn each_value_is_a_line() {
        let mut args = args(&["queue.depth=42", "t=-1.5", "a=b=+3"]);
        assert_eq!(
            args.lines().as_deref(),
            Ok("queue.depth:42|g\nt:0:-1.5|g\na=b:0:+3|g\n")
        );
        args.tags = vec!["q=main".to_owned(), "url=http://x=1".to_owned()];
        args.kind = PushKind::Counter;
        args.values.truncate(1);
        assert_eq!(
            args.lines().as_deref(),
            Ok("queue.depth:42|c|#q:main,url:http://x=1\n")
        );
        args.level = Some(2);
        args.ts = Some(1_713_379_493);
        assert_eq!(
            args.lines().as_deref(),
            Ok("level 2 put queue.depth 1713379493 42 q=main url=http://x=1\n")
        );
        args.ts = None;
        args.kind = PushKind::Timer;
        args.tags.clear();
        assert_eq!(args.lines().as_deref(), Ok("level 2 queue.depth:42|ms\n"));
    }

    #[test]
    fn malformed_arguments_are_reported() {
        let error = |value: &str| args(&[value]).lines().expect_err("wrong");
        assert_eq!(
            error("x"),
            "\"x\": expected NAME=VALUE, such as queue.depth=42"
        );
        assert_eq!(error("x=1e400"), "x=1e400: value is not finite");
        assert_eq!(error("x=nan"), "x=nan: value is not finite");
        assert_eq!(error("x=one"), "x=one: malformed value; expected a number");
        assert_eq!(error("x="), "x=: malformed value; expected a number");
        assert_eq!(error("=1"), "empty name; expected NAME=VALUE");
        assert_eq!(
            error("a b=1"),
            "\"a b\": ' ' is not permitted in a name; pass labels with --tag"
        );
        assert!(error("x{a=\"b\"}=1").contains("pass labels with --tag"));
        assert!(error(&format!("{}=1", "x".repeat(1025))).starts_with("name of 1025 bytes"));
        let mut counter = args(&["x=-1"]);
        counter.kind = PushKind::Counter;
        assert_eq!(
            counter.lines().expect_err("wrong"),
            "x=-1: a counter cannot decrease; use -t gauge"
        );
        for (tag, reason) in [
            ("q", "expected KEY=VALUE"),
            ("=v", "key and value must not be empty"),
            ("k=", "key and value must not be empty"),
            ("k=a,b", "',' is not permitted"),
            ("k:x=1", "':' is not permitted"),
            ("k=a b", "' ' is not permitted"),
        ] {
            let mut args = args(&["x=1"]);
            args.tags = vec![tag.to_owned()];
            let error = args.lines().expect_err("wrong");
            assert!(error.contains(reason), "{error}");
        }
    }
}
