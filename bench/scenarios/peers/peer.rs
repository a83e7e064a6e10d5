//! Other stores, loaded with the recorded hour.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_bench::{RecordedHour, process_cpu_time};
use pegel_metric::{MetricKind, Millis, Selector, format_value};
use pegel_store::RangeQuery;
use pegel_testkit::{AgentAddress, ChildProcess, TempDir, eventually_within, get, need};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerKind {
    VictoriaMetrics,
    Prometheus,
}

impl PeerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PeerKind::VictoriaMetrics => "VictoriaMetrics",
            PeerKind::Prometheus => "Prometheus",
        }
    }
}

/// A running store that contains the recorded hour.
pub(crate) struct PeerStore {
    kind: PeerKind,
    program: PathBuf,
    dir: TempDir,
    process: Option<ChildProcess>,
    address: SocketAddr,
}

impl PeerStore {
    /// Starts the peer and loads the hour; `None` if it is not installed.
    pub(crate) fn load(kind: PeerKind, hour: &RecordedHour) -> Option<PeerStore> {
        let program = match kind {
            PeerKind::VictoriaMetrics => need("victoria-metrics")?,
            PeerKind::Prometheus => need("prometheus")?,
        };
        let dir = TempDir::new();
        let mut peer = PeerStore {
            kind,
            program,
            dir,
            process: None,
            address: ([127, 0, 0, 1], 0).into(),
        };
        match kind {
            PeerKind::VictoriaMetrics => {
                peer.start();
                peer.post("/api/v1/import/prometheus", exposition(hour, 1).as_bytes());
                for path in ["/internal/force_flush", "/internal/force_merge"] {
                    get(&AgentAddress::Tcp(peer.address), path).expect("an answer");
                }
                peer.wait_until_merged();
            }
            PeerKind::Prometheus => {
                let file = peer.dir.path().join("hour.om");
                std::fs::write(&file, exposition(hour, 1000)).expect("written");
                let created = Command::new(need("promtool")?)
                    .args(["tsdb", "create-blocks-from", "openmetrics"])
                    .args([&file, &peer.dir.path().join("data")])
                    .output()
                    .expect("promtool starts");
                assert!(
                    created.status.success(),
                    "{}",
                    String::from_utf8_lossy(&created.stderr)
                );
                std::fs::remove_file(file).expect("removed");
                peer.start();
            }
        }
        assert!(
            !peer.query("node_load1", hour.start).is_empty(),
            "{} has the data",
            kind.name()
        );
        Some(peer)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the size of its data directory, index included, without write-ahead logs and caches.
    pub(crate) fn disk_bytes(&self) -> u64 {
        size_of_tree(
            &self.dir.path().join("data"),
            &["wal", "chunks_head", "flock.lock", "tmp", "cache"],
        )
    }

    /// Runs a range query over the hour, in steps of ten seconds; returns an empty text if there is
    /// no result.
    pub(crate) fn query(&self, query: &str, start: Millis) -> String {
        let encoded = query.replace('[', "%5B").replace(']', "%5D");
        let end = start + RecordedHour::MILLIS - 10_000;
        let path = format!(
            "/api/v1/query_range?query={encoded}&start={}&end={}&step=10s&nocache=1",
            start as f64 / 1e3,
            end as f64 / 1e3
        );
        let answer = get(&AgentAddress::Tcp(self.address), &path).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text().to_owned();
        if text.contains("\"result\":[]") {
            String::new()
        } else {
            text
        }
    }

    /// Returns the median CPU time of its process for a query, in milliseconds.
    pub(crate) fn cpu_ms(&self, repetitions: usize, query: impl Fn()) -> f64 {
        let pid = self.process.as_ref().expect("running").pid();
        let mut figures: Vec<f64> = (0..repetitions)
            .map(|_| {
                let before = process_cpu_time(pid);
                query();
                (process_cpu_time(pid).saturating_sub(before)).as_secs_f64() * 1e3
            })
            .collect();
        pegel_bench::median(&mut figures)
    }

    /// Kills and restarts the process; returns the time from its start to its first answer, in
    /// milliseconds.
    pub(crate) fn restart_ms(&mut self, start: Millis) -> f64 {
        if let Some(process) = self.process.take() {
            process.kill();
        }
        let before = Instant::now();
        self.start();
        while self.query("node_load1", start).is_empty() {
            assert!(
                before.elapsed() < Duration::from_secs(30),
                "{} answers",
                self.name()
            );
        }
        before.elapsed().as_secs_f64() * 1e3
    }

    fn start(&mut self) {
        // Neither reports a port that it selected itself, so a free one is selected here.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        self.address = listener.local_addr().expect("an address");
        drop(listener);
        let data = self.dir.path().join("data");
        let mut command = Command::new(&self.program);
        match self.kind {
            PeerKind::VictoriaMetrics => command
                .arg(format!("-storageDataPath={}", data.display()))
                .arg(format!("-httpListenAddr={}", self.address)),
            PeerKind::Prometheus => {
                let config = self.dir.path().join("prometheus.yml");
                std::fs::write(&config, "scrape_configs: []\n").expect("written");
                command
                    .arg(format!("--config.file={}", config.display()))
                    .arg(format!("--storage.tsdb.path={}", data.display()))
                    .arg(format!("--web.listen-address={}", self.address))
            }
        };
        let process = ChildProcess::start(&mut command);
        let path = if self.kind == PeerKind::Prometheus {
            "/-/ready"
        } else {
            "/health"
        };
        let address = AgentAddress::Tcp(self.address);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !get(&address, path).is_ok_and(|answer| answer.status == 200) {
            assert!(
                Instant::now() < deadline,
                "{} starts:\n{}",
                self.kind.name(),
                process.output()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        self.process = Some(process);
    }

    fn post(&self, path: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body))
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }

    fn wait_until_merged(&self) {
        let address = AgentAddress::Tcp(self.address);
        eventually_within(Duration::from_secs(60), "merges end", || {
            let answer = get(&address, "/metrics").map_err(|error| error.to_string())?;
            let busy = answer
                .text()
                .lines()
                .any(|line| line.starts_with("vm_active_merges") && !line.ends_with(" 0"));
            if busy {
                Err("still merging".to_owned())
            } else {
                Ok(())
            }
        });
        // Data in memory is written to disk within seconds.
        std::thread::sleep(Duration::from_secs(6));
    }
}

/// Formats the hour as text exposition with timestamps, series by series. Timestamps are divided by
/// `divisor`.
fn exposition(hour: &RecordedHour, divisor: Millis) -> String {
    let mut text = String::new();
    let mut family = String::new();
    let mut question = RangeQuery::new(
        Selector::all(),
        hour.start,
        hour.start + RecordedHour::MILLIS,
        None,
    );
    question.bytes_max = 1 << 30;
    hour.store
        .query_range(&question, &mut |series, points| {
            if family != series.name() {
                family = series.name().to_owned();
                let kind = if series.family().kind == MetricKind::Counter {
                    "counter"
                } else {
                    "gauge"
                };
                let name = if kind == "counter" {
                    family.trim_end_matches("_total")
                } else {
                    &family
                };
                let _ = writeln!(text, "# TYPE {name} {kind}");
            }
            for (time, value) in points {
                text.push_str(series.text());
                text.push(' ');
                format_value(&mut text, *value);
                let _ = writeln!(text, " {}", time / divisor);
            }
        })
        .expect("an answer");
    text.push_str("# EOF\n");
    text
}

/// Returns the size of all files below a directory, except for entries named in `excluded`.
fn size_of_tree(path: &Path, excluded: &[&str]) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| !excluded.contains(&entry.file_name().to_string_lossy().as_ref()))
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of_tree(&entry.path(), excluded),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
