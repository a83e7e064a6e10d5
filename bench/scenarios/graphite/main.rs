//! The Graphite output: CPU time to send 100,000 names, beside collectd.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, is_trial_run, process_cpu_time, release_binary, thread_cpu_time_of,
};
use pegel_testkit::{AgentBuilder, ChildProcess, TempDir, eventually_within};

const NAMES: u64 = 100_000;
/// How long one flush may take to arrive.
const BOUND: Duration = Duration::from_secs(120);

/// Counts the lines that arrive, and discards them.
struct LineCounter {
    port: u16,
    lines: Arc<AtomicU64>,
}

impl LineCounter {
    fn start() -> LineCounter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let lines = Arc::new(AtomicU64::new(0));
        let for_thread = lines.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().take(100).flatten() {
                let mut buffer = vec![0; 1 << 20];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let lines = buffer[..count].iter().filter(|byte| **byte == b'\n');
                    for_thread.fetch_add(lines.count() as u64, Ordering::Relaxed);
                }
            }
        });
        LineCounter { port, lines }
    }

    fn count(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Waits until this many lines have arrived.
    fn wait_for(&self, lines: u64) {
        eventually_within(BOUND, "lines arrive", || {
            let count = self.count();
            (count >= lines).then_some(()).ok_or(count)
        });
    }
}

/// Sends every name once to a statsd port, slowly enough for all peers.
fn send_names(port: u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let lines: Vec<String> = (0..NAMES)
        .map(|name| format!("solver.rank{name}.residual:{}.25|g", name % 977))
        .collect();
    for chunk in lines.chunks(20) {
        let datagram = chunk.join("\n");
        let sent = socket.send_to(datagram.as_bytes(), ("127.0.0.1", port));
        sent.expect("loopback");
        thread::sleep(Duration::from_micros(500));
    }
}

fn main() -> ExitCode {
    let mut report = BenchReport::new("graphite");
    let collectd = collectd_seconds();
    let server = LineCounter::start();
    let config = format!(
        "limits: {{series_per_sender: 150000}}\n\
         graphite: [{{host: 127.0.0.1, port: {}, interval: 2s}}]\n",
        server.port
    );
    let agent = AgentBuilder::new(release_binary()).config(&config).start();
    let address = agent.endpoint.json["statsd"]["udp"][0].as_str();
    let port = address.and_then(|address| address.rsplit(':').next());
    send_names(port.expect("an address").parse().expect("a port"));
    // Two whole flushes, so that all paths are known.
    server.wait_for(server.count() + 2 * NAMES);
    let mut figures = Vec::new();
    for _ in 0..report.repetitions(9) {
        let (before, lines) = (thread_cpu_time_of(agent.pid(), "graphite"), server.count());
        server.wait_for(lines + NAMES);
        // Whole flushes, wherever the count began.
        thread::sleep(Duration::from_millis(500));
        let used = thread_cpu_time_of(agent.pid(), "graphite") - before;
        let flushes = (server.count() - lines) as f64 / NAMES as f64;
        figures.push(used.as_secs_f64() / flushes);
    }
    report.row_with_peers(
        "100,000 names as plaintext over TCP",
        "s",
        FigureGate::AtMost(0.05),
        figures,
        &collectd
            .map(|seconds| ("collectd", seconds))
            .into_iter()
            .collect::<Vec<_>>(),
    );
    agent.stop();
    report.finish()
}

/// Returns the CPU time of collectd for one interval with the same names.
fn collectd_seconds() -> Option<f64> {
    if is_trial_run() {
        return None;
    }
    let server = LineCounter::start();
    let statsd = UdpSocket::bind("127.0.0.1:0")
        .ok()?
        .local_addr()
        .ok()?
        .port();
    let home = TempDir::new();
    let base = home.path().display();
    let config = format!(
        "BaseDir \"{base}\"\nPIDFile \"{base}/pid\"\nPluginDir \"/usr/lib/collectd\"\nTypesDB \"/usr/share/collectd/types.db\"\n\
         Interval 10\nLoadPlugin statsd\nLoadPlugin write_graphite\n<Plugin statsd>\n Host \"127.0.0.1\"\n Port \"{statsd}\"\n\
         </Plugin>\n<Plugin write_graphite>\n <Node \"a\">\n  Host \"127.0.0.1\"\n  Port \"{}\"\n </Node>\n</Plugin>\n",
        server.port
    );
    std::fs::write(home.join("collectd.conf"), config).ok()?;
    let mut command = Command::new("/usr/sbin/collectd");
    let process = ChildProcess::start(command.arg("-f").arg("-C").arg(home.join("collectd.conf")));
    // It does not report when it is ready.
    thread::sleep(Duration::from_secs(2));
    send_names(statsd);
    server.wait_for(server.count() + 2 * NAMES);
    let (before, lines, started) = (
        process_cpu_time(process.pid()),
        server.count(),
        Instant::now(),
    );
    thread::sleep(Duration::from_secs(20).saturating_sub(started.elapsed()));
    let used = process_cpu_time(process.pid()) - before;
    let flushes = (server.count() - lines) as f64 / NAMES as f64;
    process.kill();
    (flushes > 0.5).then(|| used.as_secs_f64() / flushes)
}
