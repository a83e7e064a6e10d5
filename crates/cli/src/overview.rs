//! `pegel` without a command: the state of the agent, and what to type next.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pegel_agent::human_text::format_path;
use pegel_metric::quantity;
use serde_json::Value;

use crate::agent_client::AgentClient;
use crate::agent_report::AgentReport;
use crate::command_error::{CommandError, NO_AGENT};
use crate::doctor::pluralize::pluralized;
use crate::output;

/// Commands to try with a running agent, and what they show.
const NEXT: [(&str, &str); 6] = [
    ("pegel top", "the node live, in this terminal"),
    ("pegel list", "every metric, with type, unit and help text"),
    ("pegel get NAME", "the current value of a metric"),
    (
        "pegel run -s -- COMMAND",
        "run a program and count its system calls",
    ),
    ("pegel doctor", "check machine, permissions and agent"),
    ("pegel help", "all commands"),
];
/// Commands to try without an agent.
const START: [(&str, &str); 4] = [
    ("pegel agent", "start one in this terminal; Ctrl-C stops it"),
    ("pegel agent --once", "take one sample and print it"),
    ("pegel doctor", "check what can be measured on this machine"),
    ("pegel help", "all commands"),
];

/// Prints the state of the agent. Exits with 3 if none is running.
pub(crate) fn run() -> anyhow::Result<()> {
    let client = match AgentClient::find(None, &[]) {
        Ok(client) => client,
        Err(error) => {
            let code = error.downcast_ref::<CommandError>().map(|error| error.code);
            if code != Some(NO_AGENT) {
                return Err(error);
            }
            output::write(None, &format!("No agent is running.\n\n{}", table(&START)))?;
            let tried = error.to_string();
            return Err(CommandError::with_code(
                NO_AGENT,
                tried.lines().next().unwrap_or_default(),
            ));
        }
    };
    let report = AgentReport::fetch(&client)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let text = format!(
        "{}\n{}",
        describe(&report, now, home.as_deref()),
        table(&NEXT)
    );
    output::write(None, &text)
}

fn table(rows: &[(&str, &str)]) -> String {
    let width = rows
        .iter()
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0);
    rows.iter()
        .map(|(command, text)| format!("  {command:width$}   {text}\n"))
        .collect()
}

fn describe(report: &AgentReport, now: Duration, home: Option<&Path>) -> String {
    let status = &report.status;
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let started = status["started"].as_f64().unwrap_or(0.0) / 1000.0;
    let mut lines = vec![format!(
        "Agent {} on {}, pid {}, running for {}",
        text(&status["version"]),
        text(&status["node"]),
        status["pid"],
        age(now.as_secs_f64() - started),
    )];
    let mut field = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    let url = report.url().unwrap_or("none: no address is configured");
    field("page", url.to_owned());
    field("state", state(status));
    let collectors = status["collectors"].as_array().map_or(0, |collectors| {
        let is_active = |collector: &&Value| collector["state"] == "active";
        collectors.iter().filter(is_active).count()
    });
    field(
        "sampling",
        format!(
            "every {} s, level {} of 4, {}, {} series",
            status["rate"].as_f64().unwrap_or(0.0),
            status["level"],
            pluralized(collectors as u64, "collector"),
            status["store"]["series"],
        ),
    );
    let store = &status["store"];
    let bytes = |key: &str| store[key].as_u64().unwrap_or(0);
    field(
        "store",
        format!(
            "{}, {} of {}",
            format_path(Path::new(&text(&store["dir"])), home),
            quantity::bytes(bytes("log_bytes") + bytes("block_bytes")),
            quantity::bytes(status["limits"]["disk_bytes"].as_u64().unwrap_or(0)),
        ),
    );
    if let Some(file) = report.config_file() {
        field("config", format_path(&file, home));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Describes the health of the agent, with the reason if it is degraded.
fn state(status: &Value) -> String {
    if status["degraded"].as_bool() != Some(true) {
        return "healthy".to_owned();
    }
    let reason = status["store"]["degraded"]["reason"].as_str();
    match reason {
        Some(reason) => format!("degraded: {reason}"),
        None => "degraded; `pegel doctor` explains why".to_owned(),
    }
}

/// Formats an age with one unit: `42 s`, `5 min`, `3 h`, `12 days`.
fn age(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(change: impl FnOnce(&mut Value)) -> String {
        let mut status = json!({
            "node": "n1", "version": "1.0.0", "pid": 7, "level": 3, "rate": 0.5, "started": 1e12,
            "degraded": false, "config_file": "/home/ada/p.yaml",
            "addresses": {"url": "http://127.0.0.1:1337", "http": ["127.0.0.1:1337"]},
            "collectors": [{"state": "active"}, {"state": "absent"}],
            "store": {"dir": "/home/ada/s", "series": 12, "log_bytes": 1024, "block_bytes": 1024},
            "limits": {"disk_bytes": 1 << 30},
        });
        change(&mut status);
        let report = AgentReport {
            status,
            config: Vec::new(),
        };
        describe(
            &report,
            Duration::from_secs(1_000_000_090),
            Some(Path::new("/home/ada")),
        )
    }

    #[test]
    fn the_agent_is_described_in_short_lines() {
        let expected = "\
Agent 1.0.0 on n1, pid 7, running for 90 s
  page       http://127.0.0.1:1337
  state      healthy
  sampling   every 0.5 s, level 3 of 4, 1 collector, 12 series
  store      ~/s, 2 KiB of 1 GiB
  config     ~/p.yaml
";
        assert_eq!(report(|_| {}), expected);
        let degraded = report(|status| {
            status["degraded"] = json!(true);
            status["store"]["degraded"] = json!({"reason": "no space left"});
        });
        assert!(
            degraded.contains("state      degraded: no space left\n"),
            "{degraded}"
        );
        assert_eq!(age(300.0), "5 min");
    }
}
