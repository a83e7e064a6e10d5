//! The status page of Apache (`server-status?auto`) and of lighttpd, with the values of collectd's
//! apache plugin.

use std::fmt;
use std::str::FromStr;

use pegel_metric::MetricKind;
use pegel_wire::PointBatch;

use super::http_fetch::HttpSource;
use super::pull_context::{PullContext, SampleOptions};
use super::{PullError, PullReader};

/// The server that writes the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ServerType {
    #[default]
    Apache,
    Lighttpd,
}

impl FromStr for ServerType {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerType, String> {
        match text {
            "apache" => Ok(ServerType::Apache),
            "lighttpd" => Ok(ServerType::Lighttpd),
            _ => Err(format!("\"{text}\" is not a server")),
        }
    }
}

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerType::Apache => "apache",
            ServerType::Lighttpd => "lighttpd",
        })
    }
}

pegel_config::text_setting!(ServerType, "apache or lighttpd");

impl ServerType {
    /// The letters of the scoreboard and the states that they stand for.
    fn states(self) -> &'static [(char, &'static str)] {
        match self {
            ServerType::Apache => &[
                ('.', "open"),
                ('_', "waiting"),
                ('S', "starting"),
                ('R', "reading"),
                ('W', "sending"),
                ('K', "keepalive"),
                ('D', "dnslookup"),
                ('C', "closing"),
                ('L', "logging"),
                ('G', "finishing"),
                ('I', "idle_cleanup"),
            ],
            ServerType::Lighttpd => &[
                ('.', "connect"),
                ('C', "close"),
                ('E', "hard_error"),
                ('k', "keepalive"),
                ('r', "read"),
                ('R', "read_post"),
                ('W', "write"),
                ('h', "handle_request"),
                ('q', "request_start"),
                ('Q', "request_end"),
                ('s', "response_start"),
                ('S', "response_end"),
            ],
        }
    }
}

/// A line of the page with one number: its name there, and the metric.
struct StatusField {
    keys: &'static [&'static str],
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    factor: f64,
    state: Option<&'static str>,
}

const fn field(
    keys: &'static [&'static str],
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
) -> StatusField {
    StatusField {
        keys,
        name,
        kind,
        help,
        factor: 1.0,
        state: None,
    }
}

const fn connections(key: &'static [&'static str], state: &'static str) -> StatusField {
    StatusField {
        state: Some(state),
        ..field(
            key,
            "apache_connections",
            MetricKind::Gauge,
            "Number of connections, by state.",
        )
    }
}

const SCOREBOARD: (&str, MetricKind, &str) = (
    "apache_scoreboard",
    MetricKind::Gauge,
    "Number of workers or connections in each state of the scoreboard.",
);

const FIELDS: [StatusField; 9] = [
    field(
        &["Total Accesses"],
        "apache_requests_total",
        MetricKind::Counter,
        "Total number of requests.",
    ),
    StatusField {
        factor: 1024.0,
        ..field(
            &["Total kBytes"],
            "apache_bytes_total",
            MetricKind::Counter,
            "Total number of bytes sent.",
        )
    },
    field(
        &["Uptime", "ServerUptimeSeconds"],
        "apache_uptime_seconds",
        MetricKind::Gauge,
        "Time since the server started, in seconds.",
    ),
    field(
        &["BusyWorkers", "BusyServers"],
        "apache_busy_workers",
        MetricKind::Gauge,
        "Number of workers that serve a request.",
    ),
    field(
        &["IdleWorkers", "IdleServers"],
        "apache_idle_workers",
        MetricKind::Gauge,
        "Number of workers that wait for a request.",
    ),
    connections(&["ConnsTotal"], "total"),
    connections(&["ConnsAsyncWriting"], "writing"),
    connections(&["ConnsAsyncKeepAlive"], "keepalive"),
    connections(&["ConnsAsyncClosing"], "closing"),
];

/// Reads a status page at each interval.
#[derive(Debug)]
pub(crate) struct ApacheReader {
    source: HttpSource,
    server: ServerType,
}

impl ApacheReader {
    pub(crate) fn new(source: HttpSource, server: ServerType) -> ApacheReader {
        ApacheReader { source, server }
    }
}

impl PullReader for ApacheReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        let page = self.source.fetch(context, "text/plain")?;
        let text = String::from_utf8_lossy(&page.body);
        let batch = parse_status(&text, self.server).ok_or_else(|| {
            PullError::malformed(
                "the page has no line \"BusyWorkers: NUMBER\" or \"BusyServers: NUMBER\"; does the URL end with server-status?auto?",
            )
        })?;
        context.store(&batch, SampleOptions::default())
    }
}

/// Parses the page; `None` if it is another one.
fn parse_status(text: &str, server: ServerType) -> Option<PointBatch<'static>> {
    let mut batch = PointBatch::default();
    let mut is_status = false;
    let mut has_uptime = false;
    for (key, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        if key == "Scoreboard" {
            add_scoreboard(&mut batch, value, server);
            continue;
        }
        let known = FIELDS.iter().find(|field| field.keys.contains(&key));
        let Some((field, number)) = known.zip(value.trim().parse::<f64>().ok()) else {
            continue;
        };
        // Apache writes its uptime twice.
        if field.name == "apache_uptime_seconds" && std::mem::replace(&mut has_uptime, true) {
            continue;
        }
        is_status |= key.starts_with("Busy");
        let labels: Vec<(&str, &str)> = field
            .state
            .map(|state| ("state", state))
            .into_iter()
            .collect();
        let metric = (field.name, field.kind, field.help);
        batch.add_sample(metric, number * field.factor, &labels);
    }
    is_status.then_some(batch)
}

fn add_scoreboard(batch: &mut PointBatch<'static>, text: &str, server: ServerType) {
    for (letter, state) in server.states() {
        let count = text.chars().filter(|c| c == letter).count();
        batch.add_sample(SCOREBOARD, count as f64, &[("state", *state)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, server: ServerType) -> Option<Vec<String>> {
        let batch = parse_status(text, server)?;
        let shown = batch.points.iter().flatten().map(|point| {
            let labels = &batch.labels()[batch.labels_of(point)];
            let labels: Vec<&str> = labels.iter().map(|(_, value)| &**value).collect();
            format!("{} {} {}", point.name, labels.join(","), point.value)
        });
        Some(shown.collect())
    }

    /// As Apache 2.4 writes it, without lines that are not read.
    const APACHE: &str = "127.0.0.1
ServerVersion: Apache/2.4.62 (Debian)
ServerMPM: event
ServerUptimeSeconds: 77
Load1: 0.12
Total Accesses: 12
Total kBytes: 9
Total Duration: 3
Uptime: 77
ReqPerSec: .155844
BusyWorkers: 2
GracefulWorkers: 0
IdleWorkers: 48
Processes: 2
ConnsTotal: 5
ConnsAsyncWriting: 1
ConnsAsyncKeepAlive: 3
ConnsAsyncClosing: 0
Scoreboard: _W__K___S_......
";

    #[test]
    fn apaches_page_has_the_values_of_collectd() {
        let expected = [
            "apache_uptime_seconds  77",
            "apache_requests_total  12",
            "apache_bytes_total  9216",
            "apache_busy_workers  2",
            "apache_idle_workers  48",
            "apache_connections total 5",
            "apache_connections writing 1",
            "apache_connections keepalive 3",
            "apache_connections closing 0",
            "apache_scoreboard open 6",
            "apache_scoreboard waiting 7",
            "apache_scoreboard starting 1",
            "apache_scoreboard reading 0",
            "apache_scoreboard sending 1",
            "apache_scoreboard keepalive 1",
            "apache_scoreboard dnslookup 0",
            "apache_scoreboard closing 0",
            "apache_scoreboard logging 0",
            "apache_scoreboard finishing 0",
            "apache_scoreboard idle_cleanup 0",
        ];
        let found = show(APACHE, ServerType::Apache).expect("a status page");
        assert_eq!(found, expected);
    }

    #[test]
    fn lighttpd_has_other_letters() {
        let page = "Total Accesses: 8\nTotal kBytes: 0\nUptime: 12\nBusyServers: 1\nIdleServers: 127\nScoreboard: hrrS_\n";
        let found = show(page, ServerType::Lighttpd)
            .expect("a status page")
            .join("\n");
        for expected in [
            "apache_busy_workers  1",
            "apache_idle_workers  127",
            "apache_scoreboard handle_request 1",
            "apache_scoreboard read 2",
            "apache_scoreboard response_end 1",
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn other_pages_are_refused() {
        for page in [
            "",
            "<html><body>It works!</body></html>",
            "Total Accesses: 1\n",
            "a: b",
        ] {
            assert_eq!(show(page, ServerType::Apache), None, "{page}");
        }
    }
}
