//! The same data and the same queries in one run: Pegel compared with Debian's VictoriaMetrics,
//! Prometheus and node_exporter. A peer that is not installed is skipped with a message.
#![allow(clippy::print_stdout)] // The report is printed.

mod exporter;
mod hour_query;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, PeerKind, PeerStore, RecordedHour, cpu_time, median, process_cpu_time,
    release_binary, sum_of_192,
};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{AgentBuilder, get};

use hour_query::{load, query};

fn main() -> ExitCode {
    let mut report = BenchReport::new("peers");
    // The last but one whole hour: old enough to be sealed, recent enough for every retention.
    let start = (SystemClock.utc() / RecordedHour::MILLIS - 2) * RecordedHour::MILLIS;
    let hour = RecordedHour::record(start);
    let mut peers: Vec<PeerStore> = [PeerKind::VictoriaMetrics, PeerKind::Prometheus]
        .into_iter()
        .filter_map(|kind| load(kind, &hour))
        .collect();
    hour.seal();

    bytes(&mut report, &hour, &peers);
    queries(&mut report, &hour, &peers);
    series_over_http(&mut report, &hour, &peers);
    restart(&mut report, &hour, &mut peers);
    exporter::measure(&mut report);
    report.finish()
}

/// Returns a gate relative to what VictoriaMetrics needs in the same run; none where it is absent.
fn share_of_victoria(theirs: &[(&'static str, f64)], share: f64) -> FigureGate {
    let victoria = theirs
        .iter()
        .find(|(name, _)| *name == PeerKind::VictoriaMetrics.name());
    victoria.map_or(FigureGate::None, |(_, figure)| {
        FigureGate::AtMost(share * figure)
    })
}

fn bytes(report: &mut BenchReport, hour: &RecordedHour, peers: &[PeerStore]) {
    let per_sample = |bytes: u64| bytes as f64 / hour.samples as f64;
    let here = per_sample(hour.store.status().block_bytes);
    let theirs: Vec<_> = peers
        .iter()
        .map(|peer| (peer.name(), per_sample(peer.disk_bytes())))
        .collect();
    let gate = share_of_victoria(&theirs, 1.05);
    report.row_with_peers(
        "sealed hour on disk, index included",
        "bytes/sample",
        gate,
        vec![here],
        &theirs,
    );
}

fn queries(report: &mut BenchReport, hour: &RecordedHour, peers: &[PeerStore]) {
    let repetitions = report.repetitions(31);
    // The budgets are shares of what VictoriaMetrics takes in the same run: 3 and 4 of its 6.8 ms.
    for (work, rate, share, expression) in [
        (
            "sum of 192 series, 1 h, 10 s step",
            false,
            0.44,
            "sum(avg_over_time(node_cpu_seconds_total[10s]))",
        ),
        (
            "rate of the same",
            true,
            0.59,
            "sum(rate(node_cpu_seconds_total[20s]))",
        ),
    ] {
        let mut figures = Vec::new();
        for _ in 0..repetitions {
            let before = cpu_time();
            assert!(sum_of_192(&hour.store, hour.start, rate) > 0.0);
            figures.push((cpu_time() - before).as_secs_f64() * 1e3);
        }
        let theirs: Vec<_> = peers
            .iter()
            .map(|peer| {
                (
                    peer.name(),
                    peer.cpu_ms(repetitions, || {
                        assert!(!query(peer, expression, hour.start).is_empty())
                    }),
                )
            })
            .collect();
        let gate = share_of_victoria(&theirs, share);
        report.row_with_peers(work, "ms", gate, figures, &theirs);
    }
}

/// Measures a query end to end: agent process, HTTP and JSON, 192 series of 360 points each.
fn series_over_http(report: &mut BenchReport, hour: &RecordedHour, peers: &[PeerStore]) {
    hour.store.close();
    let agent = AgentBuilder::new(release_binary())
        .dir(hour.dir.path())
        .start();
    let path = format!(
        "/api/v1/range?match=node_cpu_seconds_total%7Bcpu%3D~%22%5B0-9%5D%2B%22%7D&start={}&end={}&step=10s&agg=last",
        hour.start,
        hour.start + RecordedHour::MILLIS - 1
    );
    let repetitions = report.repetitions(31);
    let mut figures = Vec::new();
    for _ in 0..repetitions {
        let before = process_cpu_time(agent.pid());
        let answer = get(agent.http(), &path).expect("an answer");
        assert!(
            answer.status == 200 && answer.body.len() > 100_000,
            "{}",
            answer.status
        );
        figures.push((process_cpu_time(agent.pid()) - before).as_secs_f64() * 1e3);
    }
    let theirs: Vec<_> = peers
        .iter()
        .map(|peer| {
            let ask = || assert!(query(peer, "node_cpu_seconds_total", hour.start).len() > 100_000);
            (peer.name(), peer.cpu_ms(repetitions, ask))
        })
        .collect();
    report.row_with_peers(
        "192 series as JSON over HTTP",
        "ms",
        FigureGate::None,
        figures,
        &theirs,
    );
    agent.kill();
}

/// Measures the time from the start of the process to its first answer, after a kill -9.
fn restart(report: &mut BenchReport, hour: &RecordedHour, peers: &mut [PeerStore]) {
    let binary = release_binary();
    let path = format!(
        "/api/v1/range?match=node_load1&start={}&end={}",
        hour.start,
        hour.start + RecordedHour::MILLIS - 1
    );
    let mut figures = Vec::new();
    let repetitions = report.repetitions(7);
    for _ in 0..repetitions {
        let before = Instant::now();
        let agent = AgentBuilder::new(&binary).dir(hour.dir.path()).start();
        let answer = get(agent.http(), &path).expect("an answer");
        figures.push(before.elapsed().as_secs_f64() * 1e3);
        assert!(answer.body.len() > 1000);
        std::thread::sleep(Duration::from_millis(1200));
        agent.kill();
    }
    let theirs: Vec<_> = peers
        .iter_mut()
        .map(|peer| {
            let mut figures: Vec<f64> = (0..repetitions)
                .map(|_| peer.restart_ms(|peer| !query(peer, "node_load1", hour.start).is_empty()))
                .collect();
            (peer.name(), median(&mut figures))
        })
        .collect();
    report.row_with_peers(
        "first answer after kill -9, wall time",
        "ms",
        FigureGate::AtMost(50.0),
        figures,
        &theirs,
    );
}
