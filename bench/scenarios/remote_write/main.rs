//! Remote write: requests as a Prometheus sends them, 2,000 samples each, one per series, to 10,000
//! series with ten labels. Samples per second of the agent's CPU time, from the socket to the log,
//! beside VictoriaMetrics in the same run; and the other direction
//! (`out.rs`).

mod out;
mod requests;
mod victoria;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;

use pegel_bench::{BenchReport, FigureGate, process_cpu_time, release_binary, thread_cpu_time};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{AgentAddress, AgentBuilder};
use pegel_wire::prompb::{Message, WriteRequest};
use pegel_wire::remote_write::{WriteItem, WriteRequestV1};

use requests::{RequestVersion, SERIES, Scrapes};
use victoria::Victoria;

/// Millions of samples per second of CPU time.
const BUDGET: f64 = 2.5;
/// Scrapes per figure.
const SCRAPES: usize = 40;

/// A receiver of remote write, with one persistent connection.
struct WriteClient {
    pid: u32,
    stream: TcpStream,
}

impl WriteClient {
    fn connect(pid: u32, address: SocketAddr) -> WriteClient {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        WriteClient { pid, stream }
    }

    fn post(&mut self, version: RequestVersion, body: &[u8]) {
        let head = format!(
            "POST /api/v1/write HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: snappy\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
            version.content_type(),
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        self.stream.write_all(&request).expect("sent");
        let mut answer = [0; 4096];
        let count = self.stream.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..count]);
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    /// Sends scrapes; returns millions of samples per second of CPU time.
    fn figure(&mut self, version: RequestVersion, bodies: &[Vec<u8>]) -> f64 {
        let before = process_cpu_time(self.pid);
        for body in bodies {
            self.post(version, body);
        }
        let spent = process_cpu_time(self.pid).saturating_sub(before);
        (SCRAPES * SERIES) as f64 / spent.as_secs_f64() / 1e6
    }
}

/// Reports what decoding alone costs: in place, and into the structs of prost.
fn decoders(report: &mut BenchReport, repetitions: usize, start: i64) {
    let body = &Scrapes::new(RequestVersion::V1, start).bodies(1)[0];
    let message = snap::raw::Decoder::new().decompress_vec(body);
    let message = message.expect("compressed above");
    let per_sample = |decode: &dyn Fn() -> usize| -> Vec<f64> {
        let figure = |_| {
            let before = thread_cpu_time();
            let count: usize = (0..50).map(|_| decode()).sum();
            let spent = thread_cpu_time().saturating_sub(before);
            spent.as_secs_f64() * 1e9 / count as f64
        };
        (0..repetitions).map(figure).collect()
    };
    let in_place = || {
        let items = WriteRequestV1::new(&message).map(|item| match item {
            Ok(WriteItem::Series(series)) => series.samples.count(),
            _ => 0,
        });
        items.sum()
    };
    let prost = || {
        let request = WriteRequest::decode(&*message).expect("valid");
        request
            .timeseries
            .iter()
            .map(|series| series.samples.len())
            .sum()
    };
    let unit = "ns per sample";
    report.row(
        "a message of 1.0, read in place",
        unit,
        FigureGate::None,
        per_sample(&in_place),
    );
    report.row(
        "a message of 1.0, decoded by prost",
        unit,
        FigureGate::None,
        per_sample(&prost),
    );
}

fn main() -> ExitCode {
    let mut report = BenchReport::new("remote_write");
    let agent = AgentBuilder::new(release_binary()).start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("the first listener is TCP");
    };
    let mut pegel = WriteClient::connect(agent.pid(), address);
    let victoria = Victoria::start();
    let mut peer = victoria
        .as_ref()
        .map(|victoria| WriteClient::connect(victoria.pid(), victoria.address));
    let repetitions = report.repetitions(9);
    let start = SystemClock.utc() - 3_600_000;
    for version in [RequestVersion::V1, RequestVersion::V2] {
        let mut scrapes = Scrapes::new(version, start);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first scrape creates the series.
        for body in scrapes.bodies(1) {
            pegel.post(version, &body);
            if let (Some(peer), RequestVersion::V1) = (&mut peer, version) {
                peer.post(version, &body);
            }
        }
        for _ in 0..repetitions {
            let bodies = scrapes.bodies(SCRAPES);
            ours.push(pegel.figure(version, &bodies));
            // It does not read version 2.0.
            if let (Some(peer), RequestVersion::V1) = (&mut peer, version) {
                theirs.push(peer.figure(version, &bodies));
            }
        }
        let theirs = (!theirs.is_empty()).then(|| pegel_bench::median(&mut theirs));
        let peers: Vec<(&str, f64)> = theirs
            .map(|figure| ("VictoriaMetrics", figure))
            .into_iter()
            .collect();
        report.row_with_peers(
            &format!("remote write {}, 10,000 series", version.name()),
            "M samples per CPU s",
            FigureGate::AtLeast(BUDGET),
            ours,
            &peers,
        );
    }
    agent.assert_conserved();
    drop(agent);
    drop(victoria);
    out::rows(&mut report, repetitions);
    decoders(&mut report, repetitions, start);
    report.finish()
}
