//! `pegel alerts`: the pending and firing alerts of the agent.

use std::path::PathBuf;

use jiff::{Timestamp, Unit};
use serde_json::Value;

use crate::format::text_table;
use crate::node_access::NodeArgs;
use crate::output;
use crate::rules::ListFormat;

/// Show pending and firing alerts
#[derive(Debug, clap::Args)]
pub(crate) struct AlertsArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
}

pub(crate) fn run(args: &AlertsArgs) -> anyhow::Result<()> {
    let client = args.node.client(args.socket.as_deref())?;
    let alerts = client.get("/api/v1/alerts", &[])?["data"]["alerts"].take();
    match args.format {
        ListFormat::Json => output::write(None, &format!("{alerts:#}\n")),
        ListFormat::Table => output::write(None, &alerts_table(&alerts, Timestamp::now())),
    }
}

/// Returns one line per alert, firing ones first, then those that are active for longest.
fn alerts_table(alerts: &Value, now: Timestamp) -> String {
    let mut alerts: Vec<&Value> = alerts.as_array().into_iter().flatten().collect();
    if alerts.is_empty() {
        return "no alerts\n".to_owned();
    }
    alerts.sort_by_key(|alert| {
        let since = alert["activeAt"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok());
        (alert["state"] != "firing", since)
    });
    let rows: Vec<Vec<String>> = alerts.iter().map(|alert| row(alert, now)).collect();
    text_table(
        &["STATE", "ALERT", "SINCE", "VALUE", "LABELS", "SUMMARY"],
        &rows,
    )
}

fn row(alert: &Value, now: Timestamp) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = alert["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .filter(|(name, _)| *name != "alertname")
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    let annotations = &alert["annotations"];
    let summaries = ["summary", "message", "description"].iter();
    let summary = { summaries.filter_map(|name| annotations[*name].as_str()) }.next();
    let value = text(&alert["value"]).parse::<f64>();
    vec![
        text(&alert["state"]),
        text(&alert["labels"]["alertname"]),
        text(&alert["activeAt"])
            .parse()
            .map_or_else(|_| text(&alert["activeAt"]), |time| since(time, now)),
        value.map_or_else(
            |_| text(&alert["value"]),
            |value| format!("{}", rounded(value)),
        ),
        labels.join(" "),
        // One line per alert, whatever the annotation contains.
        summary
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    ]
}

/// Rounds to four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Returns how long ago a time was, in its two largest units.
pub(crate) fn since(time: Timestamp, now: Timestamp) -> String {
    let seconds = now
        .since((Unit::Second, time))
        .map_or(0, |span| span.get_seconds())
        .max(0);
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m {rest}s"),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn firing_alerts_come_first() {
        let alert = |name: &str, state: &str, at: &str| {
            json!({
                "labels": {"alertname": name, "instance": "n1"},
                "annotations": {"summary": "two\nlines"},
                "state": state, "activeAt": at, "value": "1.23456e+01",
            })
        };
        let alerts = json!([
            alert("Slow", "pending", "2026-01-01T00:00:00Z"),
            alert("Hot", "firing", "2026-01-01T01:59:01.5Z"),
        ]);
        let now = "2026-01-01T02:00:05Z".parse().expect("a time");
        assert_eq!(
            alerts_table(&alerts, now),
            "STATE    ALERT  SINCE  VALUE  LABELS       SUMMARY\n\
             firing   Hot    1m 3s  12.35  instance=n1  two lines\n\
             pending  Slow   2h 0m  12.35  instance=n1  two lines\n"
        );
        assert_eq!(alerts_table(&json!([]), now), "no alerts\n");
    }
}
