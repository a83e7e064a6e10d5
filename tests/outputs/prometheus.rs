//! Comparison with Prometheus: its linter checks the metrics, and a real server scrapes them in
//! both formats.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pegel_metric::{Family, Input, MetricKind, Series};
use pegel_testkit::{
    AgentAddress, AgentProcess, ExporterReadings, PrometheusProcess, TempDir, eventually, fixture,
    get_with, need,
};
use serde_json::Value;

use crate::PEGEL;

/// Prefixes of names that the linter reports and that others have defined, with their origin.
const FOREIGN: [(&str, &str); 8] = [
    (
        "node_memory_",
        "node_exporter takes the keys of /proc/meminfo and of NUMA nodes as they are",
    ),
    (
        "node_netstat_",
        "node_exporter takes the keys of /proc/net/snmp and netstat as they are",
    ),
    ("node_entropy_", "node_exporter counts the pool in bits"),
    (
        "node_kernel_hung_tasks",
        "dashboards for node_exporter ask for it by this name",
    ),
    (
        "node_infiniband_",
        "drivers name their counters as they like",
    ),
    ("DeviceUtilization", "Dragon"),
    ("DeviceMemoryUtilization", "Dragon"),
    ("DevicePowerUsage", "Dragon"),
];

fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|(start, _)| name.starts_with(start))
}

fn fixture_agent() -> AgentProcess {
    PEGEL.agent().env("PEGEL_ROOT", fixture("basic")).start()
}

/// Returns the names that `promtool check metrics` reports.
fn lint(promtool: &std::path::Path, text: &str) -> BTreeMap<String, String> {
    let dir = TempDir::new();
    fs::write(dir.join("metrics"), text).expect("a file for promtool");
    let input = fs::File::open(dir.join("metrics")).expect("the file just written");
    let output = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(input)
        .output()
        .expect("promtool");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // 0: no problem; 3: problems with names; otherwise it could not parse the text.
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 3)),
        "promtool: {code:?}\n{complaints}\n{text}"
    );
    complaints
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, complaint)| (name.to_owned(), complaint.to_owned()))
        .collect()
}

#[test]
fn promtool_reports_only_names_defined_by_others() {
    let Some(promtool) = need("promtool") else {
        return;
    };
    let agent = fixture_agent();
    let complaints = lint(&promtool, agent.get("/metrics").text());
    for (name, complaint) in &complaints {
        assert!(is_foreign(name), "{name} {complaint}");
    }
    for (start, _) in FOREIGN {
        assert!(
            complaints.keys().any(|name| name.starts_with(start)),
            "{start} need not be on the list"
        );
    }
    agent.assert_conserved();
}

#[test]
fn promtool_accepts_what_this_machine_gives() {
    let Some(promtool) = need("promtool") else {
        return;
    };
    let agent = PEGEL.agent().start();
    for (name, complaint) in lint(&promtool, agent.get("/metrics").text()) {
        assert!(is_foreign(&name), "{name} {complaint}");
    }
    agent.assert_conserved();
}

/// A proxy that forwards scrapes to the agent but requests the text format: this version of
/// Prometheus uses OpenMetrics whenever it is offered.
struct TextRelay {
    address: SocketAddr,
    /// The `Accept` header of Prometheus.
    accept: Arc<Mutex<Option<String>>>,
}

impl TextRelay {
    fn start(agent: AgentAddress) -> TextRelay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let accept = Arc::new(Mutex::new(None));
        let seen = accept.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A failed scrape is a missing value in the test.
                let _ = relay(stream, &agent, &seen);
            }
        });
        TextRelay { address, accept }
    }
}

fn relay(
    mut stream: TcpStream,
    agent: &AgentAddress,
    seen: &Mutex<Option<String>>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let accept = head.lines().find_map(|line| line.strip_prefix("Accept: "));
    *seen.lock() = accept.map(str::to_owned);
    let answer = get_with(agent, "/metrics", &[("Accept", "text/plain;version=0.0.4")])?;
    assert!(
        answer
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain"))
    );
    write!(
        stream,
        "HTTP/1.1 {} Relayed\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.body.len()
    )?;
    stream.write_all(&answer.body)
}

fn start_prometheus(program: &std::path::Path, jobs: &[(&str, SocketAddr)]) -> PrometheusProcess {
    let mut config = String::from("global: {scrape_interval: 1s}\nscrape_configs:\n");
    for (job, target) in jobs {
        config.push_str(&format!(
            "  - {{job_name: {job}, static_configs: [{{targets: ['{target}']}}]}}\n"
        ));
    }
    let prometheus = PrometheusProcess::start(program, |home| {
        fs::write(home.join("prometheus.yml"), config).expect("a configuration");
        vec![
            format!("--config.file={}", home.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
        ]
    });
    prometheus.until_ready()
}

/// Returns the current values of all series with this label, by series text, without labels that
/// Prometheus adds.
fn query(prometheus: &PrometheusProcess, job: &str) -> BTreeMap<String, f64> {
    let answer = prometheus
        .get(&format!(
            "/api/v1/query?query=%7B__name__%3D~%22.%2B%22%2Cjob%3D%22{job}%22%7D"
        ))
        .json();
    assert_eq!(answer["status"], "success", "{answer}");
    let results = answer["data"]["result"]
        .as_array()
        .expect("a list of series");
    results
        .iter()
        .map(|result| (text_of(&result["metric"]), value_of(result)))
        .collect()
}

fn text_of(metric: &Value) -> String {
    let metric = metric.as_object().expect("labels");
    let name = metric["__name__"].as_str().expect("a name");
    let mut labels: Vec<String> = metric
        .iter()
        .filter(|(key, _)| !["__name__", "job", "instance"].contains(&key.as_str()))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.sort();
    joined(name, &labels)
}

/// Removes labels with an empty value, which Prometheus treats as absent.
fn without_empty_labels(series: &str) -> String {
    let family = |name: &str| {
        let name = name.to_owned().into();
        Arc::new(Family {
            name,
            kind: MetricKind::Unknown,
            help: "".into(),
            unit: "".into(),
            level: 0,
            input: Input::Collect,
        })
    };
    let series = Series::parse(series, family).expect("a series");
    let labels: Vec<String> = series
        .labels()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}={}", Value::from(value)))
        .collect();
    joined(series.name(), &labels)
}

fn joined(name: &str, labels: &[String]) -> String {
    if labels.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", labels.join(","))
    }
}

fn value_of(result: &Value) -> f64 {
    result["value"][1]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

/// Returns whether Prometheus added the series, or its value changes although the fixture does not.
fn stands_still(series: &str) -> bool {
    // The free space is that of the machine's own disk.
    let moving = [
        "pegel_",
        "scrape_",
        "up",
        "node_time_seconds",
        "node_filesystem_avail_bytes",
        "node_filesystem_free_bytes",
        "node_filesystem_files_free",
    ];
    !moving.iter().any(|beginning| series.starts_with(beginning))
}

#[test]
fn a_real_prometheus_scrapes_both_formats_and_answers_with_our_values() {
    let Some(program) = need("prometheus") else {
        return;
    };
    let agent = fixture_agent();
    let relay = TextRelay::start(agent.http().clone());
    let AgentAddress::Tcp(direct) = *agent.http() else {
        panic!("the first listener is TCP")
    };
    let jobs = [("openmetrics", direct), ("text", relay.address)];
    let prometheus = start_prometheus(&program, &jobs);

    let ours = || -> BTreeMap<String, f64> {
        let ours = ExporterReadings::parse_prometheus(agent.get("/metrics").text());
        let values = ours.values.into_iter();
        values
            .filter(|(series, _)| stands_still(series))
            .map(|(series, value)| (without_empty_labels(&series), value))
            .collect()
    };
    let count = ours().len();
    assert!(count > 100, "the fixture has more than {count} series");
    for (job, _) in jobs {
        eventually("Prometheus has our values", || {
            let mut theirs = query(&prometheus, job);
            if theirs.get("up") != Some(&1.0) {
                return Err(format!("{job}: not scraped yet"));
            }
            theirs.retain(|series, _| stands_still(series));
            // Read again: collectors with a thread of their own may deliver their first values
            // after Prometheus asked.
            differences(&ours(), &theirs).map_err(|difference| format!("{job}: {difference}"))
        });
    }

    // The direct scrape used OpenMetrics, which the agent selects for the `Accept` header of
    // Prometheus.
    let accept = relay
        .accept
        .lock()
        .clone()
        .expect("Prometheus sends Accept");
    let answer = get_with(agent.http(), "/metrics", &[("Accept", &accept)]).expect("an answer");
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(
        kind.starts_with("application/openmetrics-text"),
        "{kind} for {accept}"
    );
    agent.assert_conserved();
}

/// Checks that both have the same series with identical bits.
fn differences(ours: &BTreeMap<String, f64>, theirs: &BTreeMap<String, f64>) -> Result<(), String> {
    for (series, value) in ours {
        match theirs.get(series) {
            None => return Err(format!("{series} is missing")),
            Some(other) if other.to_bits() != value.to_bits() => {
                return Err(format!("{series} is {other}, not {value}"));
            }
            Some(_) => {}
        }
    }
    match theirs.keys().find(|series| !ours.contains_key(*series)) {
        Some(series) => Err(format!("{series} is not ours")),
        None => Ok(()),
    }
}
