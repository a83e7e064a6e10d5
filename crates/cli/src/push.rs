//! Values from scripts, over the text protocol of the agent's socket.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;

/// An answer is a word and a reason.
const REPLY_BYTES_MAX: u64 = 16 << 10;

/// Send values of your own to the agent
///
/// A gauge is set to VALUE, a counter grows by it, and a timer takes it as one duration in milliseconds. When
/// the command returns, the values are stored and can be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    pegel push queue.depth=42 --tag q=main\n  \
    pegel push -t counter jobs.done=1 jobs.bytes=4096\n  \
    pegel push loss=0.031 --ts 1713379493250")]
pub struct PushArgs {
    /// What to send; may be repeated
    #[arg(required = true, value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// What the values mean
    #[arg(short = 't', long = "type", value_enum, default_value_t = PushKind::Gauge)]
    kind: PushKind,
    /// A label of all of them; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// When it was: milliseconds since 1970 (up to 10 digits: seconds). VALUE is then stored as it is
    #[arg(long, value_name = "MS")]
    ts: Option<u64>,
    /// How detailed it is: an agent of a lower level does not keep it
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// The agent's socket [default: $PEGEL_SOCKET, yours, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PushKind {
    Counter,
    Gauge,
    Timer,
}

pub fn run(args: &PushArgs) -> anyhow::Result<()> {
    // Mistakes are found before anybody is asked.
    let lines = args.lines().map_err(CommandError::usage)?;
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    let answers = exchange(client.connect()?, &lines)?;
    let refused = args
        .values
        .iter()
        .zip(&answers)
        .filter_map(|(value, answer)| {
            let reason = answer.strip_prefix("error ")?;
            Some(format!("{value}: {reason}"))
        });
    let refused: Vec<String> = refused.collect();
    if refused.is_empty() {
        return Ok(());
    }
    bail!(
        "the agent refused {} of {} values\n{}\nhint: `pegel doctor` says more about an agent's limits",
        refused.len(),
        args.values.len(),
        refused.join("\n")
    )
}

/// Sends all lines at once and reads an answer to each.
fn exchange(mut stream: UnixStream, lines: &str) -> anyhow::Result<Vec<String>> {
    let broke_off = "the agent broke off; some values may not be stored";
    stream.write_all(lines.as_bytes()).context(broke_off)?;
    let mut answers = BufReader::new(stream);
    let mut read = Vec::new();
    for _ in lines.lines() {
        let mut answer = String::new();
        let count = answers
            .by_ref()
            .take(REPLY_BYTES_MAX)
            .read_line(&mut answer)
            .context(broke_off)?;
        let answer = answer.trim_end();
        if count == 0 {
            bail!(broke_off);
        }
        if answer != "ok" && !answer.starts_with("error ") {
            bail!("not an answer of an agent: {answer:?}; is it older than this command?");
        }
        read.push(answer.to_owned());
    }
    Ok(read)
}

impl PushArgs {
    /// One line of the protocol for each value.
    fn lines(&self) -> Result<String, String> {
        let tags = self.tags()?;
        let mut lines = String::new();
        for text in &self.values {
            let (name, value) = text
                .rsplit_once('=')
                .ok_or_else(|| format!("{text:?} is not NAME=VALUE, such as queue.depth=42"))?;
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
                    "{name}={value}: a counter only grows; use -t gauge"
                ));
            }
            PushKind::Counter => (value.to_owned(), "c"),
            PushKind::Timer => (value.to_owned(), "ms"),
            // With a sign a gauge would move: it is set to zero first, in the same line.
            PushKind::Gauge if is_signed => (format!("0:{value}"), "g"),
            PushKind::Gauge => (value.to_owned(), "g"),
        };
        let _ = write!(lines, "{name}:{value}|{kind}");
        for (at, (key, value)) in tags.iter().enumerate() {
            let before = if at == 0 { "|#" } else { "," };
            let _ = write!(lines, "{before}{key}:{value}");
        }
        lines.push('\n');
        Ok(())
    }

    fn tags(&self) -> Result<Vec<(&str, &str)>, String> {
        let mut tags = Vec::new();
        for text in &self.tags {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("--tag {text:?} is not KEY=VALUE, such as q=main"))?;
            if key.is_empty() || value.is_empty() {
                return Err(format!(
                    "--tag {text:?}: neither key nor value may be empty"
                ));
            }
            let in_key = find_forbidden_char(key, "{}\"=,!~:|");
            if let Some(c) = in_key.or_else(|| find_forbidden_char(value, ",|")) {
                return Err(format!("--tag {text:?}: {c:?} cannot be sent in a tag"));
            }
            tags.push((key, value));
        }
        Ok(tags)
    }
}

/// A character that cannot be sent.
fn find_forbidden_char(text: &str, not: &str) -> Option<char> {
    text.chars()
        .find(|c| c.is_control() || c.is_whitespace() || not.contains(*c))
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("the name before = is empty; write NAME=VALUE".to_owned());
    }
    if name.len() > pegel_metric::NAME_BYTES_MAX {
        let max = pegel_metric::NAME_BYTES_MAX;
        return Err(format!(
            "a name has {} bytes; at most {max} are accepted",
            name.len()
        ));
    }
    match find_forbidden_char(name, "{}\":|") {
        Some(c) => Err(format!(
            "{name:?}: {c:?} cannot be part of a name; labels go into --tag"
        )),
        None => Ok(()),
    }
}

fn parse_number(name: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) => Err(format!("{name}={value}: the value is not a finite number")),
        Err(_) => Err(format!("{name}={value}: the value is not a number")),
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
    fn mistakes_are_named() {
        let error = |value: &str| args(&[value]).lines().expect_err("wrong");
        assert_eq!(
            error("x"),
            "\"x\" is not NAME=VALUE, such as queue.depth=42"
        );
        assert_eq!(
            error("x=1e400"),
            "x=1e400: the value is not a finite number"
        );
        assert_eq!(error("x=nan"), "x=nan: the value is not a finite number");
        assert_eq!(error("x=one"), "x=one: the value is not a number");
        assert_eq!(error("x="), "x=: the value is not a number");
        assert_eq!(error("=1"), "the name before = is empty; write NAME=VALUE");
        assert_eq!(
            error("a b=1"),
            "\"a b\": ' ' cannot be part of a name; labels go into --tag"
        );
        assert!(error("x{a=\"b\"}=1").contains("labels go into --tag"));
        assert!(error(&format!("{}=1", "x".repeat(1025))).starts_with("a name has 1025 bytes"));
        let mut counter = args(&["x=-1"]);
        counter.kind = PushKind::Counter;
        assert_eq!(
            counter.lines().expect_err("wrong"),
            "x=-1: a counter only grows; use -t gauge"
        );
        for (tag, reason) in [
            ("q", "is not KEY=VALUE"),
            ("=v", "neither key nor value may be empty"),
            ("k=", "neither key nor value may be empty"),
            ("k=a,b", "',' cannot be sent"),
            ("k:x=1", "':' cannot be sent"),
            ("k=a b", "' ' cannot be sent"),
        ] {
            let mut args = args(&["x=1"]);
            args.tags = vec![tag.to_owned()];
            let error = args.lines().expect_err("wrong");
            assert!(error.contains(reason), "{error}");
        }
    }
}
