//! PromQL over HTTP: the same samples and the same queries in Pegel, VictoriaMetrics and
//! Prometheus 3. CPU time of each server per query, then its resident memory. Pegel is the release
//! binary, and its samples are first in memory and fresh blocks, then in a sealed block. A peer
//! that is not installed is skipped with a message.

mod measured_server;
mod recorded_series;

use std::process::ExitCode;

use pegel_bench::{
    BenchReport, FigureGate, PeerKind, PeerStore, RecordedHour, release_binary, timed_exposition,
};
use pegel_metric::{Clock, Millis, SystemClock};
use pegel_testkit::AgentBuilder;

use measured_server::{BenchQuery, MeasuredServer, assert_same_values};
use recorded_series::{STEP_MS, WIDE_MS};

/// How long ago the hour ends: VictoriaMetrics does not show the last 30 s at once.
const END_AGE_MS: Millis = 60_000;

fn main() -> ExitCode {
    let mut report = BenchReport::new("promql");
    let length = RecordedHour::length_ms();
    let start = (SystemClock.utc() - END_AGE_MS - length) / STEP_MS * STEP_MS;
    let hour = recorded_series::record(start);
    let peers = load_peers(&hour);
    let mut peer_servers: Vec<MeasuredServer> = peers.iter().map(MeasuredServer::of_peer).collect();
    hour.store.close();
    let agent = AgentBuilder::new(release_binary())
        .dir(hour.dir.path())
        .start();
    let pegel = MeasuredServer::of_agent(&agent);
    for (work, gate, query) in queries(start) {
        measure(&mut report, work, gate, &query, &pegel, &mut peer_servers);
    }
    let theirs: Vec<_> = peers
        .iter()
        .map(|peer| (peer.name(), peer.resident_mb()))
        .collect();
    report.row_with_peers(
        "resident after these queries",
        "MB",
        FigureGate::None,
        vec![pegel.resident_mb()],
        &theirs,
    );
    agent.kill();
    drop(peers);
    sealed(&mut report);
    report.finish()
}

/// Exports the samples to all peers.
fn load_peers(hour: &RecordedHour) -> Vec<PeerStore> {
    let range = (hour.start, hour.start + RecordedHour::length_ms());
    let parts = recorded_series::parts()
        .map(|selector| move |unit| timed_exposition(&hour.store, selector.clone(), range, unit));
    let parts = parts
        .each_ref()
        .map(|part| part as &dyn Fn(Millis) -> String);
    [PeerKind::VictoriaMetrics, PeerKind::Prometheus3]
        .into_iter()
        .filter_map(|kind| PeerStore::load(kind, &parts))
        .collect()
}

/// The budget of a query: milliseconds, or what VictoriaMetrics takes in the same run.
#[derive(Clone, Copy)]
enum FigureBudget {
    Millis(f64),
    Victoria,
}

const SUM: &str = "sum(node_cpu_seconds_total)";
const SUM_OF_RATES: &str = "sum(rate(node_cpu_seconds_total[1m]))";

fn queries(start: Millis) -> Vec<(&'static str, FigureBudget, BenchQuery)> {
    let end = start + RecordedHour::length_ms() - STEP_MS;
    let hour = |expression: &str| BenchQuery::range(expression, (start, end), STEP_MS);
    let last_minutes = (end - WIDE_MS + 2 * STEP_MS, end);
    vec![
        (
            "sum of 192 series, 1 h, 10 s step",
            FigureBudget::Millis(3.0),
            hour(SUM),
        ),
        (
            "sum(rate) of the same",
            FigureBudget::Millis(4.0),
            hour(SUM_OF_RATES),
        ),
        (
            "sum by (mode) (rate) of the same",
            FigureBudget::Victoria,
            hour("sum by (mode) (rate(node_cpu_seconds_total[1m]))"),
        ),
        (
            "topk(5, rate) of the same",
            FigureBudget::Victoria,
            hour("topk(5, rate(node_cpu_seconds_total[1m]))"),
        ),
        (
            "histogram_quantile of 50 × 12 buckets, 1 h",
            FigureBudget::Victoria,
            hour("histogram_quantile(0.99, sum by (le) (rate(bench_request_seconds_bucket[1m])))"),
        ),
        (
            "sum(rate) of 10,000 series, 10 min, 10 s step",
            FigureBudget::Victoria,
            BenchQuery::range("sum(rate(bench_messages_total[1m]))", last_minutes, STEP_MS),
        ),
        (
            "sum by (mode) (rate), instant",
            FigureBudget::Victoria,
            BenchQuery::instant("sum by (mode) (rate(node_cpu_seconds_total[1m]))", end),
        ),
    ]
}

fn measure(
    report: &mut BenchReport,
    work: &str,
    budget: FigureBudget,
    query: &BenchQuery,
    pegel: &MeasuredServer,
    peers: &mut [MeasuredServer],
) {
    let repetitions = report.repetitions(15);
    let here = pegel.answer(query);
    let mut theirs = Vec::new();
    for peer in peers {
        assert_same_values(&here, &peer.answer(query), peer.name, query);
        let mut figures: Vec<f64> = (0..repetitions).map(|_| peer.cpu_ms(query)).collect();
        theirs.push((peer.name, pegel_bench::median(&mut figures)));
    }
    let figures = (0..repetitions).map(|_| pegel.cpu_ms(query)).collect();
    let victoria = PeerKind::VictoriaMetrics.name();
    let victoria = theirs.iter().find(|(name, _)| *name == victoria);
    let gate = match (budget, victoria) {
        (FigureBudget::Millis(most), _) => FigureGate::AtMost(most),
        (FigureBudget::Victoria, Some((_, figure))) => FigureGate::AtMost(*figure),
        (FigureBudget::Victoria, None) => FigureGate::None,
    };
    report.row_with_peers(work, "ms", gate, figures, &theirs);
}

/// Measures the two queries with a budget from a sealed block, in which samples are smaller and
/// take longer to decode.
fn sealed(report: &mut BenchReport) {
    let hour_ms = RecordedHour::MILLIS;
    let start = (SystemClock.utc() / hour_ms - 2) * hour_ms;
    let hour = recorded_series::record(start);
    hour.seal();
    hour.store.close();
    let agent = AgentBuilder::new(release_binary())
        .dir(hour.dir.path())
        .start();
    let pegel = MeasuredServer::of_agent(&agent);
    let names = ["sum of 192 series, sealed", "sum(rate) of the same, sealed"];
    for (work, (_, budget, query)) in names.into_iter().zip(queries(start)) {
        measure(report, work, budget, &query, &pegel, &mut []);
    }
    agent.kill();
}
