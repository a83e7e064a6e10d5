//! Other stores, loaded with the samples of a store: VictoriaMetrics, and Prometheus of two
//! versions.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_metric::Millis;
use pegel_testkit::{
    AgentAddress, ChildProcess, TempDir, eventually_within, get, need, need_peer, post,
};

use crate::{process_cpu_time, resident_mb};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// Debian's version.
    VictoriaMetrics,
    /// Debian's version.
    Prometheus,
    /// The version that PromQL is compared with, from `target/peers`.
    Prometheus3,
}

impl PeerKind {
    pub fn name(self) -> &'static str {
        match self {
            PeerKind::VictoriaMetrics => "VictoriaMetrics",
            PeerKind::Prometheus => "Prometheus",
            PeerKind::Prometheus3 => "Prometheus 3",
        }
    }

    /// Returns the server and the program that writes its blocks, if both are installed.
    fn programs(self) -> Option<(PathBuf, PathBuf)> {
        match self {
            PeerKind::VictoriaMetrics => {
                need("victoria-metrics").map(|program| (program, PathBuf::new()))
            }
            PeerKind::Prometheus => need("prometheus").zip(need("promtool")),
            // The package of version 3 has no promtool; blocks have the same format.
            PeerKind::Prometheus3 => {
                need_peer("prometheus/usr/bin/prometheus").zip(need("promtool"))
            }
        }
    }

    /// Returns the unit of timestamps in the text that it imports, in milliseconds.
    fn time_unit(self) -> Millis {
        match self {
            PeerKind::VictoriaMetrics => 1,
            PeerKind::Prometheus | PeerKind::Prometheus3 => 1_000,
        }
    }
}

/// A running store.
#[derive(Debug)]
pub struct PeerStore {
    kind: PeerKind,
    program: PathBuf,
    dir: TempDir,
    process: Option<ChildProcess>,
    address: SocketAddr,
}

impl PeerStore {
    /// Starts the peer with these samples; `None` if it is not installed. Each part is a function
    /// of the unit of timestamps that returns an exposition, so that only one of them is in memory
    /// at a time.
    pub fn load(kind: PeerKind, parts: &[&dyn Fn(Millis) -> String]) -> Option<PeerStore> {
        let (program, block_writer) = kind.programs()?;
        let mut peer = PeerStore {
            kind,
            program,
            dir: TempDir::new(),
            process: None,
            address: ([127, 0, 0, 1], 0).into(),
        };
        let expositions = parts.iter().map(|part| part(kind.time_unit()));
        if kind == PeerKind::VictoriaMetrics {
            peer.start();
            for text in expositions {
                let address = AgentAddress::Tcp(peer.address);
                let answer = post(&address, "/api/v1/import/prometheus", &[], text.as_bytes());
                let status = answer.expect("an answer").status;
                assert!((200..300).contains(&status), "{status}");
            }
            for path in ["/internal/force_flush", "/internal/force_merge"] {
                get(&AgentAddress::Tcp(peer.address), path).expect("an answer");
            }
            peer.wait_until_merged();
        } else {
            for text in expositions {
                peer.write_block(&block_writer, &text);
            }
            peer.start();
        }
        Some(peer)
    }

    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    pub fn address(&self) -> AgentAddress {
        AgentAddress::Tcp(self.address)
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("running").pid()
    }

    pub fn resident_mb(&self) -> f64 {
        resident_mb(self.pid())
    }

    /// Returns the size of its data directory, index included, without write-ahead logs and caches.
    pub fn disk_bytes(&self) -> u64 {
        size_of_tree(
            &self.dir.path().join("data"),
            &["wal", "chunks_head", "flock.lock", "tmp", "cache"],
        )
    }

    /// Returns the median CPU time of its process for a query, in milliseconds.
    pub fn cpu_ms(&self, repetitions: usize, query: impl Fn()) -> f64 {
        let mut figures: Vec<f64> = (0..repetitions)
            .map(|_| {
                let before = process_cpu_time(self.pid());
                query();
                (process_cpu_time(self.pid()).saturating_sub(before)).as_secs_f64() * 1e3
            })
            .collect();
        crate::median(&mut figures)
    }

    /// Kills and restarts the process; returns the time from its start until `answers` returns
    /// true, in milliseconds.
    pub fn restart_ms(&mut self, answers: impl Fn(&PeerStore) -> bool) -> f64 {
        if let Some(process) = self.process.take() {
            process.kill();
        }
        let before = Instant::now();
        self.start();
        while !answers(self) {
            let waited = before.elapsed();
            assert!(waited < Duration::from_secs(30), "{} answers", self.name());
        }
        before.elapsed().as_secs_f64() * 1e3
    }

    fn write_block(&self, block_writer: &Path, text: &str) {
        let file = self.dir.path().join("samples.om");
        std::fs::write(&file, text).expect("written");
        let created = Command::new(block_writer)
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&file, &self.dir.path().join("data")])
            .output()
            .expect("promtool starts");
        let errors = String::from_utf8_lossy(&created.stderr);
        assert!(created.status.success(), "{errors}");
        std::fs::remove_file(file).expect("removed");
    }

    fn start(&mut self) {
        // Neither reports a port that it selected itself, so a free one is selected here.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        self.address = listener.local_addr().expect("an address");
        drop(listener);
        let data = self.dir.path().join("data");
        let mut command = Command::new(&self.program);
        let ready_path = match self.kind {
            PeerKind::VictoriaMetrics => {
                command
                    .arg(format!("-storageDataPath={}", data.display()))
                    .arg(format!("-httpListenAddr={}", self.address));
                "/health"
            }
            PeerKind::Prometheus | PeerKind::Prometheus3 => {
                let config = self.dir.path().join("prometheus.yml");
                std::fs::write(&config, "scrape_configs: []\n").expect("written");
                command
                    .arg(format!("--config.file={}", config.display()))
                    .arg(format!("--storage.tsdb.path={}", data.display()))
                    .arg(format!("--web.listen-address={}", self.address));
                "/-/ready"
            }
        };
        let process = ChildProcess::start(&mut command);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !get(&self.address(), ready_path).is_ok_and(|answer| answer.status == 200) {
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

    fn wait_until_merged(&self) {
        eventually_within(Duration::from_secs(60), "merges end", || {
            let answer = get(&self.address(), "/metrics").map_err(|error| error.to_string())?;
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
