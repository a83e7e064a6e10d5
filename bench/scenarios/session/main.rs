//! Records of tasks: their size, the time until the first block is spooled, and what an agent that
//! records takes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pegel_bench::{
    BenchReport, FigureGate, RecordedHour, agent_usage, is_trial_run, release_binary,
};
use pegel_metric::{Millis, Selector};
use pegel_record::{RecordSamples, RecordWriter};
use pegel_store::RangeQuery;
use pegel_testkit::{AgentBuilder, AgentProcess, TempDir, post};

/// A whole hour.
const START: Millis = 1_800_000_000_000 / 3_600_000 * 3_600_000;
/// The budgets are for this number of fields.
const FIELDS: f64 = 300.0;

fn main() -> ExitCode {
    let mut report = BenchReport::new("session");
    let hour = RecordedHour::record(START);
    for (seconds, budget) in [(10, 850.0), (60, 620.0)] {
        let (bytes, series, cpu) = record_size(&hour, seconds * 1_000);
        let hours = RecordedHour::length_ms() as f64 / RecordedHour::MILLIS as f64;
        let kilobytes = bytes as f64 / 1000.0 / series as f64 * FIELDS / hours;
        report.row(
            &format!("record of 1 h, 1 Hz, 300 fields, flush {seconds} s"),
            "KB",
            FigureGate::AtMost(budget),
            vec![kilobytes],
        );
        report.row(
            &format!("encoding, flush {seconds} s"),
            "µs per 300 values",
            FigureGate::None,
            vec![cpu.as_secs_f64() * 1e6 / hour.samples as f64 * FIELDS],
        );
    }
    let home = TempDir::new();
    let agent = AgentBuilder::new(release_binary()).start();
    let starts = if is_trial_run() { 3 } else { 21 };
    let times = (0..starts).map(|number| start_time(&agent, &home, number));
    report.row(
        "session start until the first block is spooled",
        "ms",
        FigureGate::AtMost(50.0),
        times.collect(),
    );
    agent.stop();
    let (shares, resident) = recording_agent(&home);
    report.row(
        "agent that records, 2 Hz",
        "% of a core",
        FigureGate::AtMost(0.35),
        shares,
    );
    report.row(
        "agent that records, resident",
        "MB",
        FigureGate::AtMost(30.0),
        resident,
    );
    report.finish()
}

/// Returns the bytes of the record, its series, and the time that encoding took.
fn record_size(hour: &RecordedHour, flush: Millis) -> (usize, usize, Duration) {
    let mut writer = RecordWriter::default();
    let (mut bytes, mut series, mut encoding) = (0, 0, Duration::ZERO);
    let mut from = hour.start;
    while from < hour.start + RecordedHour::length_ms() {
        let mut samples = Vec::new();
        let query = RangeQuery::new(Selector::all(), from, from + flush - 1, None);
        let visited = hour.store.query_columns(&query, &mut |series, column| {
            samples.push(RecordSamples {
                series: series.text().into(),
                kind: series.family().kind,
                times: column.times.clone(),
                values: column.values.to_vec(),
            });
        });
        visited.expect("the store answers");
        series = series.max(samples.len());
        let began = Instant::now();
        let blocks = writer.samples(&samples);
        encoding += began.elapsed();
        bytes += blocks.iter().map(|block| block.bytes.len()).sum::<usize>();
        from += flush;
    }
    (bytes, series, encoding)
}

fn start(agent: &AgentProcess, home: &TempDir, task: &str) {
    let place = home.join("records").display().to_string();
    let body = format!(
        r#"{{"workflow": "bench", "task": "{task}", "attempt": "1", "to": "file://{place}"}}"#
    );
    let path = "/api/v1/sessions/start";
    let answer = post(&agent.unix(), path, &[], body.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Returns the time that a start takes, the end of the session before it included.
fn start_time(agent: &AgentProcess, home: &TempDir, number: usize) -> f64 {
    let began = Instant::now();
    start(agent, home, &format!("task-{number}"));
    began.elapsed().as_secs_f64() * 1000.0
}

fn recording_agent(home: &TempDir) -> (Vec<f64>, Vec<f64>) {
    let agent = AgentBuilder::new(release_binary()).start();
    start(&agent, home, "recorded");
    let usage = agent_usage(agent.pid());
    agent.stop();
    usage
}
