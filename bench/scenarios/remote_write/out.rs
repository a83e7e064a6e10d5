//! Measures remote write out. The agent receives samples while the receiver does not answer, then
//! sends them. Reports samples per second of CPU time for sending alone, and for receiving and
//! sending together beside vmagent, which encodes samples already when it receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pegel_bench::{BenchReport, FigureGate, process_cpu_time, release_binary};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{
    AgentAddress, AgentBuilder, AgentProcess, ChildProcess, TempDir, eventually_within, get, need,
};

use super::requests::{RequestVersion, SERIES, Scrapes};
use super::{BUDGET, SCRAPES, WriteClient};

const BOUND: Duration = Duration::from_secs(120);

/// A receiver that discards samples, and answers only while it is open.
struct Drain {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

impl Drain {
    fn start() -> Drain {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let is_open = Arc::new(AtomicBool::new(true));
        let bytes = Arc::new(AtomicU64::new(0));
        let shared = (is_open.clone(), bytes.clone());
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (is_open, bytes) = shared.clone();
                thread::spawn(move || drain(stream, &is_open, &bytes));
            }
        });
        Drain {
            address,
            is_open,
            bytes,
        }
    }

    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }
}

fn drain(stream: TcpStream, is_open: &AtomicBool, bytes: &AtomicU64) {
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    loop {
        let lines = reader.by_ref().lines().map_while(Result::ok);
        let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let length = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.parse::<usize>().ok())?
        });
        let Some(length) = length else {
            return;
        };
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        while !is_open.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        let answer =
            "HTTP/1.1 204 No Content\r\nX-Prometheus-Remote-Write-Samples-Written: 1\r\n\r\n";
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn start_agent(drain: &Drain, version: RequestVersion) -> AgentProcess {
    let message = match version {
        RequestVersion::V1 => "prometheus.WriteRequest",
        RequestVersion::V2 => "io.prometheus.write.v2.Request",
    };
    // Without collectors: samples of the node would be counted, too.
    let config = format!(
        "remote_write: [{{url: 'http://{}/w', interval: 100ms, timeout: 10m, protobuf_message: {message}, \
         keep: ['{{__name__=~\"container_.*\"}}']}}]\n",
        drain.address
    );
    AgentBuilder::new(release_binary()).config(&config).start()
}

fn sent(agent: &AgentProcess) -> u64 {
    let status = agent.status();
    status["remote_write_out"][0]["sent"]
        .as_u64()
        .expect("a count")
}

/// Waits until everything is sent; returns the number of samples.
fn until_sent(agent: &AgentProcess, expected: u64) -> u64 {
    eventually_within(BOUND, "everything is sent", || {
        let sent = sent(agent);
        if sent >= expected {
            Ok(sent)
        } else {
            Err(sent)
        }
    })
}

/// Reports the figures of both versions.
pub(crate) fn rows(report: &mut BenchReport, repetitions: usize) {
    for version in [RequestVersion::V1, RequestVersion::V2] {
        let drain = Drain::start();
        let agent = start_agent(&drain, version);
        let AgentAddress::Tcp(address) = *agent.http() else {
            panic!("the first listener is TCP");
        };
        let mut input = WriteClient::connect(agent.pid(), address);
        let mut peer = match version {
            RequestVersion::V1 => Vmagent::start(&drain),
            RequestVersion::V2 => None,
        };
        let mut scrapes = Scrapes::new(version, SystemClock.utc() - 3_600_000);
        let first = scrapes.bodies(1);
        first.iter().for_each(|body| input.post(version, body));
        if let Some(peer) = &mut peer {
            first.iter().for_each(|body| peer.input.post(version, body));
        }
        let mut expected = until_sent(&agent, SERIES as u64);
        let (mut out, mut both, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let bodies = scrapes.bodies(SCRAPES);
            let samples = (SCRAPES * SERIES) as f64;
            drain.set_open(false);
            let before = process_cpu_time(agent.pid());
            bodies.iter().for_each(|body| input.post(version, body));
            // Requests under way when the receiver closes are encoded already.
            thread::sleep(Duration::from_millis(300));
            let received = process_cpu_time(agent.pid());
            drain.set_open(true);
            expected = until_sent(&agent, expected + (SCRAPES * SERIES) as u64);
            let done = process_cpu_time(agent.pid());
            let rate = |spent: Duration| samples / spent.as_secs_f64() / 1e6;
            out.push(rate(done.saturating_sub(received)));
            both.push(rate(done.saturating_sub(before)));
            if let Some(peer) = &mut peer {
                theirs.push(rate(peer.pass_on(&drain, version, &bodies)));
            }
        }
        agent.assert_conserved();
        let name = version.name();
        let unit = "M samples per CPU s";
        report.row(
            &format!("remote write {name} out, 10,000 series"),
            unit,
            FigureGate::AtLeast(BUDGET),
            out,
        );
        let theirs = (!theirs.is_empty()).then(|| pegel_bench::median(&mut theirs));
        let peers: Vec<(&str, f64)> = theirs
            .map(|figure| ("vmagent", figure))
            .into_iter()
            .collect();
        report.row_with_peers(
            &format!("remote write {name} in and out"),
            unit,
            FigureGate::None,
            both,
            &peers,
        );
    }
}

/// vmagent, which forwards the samples that it receives.
struct Vmagent {
    input: WriteClient,
    _process: ChildProcess,
    _dir: TempDir,
}

impl Vmagent {
    fn start(drain: &Drain) -> Option<Vmagent> {
        let program = need("vmagent")?;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let dir = TempDir::new();
        let mut command = Command::new(program);
        command
            .arg(format!("-remoteWrite.url=http://{}/w", drain.address))
            .arg(format!("-remoteWrite.tmpDataPath={}", dir.path().display()))
            .arg(format!("-httpListenAddr={address}"))
            .arg("-remoteWrite.queues=1");
        let process = ChildProcess::start(&mut command);
        eventually_within(Duration::from_secs(30), "vmagent starts", || {
            let answer = get(&AgentAddress::Tcp(address), "/health");
            let is_up = answer.is_ok_and(|answer| answer.status == 200);
            is_up.then_some(()).ok_or_else(|| process.output())
        });
        Some(Vmagent {
            input: WriteClient::connect(process.pid(), address),
            _process: process,
            _dir: dir,
        })
    }

    /// Sends samples through vmagent. Returns its CPU time until no more samples arrive.
    fn pass_on(&mut self, drain: &Drain, version: RequestVersion, bodies: &[Vec<u8>]) -> Duration {
        let before = process_cpu_time(self.input.pid);
        bodies
            .iter()
            .for_each(|body| self.input.post(version, body));
        let mut last = drain.bytes.load(Ordering::Relaxed);
        loop {
            // It flushes once a second.
            thread::sleep(Duration::from_millis(1500));
            let now = drain.bytes.load(Ordering::Relaxed);
            if now == last {
                break;
            }
            last = now;
        }
        process_cpu_time(self.input.pid).saturating_sub(before)
    }
}
