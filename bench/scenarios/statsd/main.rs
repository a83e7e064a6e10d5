//! statsd lines sent to the agent and to other servers in the same run: CPU time per million
//! metrics, the rate that one core can send without loss, and memory per name.

mod bare_receiver;
mod line_cost;
mod load;
mod peers;

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, is_trial_run, median, process_cpu_time, release_binary, resident_mb,
};
use pegel_testkit::{AgentBuilder, AgentProcess, eventually};

use load::DatagramSender;

fn main() -> ExitCode {
    if let Some(path) = bare_receiver::socket_argument() {
        panic!("bare receiver failed: {}", bare_receiver::receive(&path));
    }
    let mut report = BenchReport::new("statsd");
    line_cost::measure(&mut report);
    let agent = AgentBuilder::new(release_binary())
        .config("limits: {series_per_sender: 150000}")
        .start();
    let peers: Vec<peers::StatsdPeer> = [peers::collectd(), peers::statsd()]
        .into_iter()
        .flatten()
        .collect();
    let udp = address(&agent, "udp");
    let time = Duration::from_secs(if is_trial_run() { 1 } else { 5 });
    // Creates all series before the measurements.
    load::send(
        &connect(udp),
        &load::datagrams(20),
        10_000,
        Duration::from_millis(500),
    );
    let idle = idle_share(&agent, time);

    for (lines, rate, budget) in [(20, 30_000, 0.20), (1, 60_000, 1.8)] {
        let repetitions = report.repetitions(5);
        let cost = |pid: u32, to: SocketAddr, idle: f64| {
            per_million(pid, &connect(to), lines, rate, time, idle)
        };
        let ours = (0..repetitions)
            .map(|_| cost(agent.pid(), udp, idle))
            .collect();
        let beside: Vec<(&str, f64)> = peers
            .iter()
            .map(|peer| {
                let to = SocketAddr::from(([127, 0, 0, 1], peer.port));
                let mut all: Vec<f64> = (0..report.repetitions(3))
                    .map(|_| cost(peer.pid(), to, 0.0))
                    .collect();
                (peer.name, median(&mut all))
            })
            .collect();
        let work = format!(
            "UDP, {lines} per datagram, {} k/s",
            rate * lines as u64 / 1000
        );
        report.row_with_peers(
            &work,
            "s per 1 M",
            FigureGate::AtMost(budget),
            ours,
            &beside,
        );
    }

    unix_datagrams(&mut report, &agent, time, idle);
    full_speed(&mut report, &agent, udp, time);
    drop(peers);
    agent.stop();
    memory(&mut report);
    report.finish()
}

fn address(agent: &AgentProcess, kind: &str) -> SocketAddr {
    let text = agent.endpoint.json["statsd"][kind][0]
        .as_str()
        .expect("an address");
    text.parse().expect("an address")
}

fn connect(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(to).expect("an address");
    socket
}

/// Returns the CPU usage of the idle agent, as a share of one core.
fn idle_share(agent: &AgentProcess, time: Duration) -> f64 {
    let before = process_cpu_time(agent.pid());
    std::thread::sleep(time);
    (process_cpu_time(agent.pid()) - before).as_secs_f64() / time.as_secs_f64()
}

/// Returns the CPU seconds per million metrics, without the idle usage of the process.
fn per_million(
    pid: u32,
    to: &dyn DatagramSender,
    lines: usize,
    rate: u64,
    time: Duration,
    idle: f64,
) -> f64 {
    let datagrams = load::datagrams(lines);
    let (before, started) = (process_cpu_time(pid), Instant::now());
    let sent = load::send(to, &datagrams, rate, time);
    std::thread::sleep(Duration::from_millis(50));
    let used = (process_cpu_time(pid) - before).as_secs_f64();
    let idle_used = idle * started.elapsed().as_secs_f64();
    (used - idle_used) / (sent * lines as u64) as f64 * 1e6
}

fn unix_datagrams(report: &mut BenchReport, agent: &AgentProcess, time: Duration, idle: f64) {
    let connected = |path: &Path| {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(path).expect("a listener");
        socket
    };
    let path = agent.endpoint.json["statsd"]["unix"].as_str();
    let ours = connected(Path::new(path.expect("a path")));
    let bare = bare_receiver::BareReceiver::start();
    let to_bare = connected(&bare.path);
    // Alternating, so that both measure under the same conditions.
    let (figures, mut floor): (Vec<f64>, Vec<f64>) = (0..report.repetitions(5))
        .map(|_| {
            let cost = |pid, to, idle| per_million(pid, to, 1, 60_000, time, idle);
            (
                cost(agent.pid(), &ours, idle),
                cost(bare.pid(), &to_bare, 0.0),
            )
        })
        .unzip();
    report.row_with_peers(
        "UNIX datagrams, 1 per datagram, 60 k/s",
        "s per 1 M",
        FigureGate::AtMost(1.15),
        figures,
        &[("received and discarded", median(&mut floor))],
    );
}

/// Returns the number of metrics received by statsd and of datagrams dropped by the kernel, from
/// the ledger.
fn statsd_ledger(agent: &AgentProcess) -> (u64, u64) {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list");
    let statsd = inputs
        .iter()
        .find(|input| input["input"] == "statsd")
        .expect("an entry for statsd");
    let kernel = statsd["dropped"]["kernel"].as_u64().unwrap_or(0);
    (
        statsd["received"].as_u64().expect("a number") - kernel,
        kernel,
    )
}

fn full_speed(report: &mut BenchReport, agent: &AgentProcess, udp: SocketAddr, time: Duration) {
    const LINES: u64 = 20;
    let [mut rates, mut arrived, mut lost, mut unknown] = [const { Vec::new() }; 4];
    let datagrams = load::datagrams(LINES as usize);
    for _ in 0..report.repetitions(5) {
        let (received, dropped) = statsd_ledger(agent);
        let started = Instant::now();
        let sent = load::send(&connect(udp), &datagrams, 0, time);
        rates.push((sent * LINES) as f64 / started.elapsed().as_secs_f64() / 1e6);
        // All metrics are counted at the next tick at the latest.
        let mut missing = 0;
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let (now_received, now_dropped) = statsd_ledger(agent);
            let known = (now_received - received) + (now_dropped - dropped) * LINES;
            missing = (sent * LINES).abs_diff(known);
            if missing == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        unknown.push(missing as f64);
        let lost_share = (statsd_ledger(agent).1 - dropped) as f64 / sent as f64;
        lost.push(lost_share * 100.0);
        arrived.extend(rates.last().map(|rate| rate * (1.0 - lost_share)));
    }
    report.row(
        "one core sends at full speed, 20 per datagram",
        "M/s",
        FigureGate::None,
        rates,
    );
    // A fast core sends more than the other one can receive: the budget is for what arrives.
    report.row("received of it", "M/s", FigureGate::AtLeast(6.0), arrived);
    report.row(
        "dropped by the kernel and counted",
        "%",
        FigureGate::None,
        lost,
    );
    report.row(
        "neither received nor counted as dropped",
        "metrics",
        FigureGate::AtMost(0.0),
        unknown,
    );
}

/// Measures the memory of 100,000 counters and gauges, as many as a large job has.
fn memory(report: &mut BenchReport) {
    const NAMES: usize = 100_000;
    let mut figures = Vec::new();
    for _ in 0..report.repetitions(3) {
        let agent = AgentBuilder::new(release_binary())
            .config("limits: {series_per_sender: 150000}")
            .start();
        std::thread::sleep(Duration::from_secs(2));
        let before = resident_mb(agent.pid());
        let socket = connect(address(&agent, "udp"));
        let lines: Vec<String> = (0..NAMES)
            .map(|n| {
                format!(
                    "solver.rank{n}.{}",
                    if n % 2 == 0 {
                        "iterations:1|c"
                    } else {
                        "depth:1|g"
                    }
                )
            })
            .collect();
        for chunk in lines.chunks(20) {
            socket.send(chunk.join("\n").as_bytes()).expect("sent");
            std::thread::sleep(Duration::from_micros(50));
        }
        eventually("all names", || match statsd_ledger(&agent).0 {
            count if count == NAMES as u64 => Ok(()),
            other => Err(other),
        });
        std::thread::sleep(Duration::from_secs(3));
        figures.push(resident_mb(agent.pid()) - before);
        agent.stop();
    }
    report.row(
        "100,000 additional names",
        "MB",
        FigureGate::AtMost(25.0),
        figures,
    );
}
