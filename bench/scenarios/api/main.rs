//! Points posted in batches of 100, in the formats of OpenTSDB and Dragon: CPU time of the agent
//! per point, with few points in memory and with a million.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::{BenchReport, FigureGate, is_trial_run, process_cpu_time, release_binary};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{AgentAddress, AgentBuilder, AgentProcess};

const BATCH: usize = 100;
/// Number of batches per figure.
const BATCHES_PER_FIGURE: usize = 200;
const BUDGET: f64 = 5.0;

/// The format of a batch.
#[derive(Clone, Copy)]
enum PostFormat {
    Put,
    Dragon,
}

impl PostFormat {
    fn path(self) -> &'static str {
        match self {
            PostFormat::Put => "/api/put",
            PostFormat::Dragon => "/api/metrics",
        }
    }

    fn body(self, time: i64, value: usize) -> String {
        let mut body = String::with_capacity(BATCH * 100);
        if let PostFormat::Dragon = self {
            let _ = write!(body, "{{\"timestamp\":{time},\"dps\":");
        }
        for index in 0..BATCH {
            body.push(if index == 0 { '[' } else { ',' });
            let _ = write!(body, "{{\"metric\":\"app.work.figure{}\",", index % 25);
            if let PostFormat::Put = self {
                let _ = write!(body, "\"timestamp\":{time},");
            }
            let rank = index / 25;
            let _ = write!(
                body,
                "\"value\":{}.25,\"tags\":{{\"rank\":\"{rank}\"}}}}",
                value + index
            );
        }
        body.push(']');
        if let PostFormat::Dragon = self {
            body.push('}');
        }
        body
    }
}

/// A client with one persistent connection.
struct PostClient {
    stream: TcpStream,
    format: PostFormat,
    time: i64,
    step: i64,
    sent: usize,
}

impl PostClient {
    fn new(agent: &AgentProcess, format: PostFormat, time: i64) -> PostClient {
        let AgentAddress::Tcp(address) = *agent.http() else {
            panic!("the first listener is TCP");
        };
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        PostClient {
            stream,
            format,
            time,
            step: 100,
            sent: 0,
        }
    }

    fn post(&mut self) {
        let body = self.format.body(self.time, self.sent);
        self.time += self.step;
        self.sent += BATCH;
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            self.format.path(),
            body.len()
        );
        self.stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = [0; 4096];
        let count = self.stream.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..count]);
        let is_accepted = answer.starts_with("HTTP/1.1 204")
            || (answer.starts_with("HTTP/1.1 201") && answer.contains("\"success\":100"));
        assert!(is_accepted, "{answer}");
    }

    fn post_until(&mut self, points: usize) {
        while self.sent < points {
            self.post();
        }
    }
}

fn main() -> ExitCode {
    let mut report = BenchReport::new("api");
    let binary = release_binary();
    let held = if is_trial_run() { 50_000 } else { 1_000_000 };
    for (format, name) in [
        (PostFormat::Put, "/api/put"),
        (PostFormat::Dragon, "/api/metrics"),
    ] {
        let mut few = ApiTrial::new(&binary, format);
        let mut many = ApiTrial::new(&binary, format);
        many.client.post_until(held);
        // Alternating, so that other load on the machine affects both equally.
        let repetitions = report.repetitions(9);
        let pairs: Vec<(f64, f64)> = (0..repetitions)
            .map(|_| (few.figure(), many.figure()))
            .collect();
        let few_figures = pairs.iter().map(|(few, _)| *few).collect();
        let many_figures = pairs.iter().map(|(_, many)| *many).collect();
        let ratios = pairs.iter().map(|(few, many)| many / few).collect();
        let mut row = |work: &str, unit: &str, most: f64, figures: Vec<f64>| {
            report.row(
                &format!("{name}, {work}"),
                unit,
                FigureGate::AtMost(most),
                figures,
            );
        };
        row("few points in memory", "µs per point", BUDGET, few_figures);
        row(
            &format!("{held} points in memory"),
            "µs per point",
            BUDGET,
            many_figures,
        );
        row("ratio of the two", "×", 1.3, ratios);
        // Like programs whose clock has a resolution of one second.
        many.client.step = 0;
        let same = (0..repetitions).map(|_| many.figure()).collect();
        row("same timestamp", "µs per point", BUDGET, same);
        few.end();
        many.end();
    }
    report.finish()
}

/// An agent with one client.
struct ApiTrial {
    agent: AgentProcess,
    client: PostClient,
    /// CPU usage of the idle agent, as a share of one core.
    idle: f64,
}

impl ApiTrial {
    fn new(binary: &Path, format: PostFormat) -> ApiTrial {
        let agent = AgentBuilder::new(binary).start();
        let time = Duration::from_secs(if is_trial_run() { 1 } else { 5 });
        let before = process_cpu_time(agent.pid());
        std::thread::sleep(time);
        let idle = (process_cpu_time(agent.pid()) - before).as_secs_f64() / time.as_secs_f64();
        let start = SystemClock.utc() - 50 * 60 * 1000;
        let mut client = PostClient::new(&agent, format, start);
        client.post();
        ApiTrial {
            agent,
            client,
            idle,
        }
    }

    /// Measures the agent's CPU time per point, in microseconds, without its idle usage.
    fn figure(&mut self) -> f64 {
        let (before, started) = (process_cpu_time(self.agent.pid()), Instant::now());
        for _ in 0..BATCHES_PER_FIGURE {
            self.client.post();
        }
        let used = (process_cpu_time(self.agent.pid()) - before).as_secs_f64();
        let for_points = used - self.idle * started.elapsed().as_secs_f64();
        for_points * 1e6 / (BATCHES_PER_FIGURE * BATCH) as f64
    }

    fn end(self) {
        self.agent.assert_conserved();
        self.agent.stop();
    }
}
