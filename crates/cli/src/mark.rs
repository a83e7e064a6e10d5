//! `pegel mark`: sets marks and phases from scripts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use pegel_config::TimeSpan;
use serde_json::{Value, json};

use crate::agent_client::AgentClient;
use crate::command_error::CommandError;

/// Set a mark or a phase on the time line
///
/// Every chart of the page shows it, and Grafana as an annotation. A mark has a time; a phase lasts
/// from its start to its end. The agent adds the user; process and program are those that run this
/// command, rank and job those of the environment. When the command returns, the mark is stored.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["text", "start", "end"])))]
pub(crate) struct MarkArgs {
    /// Text of a mark
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Start the phase NAME
    #[arg(long, value_name = "NAME")]
    start: Option<String>,
    /// End the phase NAME, the one that was started last by the same user in the same job
    #[arg(long, value_name = "NAME")]
    end: Option<String>,
    /// Time: seconds or milliseconds since 1970, or relative to now, such as -5m [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    time: Option<String>,
    /// Label, such as file=a.ckpt; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: &MarkArgs) -> anyhow::Result<()> {
    let body = args.body(Timestamp::now()).map_err(CommandError::usage)?;
    let client = AgentClient::find(args.socket.as_deref(), &[])?;
    client.post("/api/annotation", &body).map(drop)
}

impl MarkArgs {
    /// Returns the annotation to send. The end of a phase has no start: the agent finds it.
    fn body(&self, now: Timestamp) -> Result<Value, String> {
        let time = match &self.time {
            Some(text) => parse_time(text, now)?,
            None => now.as_millisecond(),
        };
        let mut labels = self.labels()?;
        let mut body = match (&self.text, &self.start, &self.end) {
            (Some(text), _, _) => {
                labels.insert("kind".to_owned(), "mark".to_owned());
                json!({"startTime": time, "description": text})
            }
            (_, Some(name), _) => {
                labels.insert("kind".to_owned(), "phase".to_owned());
                json!({"startTime": time, "description": name})
            }
            (_, _, name) => {
                labels.insert("kind".to_owned(), "phase".to_owned());
                json!({"endTime": time, "description": name})
            }
        };
        if body["description"]
            .as_str()
            .is_none_or(|text| text.trim().is_empty())
        {
            return Err("the text is empty".to_owned());
        }
        body["custom"] = json!(labels);
        Ok(body)
    }

    fn labels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut labels = BTreeMap::new();
        // The end of a phase keeps the process and the program of its start.
        if self.end.is_none() {
            let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
            labels.extend(parent.map(|pid| ("pid".to_owned(), pid.to_string())));
            let program = parent.and_then(program_name);
            labels.extend(program.map(|name| ("program".to_owned(), name)));
            labels.extend(pegel_lane::rank().map(|rank| ("rank".to_owned(), rank)));
        }
        labels.extend(pegel_lane::job_id().map(|job| ("jobid".to_owned(), job)));
        for text in &self.tags {
            match text.split_once('=') {
                Some((key, value)) if !key.is_empty() && key != "kind" => {
                    labels.insert(key.to_owned(), value.to_owned());
                }
                _ => {
                    return Err(format!(
                        "--tag {text:?}: expected KEY=VALUE, such as file=a.ckpt"
                    ));
                }
            }
        }
        Ok(labels)
    }
}

/// Returns the name of a program: that of its script, or of its file.
fn program_name(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Parses a time as the agent's HTTP interface does; returns milliseconds since 1970.
fn parse_time(text: &str, now: Timestamp) -> Result<i64, String> {
    parse_time_option("--time", text, now)
}

/// Parses the time that an option sets.
pub(crate) fn parse_time_option(option: &str, text: &str, now: Timestamp) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{option} {text:?}: expected seconds (1700000000.5), milliseconds (1700000000000), now, \
             or a time before now such as -5m"
        )
    };
    if text == "now" {
        return Ok(now.as_millisecond());
    }
    if let Some(back) = text.strip_prefix('-') {
        let has_unit = back.ends_with(|c: char| c.is_ascii_alphabetic());
        let back = back.parse::<TimeSpan>().ok().filter(|_| has_unit);
        let back = SignedDuration::try_from(back.ok_or_else(wrong)?.duration());
        let time = { back.ok() }.and_then(|back| now.checked_sub(back).ok());
        let time = time.ok_or_else(wrong)?;
        return Ok(time.as_millisecond());
    }
    let number: f64 = text.parse().map_err(|_| wrong())?;
    // Numbers from here on are milliseconds: as seconds they would lie after the year 5138.
    let millis = if number >= 1e11 {
        number
    } else {
        number * 1000.0
    };
    match (1000.0..1e15).contains(&millis) {
        true => Ok(millis.round() as i64),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: Option<&str>, start: Option<&str>, end: Option<&str>) -> MarkArgs {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        MarkArgs {
            text: owned(text),
            start: owned(start),
            end: owned(end),
            time: Some("1713379493.5".to_owned()),
            tags: vec!["file=a=b".to_owned()],
            socket: None,
        }
    }

    #[test]
    fn a_mark_and_the_two_ends_of_a_phase_are_annotations() {
        let body = |args: MarkArgs| args.body(Timestamp::UNIX_EPOCH).expect("valid");
        let mark = body(args(Some("checkpoint 12"), None, None));
        assert_eq!(mark["startTime"], 1_713_379_493_500_i64);
        assert_eq!(mark["description"], "checkpoint 12");
        assert_eq!(
            (&mark["custom"]["kind"], &mark["custom"]["file"]),
            (&json!("mark"), &json!("a=b"))
        );
        assert_eq!(
            mark["custom"]["pid"],
            rustix::process::getppid()
                .map_or(0, |pid| pid.as_raw_nonzero().get())
                .to_string()
        );
        let start = body(args(None, Some("solve"), None));
        assert_eq!(
            (&start["custom"]["kind"], &start["endTime"]),
            (&json!("phase"), &Value::Null)
        );
        let end = body(args(None, None, Some("solve")));
        assert_eq!(
            (&end["startTime"], &end["custom"]["pid"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(end["endTime"], 1_713_379_493_500_i64);
    }

    #[test]
    fn times_and_mistakes() {
        let now = Timestamp::from_millisecond(1_713_379_493_000).expect("a time");
        for (text, expected) in [
            ("now", 1_713_379_493_000),
            ("-90s", 1_713_379_403_000),
            ("-2h", 1_713_372_293_000),
            ("-1d", 1_713_293_093_000),
            ("1713379493", 1_713_379_493_000),
            ("1713379493123", 1_713_379_493_123),
        ] {
            assert_eq!(parse_time(text, now), Ok(expected), "{text}");
        }
        for wrong in ["", "5m", "yesterday", "-", "-5", "0", "NaN", "1e300"] {
            let error = parse_time(wrong, now).expect_err(wrong);
            assert!(error.contains("such as -5m"), "{error}");
        }
        assert_eq!(
            args(Some(" "), None, None).body(now),
            Err("the text is empty".to_owned())
        );
        for tag in ["x", "=1", "kind=mark"] {
            let mut args = args(Some("x"), None, None);
            args.tags = vec![tag.to_owned()];
            assert!(
                args.body(now)
                    .expect_err("wrong")
                    .contains("expected KEY=VALUE")
            );
        }
    }
}
