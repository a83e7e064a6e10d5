//! Queries over one hour at 1 Hz: the sum of 192 counters with a 10 s step, and the sum of their
//! rates, from memory and fresh blocks and from a sealed block. Then the first answer after a
//! crash.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use pegel_bench::{BenchReport, FigureGate, RecordedHour, cpu_time, sum_of_192};
use pegel_metric::{Clock, Selector};
use pegel_query::{Annotations, QueryEngine, QueryParams, QueryRequest};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_testkit::TempDir;

const START: i64 = 1_700_006_400_000;

fn main() -> ExitCode {
    let mut report = BenchReport::new("query");
    let hour = RecordedHour::record(START);
    measure(&mut report, &hour, "recent");
    opentsdb(&mut report, &hour, "recent");
    restart(&mut report, &hour);
    hour.seal();
    measure(&mut report, &hour, "sealed");
    opentsdb(&mut report, &hour, "sealed");
    report.finish()
}

fn measure(report: &mut BenchReport, hour: &RecordedHour, from: &str) {
    let repetitions = report.repetitions(51);
    let time = |rate: bool| {
        let mut figures = Vec::new();
        for _ in 0..repetitions {
            let before = cpu_time();
            assert!(
                sum_of_192(&hour.store, hour.start, rate) > 0.0,
                "the answer is not empty"
            );
            figures.push((cpu_time() - before).as_secs_f64() * 1e3);
        }
        figures
    };
    report.row(
        &format!("sum of 192 series, 1 h, 10 s step, {from}"),
        "ms",
        FigureGate::AtMost(3.0),
        time(false),
    );
    report.row(
        &format!("rate of the same, {from}"),
        "ms",
        FigureGate::AtMost(4.0),
        time(true),
    );
}

/// Measures the same queries through the OpenTSDB API that Grafana uses, from request body to
/// response body. Their budgets allow a millisecond more than the store's own.
fn opentsdb(report: &mut BenchReport, hour: &RecordedHour, from: &str) {
    let annotations = Annotations::open(hour.dir.path()).expect("no annotations");
    let engine = QueryEngine::new(hour.store.clone(), Arc::new(annotations), "nid1", false);
    let repetitions = report.repetitions(51);
    for (work, gate, fields) in [
        (
            "sum of the 192 by OpenTSDB",
            4.0,
            r#""downsample":"10s-avg""#,
        ),
        (
            "rate of the 192 by OpenTSDB",
            4.0,
            r#""downsample":"10s-last","rate":true,"rateOptions":{"counter":true,"dropResets":true}"#,
        ),
        (
            "one line per CPU, 24 CPUs, by OpenTSDB",
            5.0,
            r#""downsample":"10s-avg","filters":[{"type":"wildcard","tagk":"cpu","filter":"*","groupBy":true}]"#,
        ),
    ] {
        let body = format!(
            r#"{{"start":{},"end":{},"queries":[{{"metric":"node_cpu_seconds_total","aggregator":"sum",{fields}}}]}}"#,
            hour.start,
            hour.start + RecordedHour::MILLIS - 1
        );
        let mut figures = Vec::new();
        for _ in 0..repetitions {
            let before = cpu_time();
            let request =
                QueryRequest::from_json(body.as_bytes(), &QueryParams::default(), hour.clock.utc())
                    .expect("valid");
            let mut answer = Vec::new();
            engine.query(&request, &mut answer).expect("answered");
            figures.push((cpu_time() - before).as_secs_f64() * 1e3);
            assert!(answer.len() > 1_000, "the answer is not empty");
        }
        report.row(
            &format!("{work}, {from}"),
            "ms",
            FigureGate::AtMost(gate),
            figures,
        );
    }
}

/// Measures the time to open a copy of the files, as a crash would leave them, and to answer a
/// first query.
fn restart(report: &mut BenchReport, hour: &RecordedHour) {
    let mut figures = Vec::new();
    for _ in 0..report.repetitions(11) {
        let copy = TempDir::new();
        for name in ["log", "blocks"] {
            std::fs::create_dir_all(copy.path().join(name)).expect("a directory");
            for entry in std::fs::read_dir(hour.dir.path().join(name)).expect("a directory") {
                let entry = entry.expect("an entry");
                std::fs::copy(entry.path(), copy.path().join(name).join(entry.file_name()))
                    .expect("a copy");
            }
        }
        let mut options = StoreOptions::new(copy.path());
        options.clock = hour.clock.clone();
        let before = Instant::now();
        let reopened = Store::open(options).expect("the copy opens");
        let question = RangeQuery::new(Selector::name("node_load1"), START, hour.clock.utc(), None);
        let mut count = 0;
        reopened
            .query_range(&question, &mut |_, points| count = points.len())
            .expect("an answer");
        figures.push(before.elapsed().as_secs_f64() * 1e3);
        assert!(count > 0);
    }
    report.row(
        "first answer after a crash, wall time",
        "ms",
        FigureGate::AtMost(50.0),
        figures,
    );
}
