//! Measures how many statsd metrics an agent receives without loss. Requires only the agent's
//! binary:
//!
//! ```text
//! statsd_load PEGEL [senders=4] [seconds=5] [lines=20] [rates=2,4,5,6,7,8] [threads=auto]
//! ```
//!
//! Starts the agent in a temporary directory, sends from `senders` threads, each with its own
//! socket, and prints a row for each rate. Rates are millions of metrics per second over all
//! senders; 0 means unlimited.

#![allow(clippy::print_stdout, clippy::print_stderr)] // A command-line tool.

#[path = "../../scenarios/statsd/load.rs"]
mod load;

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::process_cpu_time;
use pegel_testkit::{AgentBuilder, AgentProcess};

struct LoadPlan {
    senders: u64,
    time: Duration,
    lines: u64,
    rates: Vec<f64>,
    threads: String,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some((binary, plan)) = args.next().zip(parse_args(args)) else {
        eprintln!(
            "usage: statsd_load PEGEL [senders=4] [seconds=5] [lines=20] [rates=2,4,5,6,7,8] [threads=auto]"
        );
        return ExitCode::FAILURE;
    };
    let agent = AgentBuilder::new(binary)
        .config(&format!("statsd: {{threads: {}}}", plan.threads))
        .start();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{} senders, {} per datagram, {:?} each, threads: {}, {cores} cores",
        plan.senders, plan.lines, plan.time, plan.threads
    );
    println!("target M/s | sent M/s | received M/s | lost % | unaccounted | CPU s per M | helping");
    for &rate in &plan.rates {
        measure_rate(&agent, &plan, rate);
    }
    agent.stop();
    ExitCode::SUCCESS
}

fn parse_args(args: impl Iterator<Item = String>) -> Option<LoadPlan> {
    let mut plan = LoadPlan {
        senders: 4,
        time: Duration::from_secs(5),
        lines: 20,
        rates: vec![2.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        threads: "auto".to_owned(),
    };
    for arg in args {
        let (key, value) = arg.split_once('=')?;
        match key {
            "senders" => plan.senders = value.parse().ok()?,
            "seconds" => plan.time = Duration::from_secs(value.parse().ok()?),
            "lines" => plan.lines = value.parse().ok()?,
            "rates" => {
                plan.rates = value
                    .split(',')
                    .map(|rate| rate.parse().ok())
                    .collect::<Option<_>>()?
            }
            "threads" => plan.threads = value.to_owned(),
            _ => return None,
        }
    }
    Some(plan)
}

/// Returns the number of received metrics, of datagrams dropped by the kernel, and of helping
/// threads.
fn counts(agent: &AgentProcess) -> (u64, u64, u64) {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list");
    let statsd = inputs.iter().find(|input| input["input"] == "statsd");
    let statsd = statsd.expect("an entry for statsd");
    let kernel = statsd["dropped"]["kernel"].as_u64().unwrap_or(0);
    let received = statsd["received"].as_u64().expect("a number") - kernel;
    let helping = status["statsd"]["helping_threads"].as_u64().unwrap_or(0);
    (received, kernel, helping)
}

fn measure_rate(agent: &AgentProcess, plan: &LoadPlan, rate: f64) {
    let to = agent.endpoint.json["statsd"]["udp"][0].as_str();
    let to: SocketAddr = to.expect("a string").parse().expect("an address");
    let datagrams = load::datagrams(plan.lines as usize);
    let per_sender = (rate * 1e6 / (plan.lines * plan.senders) as f64) as u64;
    let (received, dropped, _) = counts(agent);
    let (cpu, started) = (process_cpu_time(agent.pid()), Instant::now());
    let (sent, helping) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.senders)
            .map(|_| {
                scope.spawn(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
                    socket.connect(to).expect("an address");
                    load::send(&socket, &datagrams, per_sender, plan.time)
                })
            })
            .collect();
        std::thread::sleep(plan.time / 2);
        let helping = counts(agent).2;
        let sent = threads
            .into_iter()
            .map(|thread| thread.join().expect("sent"));
        (sent.sum::<u64>(), helping)
    });
    let seconds = started.elapsed().as_secs_f64();
    // All metrics are counted at the next tick at the latest.
    let metrics = sent * plan.lines;
    let deadline = Instant::now() + Duration::from_secs(3);
    let (taken, lost) = loop {
        let (now_received, now_dropped, _) = counts(agent);
        let (taken, lost) = (now_received - received, now_dropped - dropped);
        if taken + lost * plan.lines == metrics || Instant::now() > deadline {
            break (taken, lost);
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let cpu = (process_cpu_time(agent.pid()) - cpu).as_secs_f64();
    let million = 1e6 * seconds;
    println!(
        "{rate:10.1} | {:8.2} | {:12.2} | {:6.2} | {:11} | {:11.3} | {helping}",
        metrics as f64 / million,
        taken as f64 / million,
        lost as f64 / sent as f64 * 100.0,
        metrics.abs_diff(taken + lost * plan.lines),
        cpu / taken as f64 * 1e6,
    );
}
