//! The history of a real agent. Queries across the border equal those of an engine that holds
//! everything, through every API; an engine that fails takes nothing from the store's part.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use pegel_testkit::{
    AgentAddress, AgentProcess, TempDir, TestResponse, eventually, eventually_within, get,
    get_with, now_millis, post,
};
use pegel_wire::prompb::{Label, Message, Sample, TimeSeries, WriteRequest, label_matcher};
use serde_json::{Value, json};

use crate::PEGEL;
use crate::remote_read;
use crate::remote_write_out::{
    BOUND, ReceiverProcess, encode, free_address, put, samples, until_sent,
};

/// A value of a label that must be escaped in a selector.
const QUOTED: &str = "quote\"back\\slash\nline{}";
/// The label `instance` of the agent's series, in tests with one agent.
const INSTANCE: &str = "n1";
const STEP: i64 = 10_000;
/// Three hours.
const PAST_COUNT: i64 = 1_080;
const OWN_COUNT: usize = 40;

/// The samples of one series from before the agent's store.
struct PastSeries {
    name: &'static str,
    k: &'static str,
    samples: Vec<(i64, f64)>,
}

/// Returns what an earlier store of the agent had sent. The last sample is at `end`.
fn past(end: i64) -> Vec<PastSeries> {
    let series = |name, k, count: i64, value: &dyn Fn(i64) -> i64| {
        let time = |n: i64| end - (PAST_COUNT - 1 - n) * STEP;
        let samples = (0..count).map(|n| (time(n), value(n) as f64 / 4.0));
        PastSeries {
            name,
            k,
            samples: samples.collect(),
        }
    };
    vec![
        series("depth", "a", PAST_COUNT, &|n| n % 97),
        series("depth", "b", PAST_COUNT - 30, &|n| n % 31),
        // Restarted once.
        series("rising_total", "a", PAST_COUNT, &|n| n % 700 * 12),
        series("ended", QUOTED, PAST_COUNT / 2, &|n| n % 13),
    ]
}

/// Sends the past of agents to an engine, in the order of time: Prometheus refuses samples that are
/// an hour older than others.
fn write_past(
    engine: &AgentAddress,
    instances: &[&str],
    past: &[PastSeries],
    headers: &[(&str, &str)],
) {
    let own = [
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    let headers = [&own[..], headers].concat();
    let times = || past.iter().flat_map(|series| &series.samples);
    let first = times().map(|sample| sample.0).min().expect("samples");
    let last = times().map(|sample| sample.0).max().expect("samples");
    for from in (first..=last).step_by(60 * STEP as usize) {
        let range = from..from + 60 * STEP;
        let agents = instances.iter();
        let series = agents.flat_map(|instance| {
            let part = |series| part_of(series, instance, &range);
            past.iter().map(part).collect::<Vec<_>>()
        });
        let request = WriteRequest {
            timeseries: series.filter(|one| !one.samples.is_empty()).collect(),
            ..WriteRequest::default()
        };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        let body = body.expect("compressed");
        let sent = post(engine, "/api/v1/write", &headers, &body).expect("an answer");
        assert_eq!(sent.status, 204, "{}", sent.text());
    }
}

/// Returns the samples of a range, with the labels that an engine has.
fn part_of(series: &PastSeries, instance: &str, range: &Range<i64>) -> TimeSeries {
    let labels = [
        ("__name__", series.name),
        ("instance", instance),
        ("job", "node"),
        ("k", series.k),
    ];
    let label = |(name, value): (&str, &str)| Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let samples = series.samples.iter();
    let samples = samples.filter(|(time, _)| range.contains(time));
    let sample = |(timestamp, value): &(i64, f64)| Sample {
        timestamp: *timestamp,
        value: *value,
    };
    TimeSeries {
        labels: labels.map(label).to_vec(),
        samples: samples.map(sample).collect(),
        ..TimeSeries::default()
    }
}

fn seconds(time: i64) -> String {
    format!("{}.{:03}", time / 1_000, time % 1_000)
}

/// Returns a time that is never that of a sample, so that it does not matter whether a window
/// includes its start, as those of Prometheus 2 do.
fn off_grid(time: i64) -> i64 {
    time / 10 * 10 + 7
}

/// An agent whose earlier samples are in an engine, and which sends its own to that engine and to a
/// Prometheus, which therefore holds everything.
struct HistoryScene {
    dir: TempDir,
    listen: SocketAddr,
    config: String,
    agent: Option<AgentProcess>,
    past: Vec<PastSeries>,
    /// The samples of `depth{k="a"}` in the store.
    own: Vec<(i64, f64)>,
}

impl HistoryScene {
    fn start(engine: &ReceiverProcess, reference: &ReceiverProcess) -> HistoryScene {
        let past = past(now_millis() / STEP * STEP - STEP);
        write_past(&reference.address, &[INSTANCE], &past, &[]);
        let keys = "interval: 200ms, keep: [depth, rising_total]";
        let mut targets = format!("{{url: '{}', name: reference, {keys}}}", reference.url());
        if engine.url() != reference.url() {
            targets += &format!(", {{url: '{}', name: engine, {keys}}}", engine.url());
            // As after a lost answer: what was sent twice is there twice.
            for _ in 0..2 {
                write_past(&engine.address, &[INSTANCE], &past, &[]);
            }
        }
        let config = format!(
            "node: n1\nrate: 250ms\npromql: {{instance: {INSTANCE}}}\n\
             remote_write: [{targets}]\nhistory: {{url: '{}'}}\n",
            engine.base_url()
        );
        let mut scene = HistoryScene {
            dir: TempDir::new(),
            listen: free_address(),
            config,
            agent: None,
            past,
            own: Vec::new(),
        };
        scene.restart();
        scene.put_own();
        scene.until_own_is_sent("reference");
        if engine.url() != reference.url() {
            scene.until_own_is_sent("engine");
            // VictoriaMetrics shows new samples with a delay.
            let flushed = get(&engine.address, "/internal/force_flush").expect("flushed");
            assert_eq!(flushed.status, 200);
        }
        scene
    }

    fn agent(&self) -> &AgentProcess {
        self.agent.as_ref().expect("it runs")
    }

    /// Kills the agent, if it runs, and starts it.
    fn restart(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.kill();
        }
        let agent = PEGEL
            .agent()
            .dir(self.dir.join("store"))
            .listen(&[&self.listen.to_string()])
            .config(&self.config);
        self.agent = Some(agent.start());
    }

    /// Stores samples of now for two seconds.
    fn put_own(&mut self) {
        for step in 0..OWN_COUNT as i32 {
            let time = (now_millis() + 9) / 10 * 10;
            let value = f64::from(step) / 8.0;
            put(self.agent(), "depth", time, value);
            put(self.agent(), "rising_total", time, f64::from(step * 3));
            self.own.push((time, value));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until both series are sent: their last samples may be in different requests.
    fn until_own_is_sent(&self, target: &str) {
        let (time, count) = (self.end() / 10 * 10, 2 * OWN_COUNT as u64);
        eventually_within(BOUND, "both series are sent", || {
            let target = until_sent(self.agent(), target, time);
            let is_sent = target["sent"].as_u64() >= Some(count);
            is_sent.then_some(()).ok_or(target)
        });
    }

    fn start_time(&self) -> i64 {
        self.past[0].samples[0].0
    }

    /// Returns the end of the past.
    fn border(&self) -> i64 {
        self.past[0].samples[PAST_COUNT as usize - 1].0
    }

    /// Returns a time just after the last sample.
    fn end(&self) -> i64 {
        off_grid(self.own[OWN_COUNT - 1].0)
    }

    /// Returns all samples of `depth{k="a"}`.
    fn depth(&self) -> Vec<(i64, f64)> {
        [&self.past[0].samples[..], &self.own].concat()
    }

    /// Returns requests whose windows cross the border, or end before it.
    fn evaluations(&self, expression: &str) -> Vec<String> {
        let query = encode(expression);
        let (start, border, end) = (off_grid(self.start_time()), self.border(), self.end());
        let instants = [border - 900_000, border, border + 5_000, end].map(|time| {
            let time = seconds(off_grid(time));
            format!("/api/v1/query?query={query}&time={time}")
        });
        let ranges = [
            (start + 600_000, end, 37_000),
            (off_grid(border) - 60_000, end, 510),
        ];
        let ranges = ranges.map(|(start, end, step)| {
            let (start, end, step) = (seconds(start), seconds(end), seconds(step));
            format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}")
        });
        instants.into_iter().chain(ranges).collect()
    }
}

/// `#` stands for the labels of the agent's series. Subqueries are evaluated at full minutes, which
/// have samples: a window in one has a length that begins between two.
const EXPRESSIONS: &[&str] = &[
    "depth#",
    "depth# offset 5m",
    "rate(rising_total#[5m])",
    "increase(rising_total#[90m])",
    "resets(rising_total#[2h])",
    "count_over_time(depth#[3h])",
    "sum_over_time(depth#[10m])",
    "avg_over_time(depth#[7m])",
    "last_over_time(ended#[3h])",
    "sum by (k) (max_over_time(depth#[20m]))",
    "max_over_time(sum(rate(rising_total#[120001ms]))[30m:1m])",
    "depth# / on (instance) group_left () rising_total#",
    "absent(depth#)",
];

/// Series and their points.
type FoundPoints = BTreeMap<String, Vec<(i64, f64)>>;

fn evaluate(address: &AgentAddress, path: &str) -> FoundPoints {
    let answer = get(address, path).expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let body = answer.json();
    let result = body["data"]["result"].as_array();
    let point = |pair: &Value| {
        let time = (pair[0].as_f64().expect("a time") * 1_000.0).round() as i64;
        let value: f64 = pair[1]
            .as_str()
            .expect("a value")
            .parse()
            .expect("a number");
        (time, value)
    };
    let series = result.unwrap_or_else(|| panic!("{path}: {body}")).iter();
    let series = series.map(|one| {
        let points = match one["values"].as_array() {
            Some(values) => values.iter().map(point).collect(),
            None => vec![point(&one["value"])],
        };
        (one["metric"].to_string(), points)
    });
    series.collect()
}

#[track_caller]
fn assert_equal(expected: &FoundPoints, found: &FoundPoints, what: &str) {
    let keys = |found: &FoundPoints| found.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(expected), keys(found), "{what}");
    for (labels, points) in expected {
        let other = &found[labels];
        assert_eq!(points.len(), other.len(), "{what}: {labels}");
        for ((time, a), (at, b)) in points.iter().zip(other) {
            assert_eq!(time, at, "{what}: {labels}");
            let is_equal = a == b
                || (a.is_nan() && b.is_nan())
                || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
            assert!(is_equal, "{what}: {labels} at {time}: {a} and {b}");
        }
    }
}

/// Sends a request whose answer must be marked as complete, with history.
#[track_caller]
fn get_marked(agent: &AgentProcess, path: &str) -> TestResponse {
    let answer = agent.get(path);
    let mark = answer.header("pegel-history").unwrap_or("none");
    let is_complete = mark.starts_with("until=") && !mark.contains("incomplete");
    assert!(is_complete, "{path}: {mark}");
    answer
}

/// PromQL and lists, compared with the Prometheus that holds everything.
fn compare_with_reference(scene: &HistoryScene, reference: &AgentAddress, engine: &str) {
    let own_labels = format!("{{instance=\"{INSTANCE}\"}}");
    for expression in EXPRESSIONS {
        let expression = expression.replace('#', &own_labels);
        for path in scene.evaluations(&expression) {
            let expected = evaluate(reference, &path);
            let found = evaluate(scene.agent().http(), &path);
            assert_equal(
                &expected,
                &found,
                &format!("{expression} of {engine}: {path}"),
            );
        }
    }
    // The samples themselves, to the bit.
    let selector = format!("depth{own_labels}");
    let length = (scene.end() - scene.start_time()) / 1_000 + 1;
    let expected = samples(reference, &selector, length, scene.end());
    assert_eq!(expected.len(), 2, "{expected:?}");
    let found = samples(scene.agent().http(), &selector, length, scene.end());
    assert_eq!(found, expected, "{engine}");
    let names = "__name__=~\"depth|rising_total|ended\"";
    let of_agent = encode(&format!("{{{names},instance=\"{INSTANCE}\"}}"));
    let range = format!(
        "start={}&end={}",
        seconds(scene.start_time()),
        seconds(scene.end())
    );
    for path in ["series", "labels", "label/k/values"] {
        let path = format!("/api/v1/{path}?match[]={of_agent}&{range}");
        let list = |answer: TestResponse| {
            let body = answer.json();
            let list = body["data"].as_array().expect("a list").iter();
            let mut list: Vec<String> = list.map(Value::to_string).collect();
            list.sort();
            list
        };
        let expected = list(get(reference, &path).expect("an answer"));
        assert!(expected.len() > 2, "{expected:?}");
        let found = list(get_marked(scene.agent(), &path));
        assert_eq!(found, expected, "{path}");
    }
    let path = &scene.evaluations(&selector)[5];
    let marked = get_marked(scene.agent(), path).json();
    let info = marked["infos"][0].as_str().expect("a note");
    assert!(info.starts_with("history: samples before"), "{info}");
    assert!(info.ends_with(engine), "{info}");
    assert_eq!(marked["warnings"], Value::Null);
}

fn points_of_range(agent: &AgentProcess, selector: &str, range: (i64, i64)) -> Value {
    let selector = encode(selector);
    let path = format!(
        "/api/v1/range?match={selector}&start={}&end={}",
        range.0, range.1
    );
    let mut answer = get_marked(agent, &path).json();
    assert_eq!(answer.as_array().map(Vec::len), Some(1), "{answer}");
    answer[0].take()
}

/// The other APIs, compared with the samples that were written.
fn compare_with_samples(scene: &HistoryScene) {
    let (agent, depth) = (scene.agent(), scene.depth());
    let range = (scene.start_time(), scene.end());
    let found = points_of_range(agent, "depth{k=\"a\"}", range);
    assert_eq!(found["labels"], json!({"k": "a"}));
    assert_eq!(found["points"], json!(depth));
    // A series that only the engine has, with a label whose value must be escaped.
    let found = points_of_range(agent, "ended", range);
    assert_eq!(found["labels"], json!({"k": QUOTED}));
    assert_eq!(found["points"], json!(scene.past[3].samples));
    let quoted = format!("ended{{k={}}}", json!(QUOTED));
    let last = scene.past[3].samples.last().expect("samples");
    let path = format!(
        "/api/v1/query?query={}&time={}",
        encode(&quoted),
        seconds(last.0 + 7)
    );
    let found = get_marked(agent, &path).json();
    let value = found["data"]["result"][0]["value"][1].as_str();
    let value = value.unwrap_or_else(|| panic!("{found}"));
    assert_eq!(value.parse::<f64>().expect("a number"), last.1);

    let query = encode("sum:depth{k=a}");
    let path = format!(
        "/api/query?start={}&end={}&ms=true&m={query}",
        range.0, range.1
    );
    let found = get_marked(agent, &path).json();
    let points = found[0]["dps"].as_object().expect("points").iter();
    let points: BTreeMap<i64, f64> = points
        .map(|(time, value)| {
            let time: i64 = time.parse().expect("milliseconds");
            (time, value.as_f64().expect("a number"))
        })
        .collect();
    assert_eq!(points, depth.iter().copied().collect::<BTreeMap<_, _>>());

    let name = remote_read::matcher("__name__", label_matcher::Type::Eq, "depth");
    let tag = remote_read::matcher("k", label_matcher::Type::Eq, "a");
    let query = remote_read::query(vec![name, tag], range.0, range.1);
    let results = remote_read::read(agent, vec![query]);
    let [series] = &results[0][..] else {
        panic!("{results:?}");
    };
    let found = series.samples.iter();
    let found: Vec<(i64, f64)> = found.map(|one| (one.timestamp, one.value)).collect();
    assert_eq!(found, depth);

    let expression = "count_over_time(depth{k=\"a\"}[4h])";
    let end = seconds(scene.end());
    let shown = agent.client(&["query", expression, "-f", "json", "--time", &end]);
    assert_eq!(shown.code(), Some(0), "{shown}");
    assert!(shown.stdout.contains(&depth.len().to_string()), "{shown}");
    assert!(shown.stderr.contains("history: samples before"), "{shown}");
}

fn requests(agent: &AgentProcess) -> u64 {
    let status = agent.status();
    let count = status["history"]["requests"].as_u64();
    count.unwrap_or_else(|| panic!("{status}"))
}

/// Ranges after the border are answered without the engine.
fn check_requests_after_the_border(scene: &HistoryScene) {
    let (agent, first) = (scene.agent(), scene.own[0].0);
    let before = requests(agent);
    for path in [
        format!("/api/v1/range?match=depth&start={first}"),
        format!(
            "/api/v1/query_range?query=depth&lookback_delta=500ms&step=500ms&start={}&end={}",
            seconds(first + 600),
            seconds(scene.end())
        ),
    ] {
        let answer = agent.get(&path);
        assert_eq!(answer.header("pegel-history"), None, "{path}");
        assert!(answer.text().contains("depth"), "{}", answer.text());
    }
    assert_eq!(requests(agent), before);
}

/// Compares an agent whose history is in an engine with a Prometheus that holds everything.
fn check_across_the_border(engine: &ReceiverProcess, reference: &ReceiverProcess) {
    let mut scene = HistoryScene::start(engine, reference);
    compare_with_reference(&scene, &reference.address, &engine.base_url());
    compare_with_samples(&scene);
    check_requests_after_the_border(&scene);
    let status = scene.agent().status();
    assert_eq!(status["history"]["incomplete"], json!({}), "{status}");
    assert_eq!(status["history"]["last_error"], Value::Null);
    let metrics = scene.agent().get("/metrics");
    assert!(metrics.text().contains("pegel_history_requests_total "));
    let report = scene.agent().client(&["doctor"]).stdout;
    assert!(report.contains(&engine.base_url()), "{report}");
    // The border is that of the store, not of the process; and without its file nothing is missing
    // and nothing is there twice.
    scene.restart();
    compare_with_samples(&scene);
    let agent = scene.agent.take().expect("it runs");
    agent.kill();
    fs::write(scene.dir.join("store/complete-since"), "damaged\n").expect("written");
    scene.restart();
    compare_with_samples(&scene);
}

#[test]
fn a_query_across_the_border_equals_one_prometheus_with_everything() {
    let Some(prometheus) = ReceiverProcess::prometheus() else {
        return;
    };
    check_across_the_border(&prometheus, &prometheus);
}

#[test]
fn a_query_across_the_border_of_victoria_metrics_equals_one_prometheus_with_everything() {
    let (Some(prometheus), Some(victoria)) =
        (ReceiverProcess::prometheus(), ReceiverProcess::victoria())
    else {
        return;
    };
    check_across_the_border(&victoria, &prometheus);
}

#[derive(Debug, Clone, Copy)]
enum EngineFault {
    Down,
    Hangs,
    Error,
    Garbage,
    Endless,
}

/// Returns the URL of an engine that fails; its thread ends with the test process.
fn failing_engine(fault: EngineFault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    if matches!(fault, EngineFault::Down) {
        return url;
    }
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || fail(stream, fault));
        }
    });
    url
}

/// Answers a request. Errors are those of a client that has seen enough.
fn fail(mut stream: TcpStream, fault: EngineFault) {
    let mut buffer = [0; 4_096];
    let _ = stream.read(&mut buffer);
    let answer = match fault {
        EngineFault::Down | EngineFault::Hangs => "",
        EngineFault::Error => "HTTP/1.1 500 X\r\nContent-Length: 6\r\n\r\nbroken",
        EngineFault::Garbage => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ngarbage",
        EngineFault::Endless => "HTTP/1.1 200 OK\r\n\r\n",
    };
    let _ = stream.write_all(answer.as_bytes());
    let is_endless = matches!(fault, EngineFault::Endless);
    while is_endless && stream.write_all(&buffer).is_ok() {}
    if !answer.is_empty() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    // Until the client closes the connection: unread bytes would reset it before the answer is
    // read.
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

#[test]
fn an_engine_that_fails_leaves_the_samples_of_the_store() {
    for (fault, reason) in [
        (EngineFault::Down, "unreachable"),
        (EngineFault::Hangs, "timeout"),
        (EngineFault::Error, "refused"),
        (EngineFault::Garbage, "malformed"),
        (EngineFault::Endless, "too_large"),
    ] {
        let url = failing_engine(fault);
        let config =
            format!("node: n1\nrate: 250ms\nhistory: {{url: '{url}', timeout: 1s, bytes: 1MiB}}\n");
        let agent = PEGEL.agent().config(&config).start();
        let time = now_millis();
        put(&agent, "depth", time, 0.25);
        let path = format!(
            "/api/v1/query_range?query=depth&step=10&start={}&end={}",
            seconds(time - 3_600_000),
            seconds(time)
        );
        let began = Instant::now();
        let answer = agent.get(&path);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(15), "{fault:?}: {took:?}");
        let mark = answer.header("pegel-history").unwrap_or("none");
        let expected = format!("incomplete={reason}");
        assert!(
            mark.contains(" from=") && mark.contains(&expected),
            "{fault:?}: {mark}"
        );
        let body = answer.json();
        let values = body["data"]["result"][0]["values"].as_array();
        assert_eq!(values.map(Vec::len), Some(1), "{fault:?}: {body}");
        let warning = body["warnings"][0].as_str().unwrap_or("none");
        assert!(
            warning.contains("history before") && warning.contains(&url),
            "{fault:?}: {warning}"
        );
        let status = agent.status();
        let count = status["history"]["incomplete"][reason].as_u64();
        assert!(count >= Some(1), "{fault:?}: {status}");
        let report = agent.client(&["doctor"]).stdout;
        assert!(report.contains("the last request failed"), "{report}");
        // Sampling goes on, and what needs no history is answered as ever.
        let path = format!("/api/v1/range?match=node_load1&start={}", now_millis());
        eventually("new samples of the node", || {
            let answer = agent.get(&path);
            assert_eq!(answer.header("pegel-history"), None);
            let is_there = answer
                .json()
                .as_array()
                .is_some_and(|list| !list.is_empty());
            is_there.then_some(()).ok_or(agent.output())
        });
        agent.assert_conserved();
    }
}

#[test]
fn an_engine_that_returns_is_used_again() {
    let Some(mut engine) = ReceiverProcess::prometheus() else {
        return;
    };
    let past = past(now_millis() / STEP * STEP - STEP);
    write_past(&engine.address, &[INSTANCE], &past, &[]);
    engine.kill();
    let config = format!(
        "node: n1\npromql: {{instance: {INSTANCE}}}\nhistory: {{url: '{}'}}\n",
        engine.base_url()
    );
    let agent = PEGEL.agent().config(&config).start();
    let expression = encode("count_over_time(depth{k=\"a\"}[4h])");
    let end = seconds(off_grid(now_millis()));
    let path = format!("/api/v1/query?query={expression}&time={end}");
    let missing = agent.get(&path);
    let mark = missing.header("pegel-history").unwrap_or("none");
    assert!(mark.contains("incomplete=unreachable"), "{mark}");
    engine.restart();
    let found = eventually_within(BOUND, "the history is there", || {
        let answer = agent.get(&path);
        let mark = answer.header("pegel-history").unwrap_or("none");
        match mark.contains("incomplete") {
            true => Err(mark.to_owned()),
            false => Ok(answer.json()),
        }
    });
    let value = &found["data"]["result"][0]["value"][1];
    assert_eq!(*value, json!(PAST_COUNT.to_string()), "{found}");
    assert_eq!(agent.status()["history"]["last_error"], Value::Null);
}

#[test]
fn the_agent_authenticates_to_the_engine_and_hides_its_password() {
    const PASSWORD: &str = "planted-password-of-history";
    // `reader:` and the password in base64.
    const AUTHORIZATION: &str = "Basic cmVhZGVyOnBsYW50ZWQtcGFzc3dvcmQtb2YtaGlzdG9yeQ==";
    let arguments = [
        "-httpAuth.username=reader".to_owned(),
        format!("-httpAuth.password={PASSWORD}"),
    ];
    let arguments = arguments.each_ref().map(String::as_str);
    let Some(engine) = ReceiverProcess::victoria_with(&arguments) else {
        return;
    };
    let past = past(now_millis() / STEP * STEP - STEP);
    let headers = [("Authorization", AUTHORIZATION)];
    write_past(&engine.address, &[INSTANCE], &past, &headers);
    let flushed = get_with(&engine.address, "/internal/force_flush", &headers);
    assert_eq!(flushed.expect("flushed").status, 200);
    let home = TempDir::new();
    let file = home.join("password");
    fs::write(&file, "wrong-password\n").expect("written");
    let config = format!(
        "node: n1\npromql: {{instance: {INSTANCE}}}\nhistory: {{url: '{}', user: reader, \
         password_file: '{}', headers: {{X-Api-Key: {PASSWORD}}}}}\n",
        engine.base_url(),
        file.display()
    );
    let agent = PEGEL.agent().config(&config).start();
    let expression = encode("count_over_time(depth{k=\"a\"}[4h])");
    let end = seconds(off_grid(now_millis()));
    let path = format!("/api/v1/query?query={expression}&time={end}");
    let refused = agent.get(&path);
    let mark = refused.header("pegel-history").unwrap_or("none");
    assert!(mark.contains("incomplete=refused"), "{mark}");
    // The file is read for each request.
    fs::write(&file, PASSWORD).expect("written");
    let found = get_marked(&agent, &path).json();
    let value = &found["data"]["result"][0]["value"][1];
    assert_eq!(*value, json!(PAST_COUNT.to_string()), "{found}");
    for path in ["/status", "/api/v1/status/config", "/metrics"] {
        assert!(!agent.get(path).text().contains(PASSWORD), "{path}");
    }
    assert!(!agent.client(&["doctor"]).stdout.contains(PASSWORD));
    let ended = agent.stop();
    assert!(!ended.to_string().contains(PASSWORD), "{ended}");
}

#[test]
fn every_node_of_a_tree_joins_its_own_history() {
    let Some(mut engine) = ReceiverProcess::prometheus() else {
        return;
    };
    let past = past(now_millis() / STEP * STEP - STEP);
    let address = free_address();
    let root = format!("node: root\ntree: {{accept: \"{address}\"}}\n");
    let root = PEGEL.agent().config(&root).start();
    write_past(&engine.address, &["a", "b"], &past, &[]);
    let nodes = ["a", "b"].map(|name| {
        let config = format!(
            "node: {name}\ntree: {{parents: [\"{address}\"]}}\npromql: {{instance: {name}}}\n\
             history: {{url: '{}'}}\n",
            engine.base_url()
        );
        PEGEL.agent().config(&config).start()
    });
    eventually_within(BOUND, "all nodes are up", || {
        let listed = root.get("/api/v1/nodes").json();
        let states = listed["nodes"].as_array().map(|nodes| {
            let up = nodes.iter().filter(|node| node["state"] == "up");
            up.count()
        });
        (states == Some(3)).then_some(()).ok_or(listed)
    });
    let end = seconds(off_grid(now_millis()));
    let ask = |expression: &str| {
        let expression = encode(expression);
        root.get(&format!("/api/v1/query?query={expression}&time={end}"))
    };
    let answer = ask("count_over_time(depth[4h])");
    let nodes_mark = answer.header("pegel-nodes").unwrap_or("none").to_owned();
    assert_eq!(nodes_mark, "answered=3 expected=3");
    let body = answer.json();
    let found = body["data"]["result"].as_array().expect("a list").iter();
    let mut found: Vec<(String, String)> = found
        .map(|one| {
            let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
            let labels = &one["metric"];
            let node = format!("{}/{}", text(&labels["host"]), text(&labels["k"]));
            (node, text(&one["value"][1]))
        })
        .collect();
    found.sort();
    let expected = [
        ("a/a", PAST_COUNT),
        ("a/b", PAST_COUNT - 30),
        ("b/a", PAST_COUNT),
        ("b/b", PAST_COUNT - 30),
    ];
    let expected = expected.map(|(node, count)| (node.to_owned(), count.to_string()));
    assert_eq!(found, expected, "{body}");
    // A node whose history is missing is late. Another selector, so that nothing is cached.
    engine.kill();
    let answer = ask("sum(count_over_time(depth{k=\"a\"}[4h]))");
    let mark = answer.header("pegel-nodes").unwrap_or("none");
    assert!(mark.contains("late=a,b"), "{mark}");
    assert!(answer.json()["warnings"][0].is_string());
    for node in &nodes {
        let count = node.status()["history"]["incomplete"]["unreachable"].clone();
        assert!(count.as_u64() >= Some(1), "{count}");
    }
}
