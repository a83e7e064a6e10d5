//! OTLP: requests as a collector of OpenTelemetry sends them over HTTP in protobuf, 1,000 data
//! points each, with ten attributes. CPU time of the agent per million data points, from the socket
//! to the log, beside VictoriaMetrics in the same run.

mod requests;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use pegel_bench::{BenchReport, FigureGate, median, process_cpu_time, release_binary};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{AgentAddress, AgentBuilder, VictoriaMetrics};

use requests::{ExportKind, Exports};

/// Exports per figure.
const EXPORTS: usize = 40;

/// A receiver of OTLP, with one persistent connection.
struct OtlpClient {
    pid: u32,
    path: &'static str,
    stream: TcpStream,
}

impl OtlpClient {
    fn connect(pid: u32, address: &AgentAddress, path: &'static str) -> OtlpClient {
        let AgentAddress::Tcp(address) = address else {
            panic!("the first listener is TCP");
        };
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        OtlpClient { pid, path, stream }
    }

    fn post(&mut self, body: &[u8]) {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
            self.path,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        self.stream.write_all(&request).expect("sent");
        let mut answer = [0; 4096];
        let count = self.stream.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..count]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Sends requests; returns the seconds of CPU time per million data points.
    fn figure(&mut self, bodies: &[Vec<u8>], points: usize) -> f64 {
        let before = process_cpu_time(self.pid);
        for body in bodies {
            self.post(body);
        }
        let spent = process_cpu_time(self.pid).saturating_sub(before);
        spent.as_secs_f64() * 1e6 / points as f64
    }
}

fn main() -> ExitCode {
    let mut report = BenchReport::new("otlp");
    let agent = AgentBuilder::new(release_binary()).start();
    let mut pegel = OtlpClient::connect(agent.pid(), agent.http(), "/v1/metrics");
    let victoria = VictoriaMetrics::start();
    let mut peer = victoria.as_ref().map(|victoria| {
        let path = "/opentelemetry/v1/metrics";
        OtlpClient::connect(victoria.pid(), victoria.address(), path)
    });
    let repetitions = report.repetitions(9);
    let start = SystemClock.utc() - 3_600_000;
    for kind in ExportKind::ALL {
        let mut exports = Exports::new(kind, start);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // VictoriaMetrics does not add increases up.
        let mut peer = peer.as_mut().filter(|_| kind != ExportKind::Increase);
        // The first export creates the series.
        for body in exports.bodies(1) {
            pegel.post(&body);
            if let Some(peer) = &mut peer {
                peer.post(&body);
            }
        }
        for _ in 0..repetitions {
            let bodies = exports.bodies(EXPORTS);
            let points = EXPORTS * kind.streams();
            ours.push(pegel.figure(&bodies, points));
            if let Some(peer) = &mut peer {
                theirs.push(peer.figure(&bodies, points));
            }
        }
        let theirs = (!theirs.is_empty()).then(|| median(&mut theirs));
        let peers: Vec<(&str, f64)> = theirs
            .map(|figure| ("VictoriaMetrics", figure))
            .into_iter()
            .collect();
        let (unit, gate) = ("CPU s per M data points", FigureGate::None);
        report.row_with_peers(kind.work(), unit, gate, ours, &peers);
    }
    agent.assert_conserved();
    report.finish()
}
