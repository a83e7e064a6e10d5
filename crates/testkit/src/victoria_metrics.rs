//! Runs a recent VictoriaMetrics, which accepts OTLP.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::http::{self, AgentAddress};
use crate::poll::eventually_within;
use crate::{ChildProcess, TempDir, need_peer};

const START_TIME: Duration = Duration::from_secs(60);

/// A running VictoriaMetrics on a free port.
#[derive(Debug)]
pub struct VictoriaMetrics {
    process: ChildProcess,
    address: AgentAddress,
    _home: TempDir,
}

impl VictoriaMetrics {
    /// Starts it; `None` as for [`need_peer`].
    #[track_caller]
    pub fn start() -> Option<VictoriaMetrics> {
        let program = need_peer("victoria-metrics/usr/bin/victoria-metrics")?;
        let home = TempDir::new();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = port.expect("a free port");
        let mut command = Command::new(program);
        command
            .arg(format!("-httpListenAddr={address}"))
            .arg(format!("-storageDataPath={}", home.path().display()))
            .args([
                "-search.latencyOffset=0s",
                "-opentelemetry.usePrometheusNaming",
            ])
            .current_dir(home.path());
        let mut process = ChildProcess::start(&mut command);
        let address = AgentAddress::Tcp(address);
        eventually_within(START_TIME, "VictoriaMetrics answers", || {
            assert!(!process.has_ended(), "{}", process.output());
            http::get(&address, "/health").map_err(|error| error.to_string())
        });
        Some(VictoriaMetrics {
            process,
            address,
            _home: home,
        })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn address(&self) -> &AgentAddress {
        &self.address
    }

    /// Returns the URL for exporters of OTLP, which append `/v1/metrics`.
    pub fn otlp_endpoint(&self) -> String {
        format!("http://{}/opentelemetry", self.address)
    }

    /// Evaluates an expression now, over everything that arrived.
    pub fn query(&self, expression: &str) -> Result<Value, String> {
        http::get(&self.address, "/internal/force_flush").map_err(|error| error.to_string())?;
        let query: String = { expression.bytes() }
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        let path = format!("/api/v1/query?nocache=1&query={query}");
        let answer = http::get(&self.address, &path).map_err(|error| error.to_string())?;
        match answer.status {
            200 => Ok(answer.json()),
            _ => Err(answer.text().to_owned()),
        }
    }
}
