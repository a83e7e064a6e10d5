//! A scrape, compared with node_exporter, which also takes its sample when it is scraped.

use std::time::Duration;

use pegel_bench::{BenchReport, FigureGate, process_cpu_time, release_binary};
use pegel_testkit::{AgentAddress, AgentBuilder, PrometheusProcess, get, need};

/// The collectors that both have.
const SHARED_COLLECTORS: [&str; 8] = [
    "cpu",
    "stat",
    "meminfo",
    "loadavg",
    "pressure",
    "diskstats",
    "netdev",
    "vmstat",
];

pub(crate) fn measure(report: &mut BenchReport) {
    let scrapes = report.repetitions(200);
    let mut theirs = Vec::new();
    if let Some(program) = need("prometheus-node-exporter") {
        let same = PrometheusProcess::start(&program, |_| {
            let only = SHARED_COLLECTORS
                .iter()
                .map(|name| format!("--collector.{name}"));
            std::iter::once("--collector.disable-defaults".to_owned())
                .chain(only)
                .collect()
        });
        theirs.push((
            "node_exporter, same collectors",
            scrape_us(same.pid(), &same.address, scrapes),
        ));
        let full = PrometheusProcess::start(&program, |_| Vec::new());
        theirs.push((
            "node_exporter, its defaults",
            scrape_us(full.pid(), &full.address, scrapes),
        ));
    }
    // Sampling continues during the measurement; at 2 Hz it adds little to a burst of scrapes.
    let agent = AgentBuilder::new(release_binary()).start();
    std::thread::sleep(Duration::from_secs(1));
    let here = scrape_us(agent.pid(), agent.http(), scrapes);
    report.row_with_peers(
        "one scrape",
        "µs CPU",
        FigureGate::None,
        vec![here],
        &theirs,
    );
    agent.stop();
}

fn scrape_us(pid: u32, address: &AgentAddress, scrapes: usize) -> f64 {
    let scrape = || assert_eq!(get(address, "/metrics").expect("an answer").status, 200);
    (0..scrapes.min(20)).for_each(|_| scrape());
    let before = process_cpu_time(pid);
    (0..scrapes).for_each(|_| scrape());
    (process_cpu_time(pid) - before).as_secs_f64() * 1e6 / scrapes as f64
}
