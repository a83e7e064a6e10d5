//! Prometheus' remote write to a real agent: requests that a test builds, and those of a real
//! Prometheus (`prometheus.rs`).

mod prometheus;

use pegel_testkit::{
    AgentAddress, AgentProcess, TempDir, TestResponse, now_millis, post, send_raw,
};
use pegel_wire::prompb::{
    Label, Message, MetricMetadata, Sample, TimeSeries, WriteRequest, write_v2,
};
use serde_json::{Value, json};

use crate::PEGEL;

const V1: &str = "application/x-protobuf";
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
/// Prometheus' mark of the end of a series.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

fn agent() -> AgentProcess {
    PEGEL.agent().args(&["--node", "nid7"]).start()
}

/// Returns the label `instance` of the agent's own series.
fn own_instance(agent: &AgentProcess) -> String {
    agent.http().to_string().replace("127.0.0.1", "nid7")
}

fn series(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> TimeSeries {
    let label = |&(name, value): &(&str, &str)| Label {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let sample = |&(timestamp, value): &(i64, f64)| Sample { timestamp, value };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples.iter().map(sample).collect(),
        ..TimeSeries::default()
    }
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let packed = snap::raw::Encoder::new().compress_vec(bytes);
    packed.expect("compressed")
}

#[track_caller]
fn post_write(address: &AgentAddress, headers: &[(&str, &str)], body: &[u8]) -> TestResponse {
    post(address, "/api/v1/write", headers, body).expect("an answer")
}

/// Sends series with version 1.0.
#[track_caller]
fn write(agent: &AgentProcess, timeseries: Vec<TimeSeries>) -> TestResponse {
    let request = WriteRequest {
        timeseries,
        metadata: Vec::new(),
    };
    send(agent, V1, &request.encode_to_vec())
}

/// Compresses and sends a message.
#[track_caller]
fn send(agent: &AgentProcess, content_type: &str, message: &[u8]) -> TestResponse {
    let headers = [
        ("Content-Type", content_type),
        ("Content-Encoding", "snappy"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    post_write(agent.http(), &headers, &snappy(message))
}

#[track_caller]
fn assert_stored(answer: &TestResponse) {
    assert_eq!(answer.status, 204, "{}", answer.text());
    assert_eq!(answer.text(), "");
}

/// Evaluates an expression at a time in milliseconds; returns labels and values.
#[track_caller]
fn query(agent: &AgentProcess, expression: &str, time: i64) -> Vec<(Value, Value)> {
    let encoded: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let time = format!("{}.{:03}", time / 1000, time % 1000);
    let answer = agent.get(&format!("/api/v1/query?time={time}&query={encoded}"));
    let result = answer.json()["data"]["result"].take();
    let result = result.as_array().expect("a vector").clone();
    let entry = |mut one: Value| {
        let values = match one["values"].take() {
            Value::Null => one["value"][1].take(),
            values => values,
        };
        (one["metric"].take(), values)
    };
    result.into_iter().map(entry).collect()
}

/// Returns how many samples of remote write were dropped for a reason.
fn dropped(agent: &AgentProcess, reason: &str) -> u64 {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list");
    let of_remote = inputs.iter().find(|input| input["input"] == "remote_write");
    of_remote.expect("an input")["dropped"][reason]
        .as_u64()
        .unwrap_or(0)
}

/// Starts an agent on the store in a directory.
fn start_in(dir: &TempDir) -> AgentProcess {
    PEGEL
        .agent()
        .dir(dir.join("store"))
        .args(&["--node", "nid7"])
        .start()
}

#[test]
fn series_may_come_in_any_order_and_with_new_ones_between_them() {
    let agent = agent();
    let start = now_millis() - 60_000;
    let orders: [&[u8]; 5] = [b"abcd", b"dcba", b"axbycd", b"cx", b"bbyaxdc"];
    for (at, order) in orders.iter().enumerate() {
        let of_letter = |(place, letter): (usize, &u8)| {
            let name = char::from(*letter).to_string();
            let time = start + 1000 * at as i64 + place as i64;
            let labels = [("__name__", "steps"), ("rank", name.as_str())];
            series(&labels, &[(time, f64::from(*letter) + at as f64)])
        };
        let request = order.iter().enumerate().map(of_letter).collect();
        assert_stored(&write(&agent, request));
    }
    for letter in b"abcdxy" {
        let mut expected = Vec::new();
        for (at, order) in orders.iter().enumerate() {
            for _ in order.iter().filter(|other| *other == letter) {
                expected.push((f64::from(*letter) + at as f64).to_string());
            }
        }
        let rank = char::from(*letter);
        let expression = format!("steps{{rank=\"{rank}\"}}[1m]");
        let answer = query(&agent, &expression, start + 10_000);
        let samples = answer[0].1.as_array().expect("samples");
        let values: Vec<_> = samples.iter().map(|sample| sample[1].clone()).collect();
        assert_eq!(values, expected, "{rank}");
    }
    agent.assert_conserved();
}

#[test]
fn series_are_stored_as_they_were_sent_and_survive_a_kill() {
    let dir = TempDir::new();
    let start = || start_in(&dir);
    let agent = start();
    let now = now_millis();
    let labels = [
        ("__name__", "http_requests_total"),
        ("code", "200"),
        ("host", "nid7"),
        ("input", "x"),
        ("instance", "web:80"),
        ("job", "web"),
        ("user", "alice"),
    ];
    let samples = [(now - 60_000, 1.0), (now - 30_000, 2.5), (now, f64::NAN)];
    assert_stored(&write(&agent, vec![series(&labels, &samples)]));
    // Earlier than what is stored, and infinite.
    let late = [
        (now - 45_000, f64::INFINITY),
        (now - 50_000, f64::NEG_INFINITY),
    ];
    assert_stored(&write(&agent, vec![series(&labels, &late)]));
    agent.assert_conserved();
    let agent = {
        agent.kill();
        start()
    };
    let expected: Value = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let found = query(&agent, "http_requests_total[2m]", now);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, expected);
    let values: Vec<&str> = found[0]
        .1
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one[1].as_str())
        .collect();
    assert_eq!(values, ["1", "-Inf", "+Inf", "2.5", "NaN"]);
    agent.assert_conserved();
}

#[test]
fn labels_may_have_any_order_and_empty_values_are_absent_ones() {
    let agent = agent();
    let now = now_millis();
    let unsorted = [("z", "1"), ("__name__", "m"), ("empty", ""), ("a", "2")];
    let sorted = [("__name__", "m"), ("a", "2"), ("z", "1")];
    assert_stored(&write(
        &agent,
        vec![series(&unsorted, &[(now - 2000, 1.0)])],
    ));
    assert_stored(&write(&agent, vec![series(&sorted, &[(now - 1000, 2.0)])]));
    let found = query(&agent, "count_over_time(m[1m])", now);
    assert_eq!(found, [(json!({"a": "2", "z": "1"}), json!("2"))]);
}

#[test]
fn a_stale_marker_ends_a_series_until_its_next_sample() {
    let agent = agent();
    let now = now_millis();
    let labels = [("__name__", "ends")];
    let samples = [
        (now - 30_000, 1.0),
        (now - 20_000, STALE),
        (now - 10_000, 3.0),
    ];
    assert_stored(&write(&agent, vec![series(&labels, &samples)]));
    let at = |time: i64| query(&agent, "ends", time).len();
    assert_eq!((at(now - 25_000), at(now - 15_000), at(now)), (1, 0, 1));
    let raw = query(&agent, "ends[1m]", now);
    assert_eq!(raw[0].1.as_array().map(Vec::len), Some(2), "{raw:?}");
}

#[test]
fn version_2_is_read_and_reports_what_was_written() {
    let agent = agent();
    let now = now_millis();
    let symbols = [
        "",
        "__name__",
        "v2_total",
        "job",
        "web",
        "v2_seconds_bucket",
        "le",
        "0.5",
        "Help.",
        "seconds",
    ];
    let of = |labels_refs: &[u32], samples: &[(i64, f64)]| write_v2::TimeSeries {
        labels_refs: labels_refs.to_vec(),
        samples: samples
            .iter()
            .map(|&(timestamp, value)| write_v2::Sample { timestamp, value })
            .collect(),
        ..write_v2::TimeSeries::default()
    };
    let metadata = |kind: write_v2::metadata::MetricType| {
        Some(write_v2::Metadata {
            r#type: kind.into(),
            help_ref: 8,
            unit_ref: 9,
        })
    };
    let mut request = write_v2::Request {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![
            write_v2::TimeSeries {
                metadata: metadata(write_v2::metadata::MetricType::Counter),
                exemplars: vec![write_v2::Exemplar::default()],
                ..of(&[1, 2, 3, 4], &[(now - 1000, 1.0), (now, 2.0)])
            },
            write_v2::TimeSeries {
                metadata: metadata(write_v2::metadata::MetricType::Histogram),
                ..of(&[1, 5, 6, 7], &[(now, 3.0)])
            },
        ],
    };
    let written = |answer: &TestResponse| {
        ["samples", "histograms", "exemplars"].map(|what| {
            let name = format!("x-prometheus-remote-write-{what}-written");
            answer.header(&name).map(str::to_owned)
        })
    };
    let counts = |samples: &str| [samples, "0", "0"].map(|count| Some(count.to_owned()));
    let answer = send(&agent, V2, &request.encode_to_vec());
    assert_stored(&answer);
    assert_eq!(written(&answer), counts("3"));
    // A part of the next request is refused.
    request.timeseries = vec![
        of(&[1, 2, 3, 4], &[(now + 1, 4.0)]),
        of(&[1, 2, 3, 40], &[(now, 4.0)]),
        of(&[1, 2, 3], &[(now, 4.0)]),
        of(&[3, 4], &[(now, 4.0)]),
        of(&[], &[(now, 4.0)]),
        write_v2::TimeSeries {
            histograms: vec![vec![8, 1]],
            ..of(&[1, 2], &[])
        },
    ];
    let answer = send(&agent, V2, &request.encode_to_vec());
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(written(&answer), counts("1"));
    let message = answer.json()["error"]["message"].to_string();
    assert!(
        message.contains("stored 1 samples, refused 5: 4 bad_name (a label refers to symbol 40"),
        "{message}"
    );
    assert!(
        message.contains("1 unsupported (native histograms are not supported)"),
        "{message}"
    );
    assert_eq!(
        (dropped(&agent, "bad_name"), dropped(&agent, "unsupported")),
        (4, 1)
    );
    let found = query(&agent, "count_over_time(v2_total[1m])", now + 1);
    assert_eq!(found, [(json!({"job": "web"}), json!("3"))]);
    let metadata = agent.get("/api/v1/metadata").json();
    let entry = |kind: &str| json!([{"type": kind, "help": "Help.", "unit": "seconds"}]);
    assert_eq!(metadata["data"]["v2_total"], entry("counter"));
    assert_eq!(metadata["data"]["v2_seconds"], entry("histogram"));
    let status = agent.status()["remote_write"].clone();
    assert_eq!(
        (&status["exemplars_ignored"], &status["histograms_refused"]),
        (&json!(1), &json!(1))
    );
    agent.assert_conserved();
}

#[test]
fn metadata_of_version_1_is_shown() {
    let agent = agent();
    let metadata = MetricMetadata {
        r#type: 5,
        metric_family_name: "rpc_seconds".to_owned(),
        help: "Calls.".to_owned(),
        unit: String::new(),
    };
    let request = WriteRequest {
        timeseries: Vec::new(),
        metadata: vec![metadata],
    };
    assert_stored(&send(&agent, V1, &request.encode_to_vec()));
    let shown = agent.get("/api/v1/metadata?metric=rpc_seconds").json();
    let entry = json!({"type": "summary", "help": "Calls.", "unit": ""});
    assert_eq!(shown["data"], json!({"rpc_seconds": [entry]}));
}

#[test]
fn nothing_of_the_node_can_be_forged() {
    let agent = agent();
    let now = now_millis();
    let own = own_instance(&agent);
    let host = own.split(':').next().expect("the node's name").to_owned();
    let names = [
        "node_load1",
        "node.load1",
        "node-load1",
        "up",
        "up_total",
        "pegel_up",
        "pegel.received.total",
        "scrape_duration_seconds",
    ];
    for name in names {
        for instance in [None, Some(""), Some(&*own), Some(&*host)] {
            let mut labels = vec![("__name__", name), ("job", "node")];
            labels.extend(instance.map(|instance| ("instance", instance)));
            let answer = write(&agent, vec![series(&labels, &[(now, 99.0)])]);
            assert_eq!(answer.status, 400, "{name} of {instance:?}");
            assert!(
                answer.text().contains("belongs to the node"),
                "{}",
                answer.text()
            );
        }
        let foreign = [
            ("__name__", name),
            ("instance", "other:9100"),
            ("job", "node"),
        ];
        assert_stored(&write(&agent, vec![series(&foreign, &[(now, 99.0)])]));
    }
    let of = |instance: &str| {
        query(
            &agent,
            &format!("node_load1{{instance=\"{instance}\"}}"),
            now + 1000,
        )
    };
    assert_eq!(of("other:9100").len(), 1, "one of three spellings");
    assert!(
        of(&own).iter().all(|(_, value)| *value != json!("99")),
        "{:?}",
        of(&own)
    );
    // Series of other systems are in PromQL only.
    for (path, text) in [
        ("/metrics", "other:9100"),
        ("/api/v1/list", "other:9100"),
        ("/api/v1/values", "other:9100"),
        ("/api/v1/range?start=-1h&match=node_load1", "other:9100"),
        ("/api/query?start=1h-ago&m=sum:up", "dps"),
    ] {
        let answer = pegel_testkit::get_with(agent.http(), path, &[]).expect("an answer");
        assert!(!answer.text().contains(text), "{path}: {}", answer.text());
    }
    agent.assert_conserved();
}

#[test]
fn series_of_other_inputs_with_the_same_labels_stay_apart() {
    let dir = TempDir::new();
    let start = || start_in(&dir);
    let agent = start();
    let now = now_millis();
    let own = own_instance(&agent);
    // Under its own labels, and under those that PromQL adds to the series of the node.
    let put = json!([
        {"metric": "depth", "timestamp": now - 1000, "value": 1, "tags": {"q": "a"}},
        {"metric": "full", "timestamp": now - 1000, "value": 2, "tags": {"instance": "x", "job": "y"}},
    ]);
    let answer =
        post(agent.http(), "/api/put", &[], put.to_string().as_bytes()).expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
    let same = series(&[("__name__", "depth"), ("q", "a")], &[(now - 1000, 50.0)]);
    let shown_same = series(
        &[
            ("__name__", "depth"),
            ("instance", &own),
            ("job", "node"),
            ("q", "a"),
        ],
        &[(now - 1000, 51.0), (now - 500, 52.0)],
    );
    let full = series(
        &[("__name__", "full"), ("instance", "x"), ("job", "y")],
        &[(now - 1000, 60.0)],
    );
    assert_stored(&write(&agent, vec![same, shown_same, full]));
    let check = |agent: &AgentProcess| {
        let found = query(agent, "depth", now);
        let node = json!({"__name__": "depth", "instance": own, "job": "node", "q": "a"});
        let remote = json!({"__name__": "depth", "q": "a"});
        assert_eq!(found, [(node, json!("1")), (remote, json!("50"))]);
        assert_eq!(
            query(agent, "full", now)[0].1,
            json!("2"),
            "the node's own remains"
        );
        let range = agent.get("/api/v1/range?start=-1h&match=depth").json();
        assert_eq!(range[0]["points"], json!([[now - 1000, 1.0]]));
        assert_eq!(range.as_array().map(Vec::len), Some(1));
        let tsdb = agent
            .get(&format!("/api/query?start={}&m=sum:depth", now - 60_000))
            .json();
        let values: Vec<&Value> = tsdb[0]["dps"]
            .as_object()
            .expect("points")
            .values()
            .collect();
        assert_eq!(values, [&json!(1)]);
    };
    check(&agent);
    agent.kill();
    let port = own.rsplit(':').next().expect("a port");
    let agent = PEGEL
        .agent()
        .dir(dir.join("store"))
        .args(&["--node", "nid7"])
        .listen(&[&format!("127.0.0.1:{port}")])
        .start();
    check(&agent);
}

/// Labels, the time of a sample, and a part of the reason why it is refused.
type RefusedCase<'a> = (&'a [(&'a str, &'a str)], i64, &'a str);

#[test]
fn bad_series_are_refused_one_by_one() {
    let agent = agent();
    let now = now_millis();
    let many: Vec<(String, String)> = (0..10_000)
        .map(|n| (format!("l{n}"), "v".to_owned()))
        .collect();
    let mut many: Vec<(&str, &str)> = many.iter().map(|(key, value)| (&**key, &**value)).collect();
    many.push(("__name__", "m"));
    let long = "x".repeat(20_000);
    let cases: [RefusedCase<'_>; 10] = [
        (&[("a", "1")], now, "no label __name__"),
        (&[("__name__", "")], now, "no label __name__"),
        (
            &[("__name__", "m"), ("a", "1"), ("a", "2")],
            now,
            "duplicate label",
        ),
        (
            &[("__name__", "m"), ("__name__", "n")],
            now,
            "duplicate label",
        ),
        (&many, now, "10000 labels; at most 64"),
        (
            &[("__name__", "m"), ("a", &long)],
            now,
            "at most 16384 are accepted",
        ),
        (
            &[("__name__", "m"), ("a", "\u{1b}[2J")],
            now,
            "control or invisible",
        ),
        (&[("__name__", "m"), ("", "1")], now, "empty key"),
        (
            &[("__name__", "old")],
            1,
            "older than the store's retention",
        ),
        (&[("__name__", "new")], now + 3_600_000, "in the future"),
    ];
    for (labels, time, reason) in cases {
        let good = series(&[("__name__", "good")], &[(now, 1.0)]);
        let answer = write(&agent, vec![series(labels, &[(time, 1.0)]), good]);
        assert_eq!(answer.status, 400, "{reason}: {}", answer.text());
        let message = answer.json()["error"]["message"].to_string();
        assert!(
            message.starts_with("\"stored 1 samples, refused 1: "),
            "{message}"
        );
        assert!(message.contains(reason), "{reason}: {message}");
    }
    assert_eq!(query(&agent, "good", now + 1).len(), 1);
    assert_eq!(
        query(&agent, "{__name__=~\"m|n|old|new\"}", now + 1).len(),
        0
    );
    agent.assert_conserved();
}

#[test]
fn malformed_bodies_store_nothing() {
    let agent = agent();
    let now = now_millis();
    let message = WriteRequest {
        timeseries: vec![series(&[("__name__", "m")], &[(now, 1.0)])],
        metadata: Vec::new(),
    }
    .encode_to_vec();
    let headers = [("Content-Type", V1), ("Content-Encoding", "snappy")];
    let body = snappy(&message);
    for end in 0..body.len() {
        let answer = post_write(agent.http(), &headers, &body[..end]);
        assert_eq!(answer.status, 400, "cut at {end}: {}", answer.text());
    }
    for end in 1..message.len() {
        let answer = post_write(agent.http(), &headers, &snappy(&message[..end]));
        assert_eq!(answer.status, 400, "cut at {end}: {}", answer.text());
    }
    assert_eq!(query(&agent, "m", now + 1).len(), 0);
    // Sixteen megabytes in less than a megabyte.
    let bomb = post_write(agent.http(), &headers, &snappy(&vec![0; 16 << 20]));
    assert_eq!(bomb.status, 413, "{}", bomb.text());
    // It announces four gigabytes.
    let liar = post_write(
        agent.http(),
        &headers,
        &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0],
    );
    assert_eq!(liar.status, 413, "{}", liar.text());
    // A name that is not UTF-8, in both versions.
    let place = message
        .windows(1)
        .position(|byte| byte == b"m")
        .expect("its name");
    let mut latin = message.clone();
    latin[place] = 0xe4;
    let answer = post_write(agent.http(), &headers, &snappy(&latin));
    assert!(
        answer.status == 400 && answer.text().contains("not UTF-8"),
        "{}",
        answer.text()
    );
    for (name, value) in [
        ("Content-Encoding", "gzip"),
        ("Content-Encoding", "identity"),
        ("Content-Type", "application/json"),
        ("Content-Type", "application/x-protobuf;proto=other.Request"),
    ] {
        let others = headers.iter().filter(|(known, _)| *known != name);
        let headers: Vec<(&str, &str)> = others.copied().chain([(name, value)]).collect();
        let answer = post_write(agent.http(), &headers, &body);
        assert_eq!(answer.status, 415, "{name}: {value}: {}", answer.text());
    }
    // A message of version 1.0 that is announced as 2.0 has no series: its fields are reserved.
    assert_stored(&send(&agent, V2, &message));
    let refused = send_raw(
        agent.http(),
        "GET /api/v1/write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
    agent.assert_conserved();
}

#[test]
fn a_sender_with_too_many_series_is_limited_and_counted() {
    let agent = PEGEL
        .agent()
        .config("limits:\n  series_per_sender: 10\n")
        .start();
    let now = now_millis();
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    let all = names
        .iter()
        .map(|name| series(&[("__name__", name)], &[(now, 1.0)]));
    let answer = write(&agent, all.collect());
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text()
            .contains("stored 10 samples, refused 10: 10 sender_limit"),
        "{}",
        answer.text()
    );
    assert_eq!(dropped(&agent, "sender_limit"), 10);
    assert_eq!(query(&agent, "{__name__=~\"m.*\"}", now + 1).len(), 10);
    agent.assert_conserved();
}
