//! Prometheus' HTTP API, over samples that a test stores.

use std::io::Write;
use std::net::TcpStream;

use flate2::Compression;
use flate2::write::GzEncoder;
use pegel_metric::{MetricKind, Millis};
use pegel_testkit::{AgentAddress, TestResponse, eventually, get_with, post};
use serde_json::{Value, json};

use crate::support::{TestServer, now};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A server with four samples of two counters and one gauge, a second apart. Returns the time of
/// the last sample, in whole seconds.
fn server() -> (TestServer, Millis) {
    let server = TestServer::new();
    let end = now() / 1_000 * 1_000;
    for back in 0..4 {
        let time = end - 3_000 + back * 1_000;
        let value = back as f64;
        server.push(
            MetricKind::Counter,
            &[
                (r#"hits_total{call="a"}"#, time, value),
                (r#"hits_total{call="b"}"#, time, 10.0 * value),
            ],
        );
        server.push(MetricKind::Gauge, &[("depth", time, value + 0.5)]);
    }
    (server, end)
}

fn post_form(server: &TestServer, path: &str, form: &str) -> TestResponse {
    let tcp = AgentAddress::Tcp(server.tcp());
    post(&tcp, path, &[FORM], form.as_bytes()).expect("an answer")
}

fn data(response: &TestResponse) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    let mut body = response.json();
    assert_eq!(body["status"], "success", "{body}");
    body["data"].take()
}

#[test]
fn grafana_tests_its_connection() {
    let (server, _) = server();
    let answer = post_form(&server, "/api/v1/query", "query=1%2B1&time=4");
    assert_eq!(
        answer.text(),
        r#"{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}"#
    );
    let info = data(&server.get("/api/v1/status/buildinfo"));
    assert_eq!(info["version"], "3.5.0");
}

#[test]
fn an_instant_query_returns_a_vector() {
    let (server, end) = server();
    let seconds = end / 1_000;
    let path = format!("/api/v1/query?query=depth%3E0&time={seconds}.25");
    let result = data(&server.get(&path));
    assert_eq!(result["resultType"], "vector");
    assert_eq!(result["result"][0]["metric"]["__name__"], "depth");
    assert_eq!(
        result["result"][0]["value"],
        json!([seconds as f64 + 0.25, "3.5"])
    );
    let text = data(&server.get("/api/v1/query?query=%22x%22&time=1.5"));
    assert_eq!(text, json!({"resultType": "string", "result": [1.5, "x"]}));
    let matrix = data(&server.get(&format!("/api/v1/query?query=depth[2s]&time={seconds}")));
    let expected = json!([[seconds - 1, "2.5"], [seconds, "3.5"]]);
    assert_eq!(matrix["result"][0]["values"], expected);
    let none = data(&server.get("/api/v1/query?query=no_such_metric"));
    assert_eq!(none, json!({"resultType": "vector", "result": []}));
}

#[test]
fn a_range_query_returns_a_matrix() {
    let (server, end) = server();
    let seconds = end / 1_000;
    let form = format!(
        "query=sum(rate(hits_total[2s]))&start={}&end={seconds}&step=1s&stats=all",
        seconds - 1
    );
    let result = data(&post_form(&server, "/api/v1/query_range", &form));
    assert_eq!(result["resultType"], "matrix");
    let expected = json!([{"metric": {}, "values": [[seconds - 1, "11"], [seconds, "11"]]}]);
    assert_eq!(result["result"], expected);
    assert_eq!(result["stats"]["samples"]["totalQueryableSamples"], 6);
    let limited = post_form(
        &server,
        "/api/v1/query_range",
        &format!("query=hits_total&start={seconds}&end={seconds}&step=1&limit=1"),
    );
    let body = limited.json();
    assert_eq!(body["data"]["result"].as_array().map(Vec::len), Some(1));
    assert_eq!(body["warnings"], json!(["results truncated due to limit"]));
    let info = server.get("/api/v1/query?query=rate(depth[1m])").json();
    let infos = info["infos"].as_array().expect("an info");
    assert!(
        infos[0]
            .as_str()
            .is_some_and(|text| text.contains("might not be a counter"))
    );
}

#[test]
fn series_and_labels_are_listed() {
    let (server, end) = server();
    let seconds = end / 1_000;
    let all = data(&server.get("/api/v1/series?match[]=hits_total&match[]=%7Bcall=%22a%22%7D"));
    let calls: Vec<&Value> = all
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["call"])
        .collect();
    assert_eq!(calls, ["a", "b"]);
    let instance = format!("nid0001:{}", server.tcp().port());
    assert_eq!(all[0]["instance"], instance);
    assert_eq!(all[0]["job"], "node");
    let later = format!("/api/v1/series?match[]=hits_total&start={}", seconds + 60);
    assert_eq!(data(&server.get(&later)), json!([]));
    let names = data(&server.get("/api/v1/labels"));
    let names: Vec<&str> = names
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(
        names.contains(&"__name__") && names.contains(&"call"),
        "{names:?}"
    );
    assert_eq!(
        data(&server.get("/api/v1/label/call/values")),
        json!(["a", "b"])
    );
    let with_match = "/api/v1/label/__name__/values?match[]=%7Bcall=~%22.%2B%22%7D";
    assert_eq!(data(&server.get(with_match)), json!(["hits_total"]));
    let limited = server.get("/api/v1/label/call/values?limit=1").json();
    assert_eq!(limited["data"], json!(["a"]));
    assert_eq!(
        limited["warnings"],
        json!(["results truncated due to limit"])
    );
    let metadata = data(&server.get("/api/v1/metadata?metric=depth"));
    let expected = json!({"depth": [{"type": "gauge", "help": "About depth.", "unit": ""}]});
    assert_eq!(metadata, expected);
    assert_eq!(
        data(&server.get("/api/v1/query_exemplars?query=depth")),
        json!([])
    );
}

/// Clients send long selectors as forms. The answers are those to the same parameters in a URL.
#[test]
fn every_query_may_be_a_form() {
    let (server, end) = server();
    let seconds = end / 1_000;
    let range = format!("start={}&end={seconds}", seconds - 60);
    for (path, parameters) in [
        ("query", format!("query=depth&time={seconds}")),
        ("query_range", format!("query=depth&{range}&step=1")),
        ("query_exemplars", format!("query=depth&{range}")),
        (
            "series",
            format!("match[]=hits_total&match[]=depth&{range}"),
        ),
        ("labels", format!("match[]=hits_total&{range}")),
        (
            "format_query",
            "query=sum+by+(a)(rate(x%5B5m%5D))".to_owned(),
        ),
        (
            "parse_query",
            "query=sum+by+(a)(rate(x%5B5m%5D))".to_owned(),
        ),
    ] {
        let path = format!("/api/v1/{path}");
        let by_url = data(&server.get(&format!("{path}?{parameters}")));
        let by_form = data(&post_form(&server, &path, &parameters));
        assert_eq!(by_form, by_url, "{path}");
        assert!(path.ends_with("exemplars") || by_url != json!([]), "{path}");
        // Parameters in both places add up.
        let (first, rest) = parameters.split_once('&').unwrap_or((&parameters, ""));
        let mixed = post_form(&server, &format!("{path}?{rest}"), first);
        assert_eq!(data(&mixed), by_url, "{path}");
        let empty = post_form(&server, &path, "");
        let is_optional = path.ends_with("/labels");
        assert_eq!(empty.status, if is_optional { 200 } else { 400 }, "{path}");
    }
}

#[test]
fn the_server_describes_itself() {
    let (server, _) = server();
    let targets = data(&server.get("/api/v1/targets"));
    let target = &targets["activeTargets"][0];
    assert_eq!(target["health"], "up");
    assert_eq!(target["labels"]["job"], "node");
    let instance = format!("nid0001:{}", server.tcp().port());
    assert_eq!(target["labels"]["instance"], instance);
    assert_eq!(
        data(&server.get("/api/v1/status/config"))["yaml"],
        "level: 3\n"
    );
    let flags = data(&server.get("/api/v1/status/flags"));
    assert_eq!(flags["query.lookback-delta"], "300s");
    let info = data(&server.get("/api/v1/status/runtimeinfo"));
    assert_eq!(info["startTime"], "2023-11-14T22:13:20Z");
    let tsdb = data(&server.get("/api/v1/status/tsdb"));
    assert_eq!(tsdb["headStats"]["numSeries"], 3);
    assert_eq!(
        tsdb["seriesCountByMetricName"][0],
        json!({"name": "hits_total", "value": 2})
    );
    let formatted = server.get("/api/v1/format_query?query=sum+by+(a)(rate(x%5B5m%5D))");
    assert_eq!(data(&formatted), "sum by (a) (rate(x[5m]))");
}

#[test]
fn errors_have_the_types_of_prometheus() {
    let (server, _) = server();
    for (path, status, kind, message) in [
        (
            "query?query=sum(",
            400,
            "bad_data",
            "invalid parameter \"query\": ",
        ),
        ("query", 400, "bad_data", "invalid parameter \"query\": "),
        (
            "query?query=1&time=x",
            400,
            "bad_data",
            "invalid parameter \"time\": cannot parse \"x\"",
        ),
        (
            "query?query=1&timeout=x",
            400,
            "bad_data",
            "invalid parameter \"timeout\": ",
        ),
        (
            "query?query=depth&timeout=0",
            503,
            "timeout",
            "query timed out",
        ),
        (
            "query_range?query=1&start=0&end=1",
            400,
            "bad_data",
            "invalid parameter \"step\": ",
        ),
        (
            "query_range?query=1&start=0&end=1&step=0",
            400,
            "bad_data",
            "invalid parameter \"step\": zero",
        ),
        (
            "query_range?query=1&start=2&end=1&step=1",
            400,
            "bad_data",
            "invalid parameter \"end\": ",
        ),
        (
            "query_range?query=1&start=0&end=11001&step=1",
            400,
            "bad_data",
            "exceeded maximum resolution of 11,000 points per timeseries",
        ),
        (
            "query_range?query=depth[1m]&start=0&end=1&step=1",
            400,
            "bad_data",
            "invalid parameter \"query\": invalid expression type",
        ),
        (
            "query?query=hits_total*on()hits_total",
            422,
            "execution",
            "found duplicate series",
        ),
        (
            "query_exemplars?query=sum(",
            400,
            "bad_data",
            "invalid parameter \"query\": ",
        ),
        (
            "query_exemplars?query=depth&start=2&end=1",
            400,
            "bad_data",
            "invalid parameter \"end\": ",
        ),
        ("series", 400, "bad_data", "no match[] parameter provided"),
        (
            "series?match[]=%7B%7D",
            400,
            "bad_data",
            "invalid parameter \"match[]\": ",
        ),
        (
            "labels?start=2&end=1",
            400,
            "bad_data",
            "invalid parameter \"end\": ",
        ),
        (
            "labels?limit=-1",
            400,
            "bad_data",
            "invalid parameter \"limit\": ",
        ),
        (
            "format_query?query=sum(",
            400,
            "bad_data",
            "invalid parameter \"query\": ",
        ),
    ] {
        let response = server.get(&format!("/api/v1/{path}"));
        let body = response.json();
        assert_eq!(response.status, status, "{path}: {body}");
        assert_eq!(
            (&body["status"], &body["errorType"]),
            (&json!("error"), &json!(kind)),
            "{path}"
        );
        let error = body["error"].as_str().expect("a message");
        assert!(error.starts_with(message), "{path}: {error}");
    }
}

#[test]
fn answers_are_compressed_on_request() {
    let (server, end) = server();
    let seconds = end / 1_000;
    let path = format!(
        "/api/v1/query_range?query=hits_total&start={}&end={seconds}&step=1",
        seconds - 100
    );
    let tcp = AgentAddress::Tcp(server.tcp());
    let zipped = get_with(&tcp, &path, &[("accept-encoding", "gzip")]).expect("an answer");
    assert_eq!(
        zipped.header("content-encoding"),
        None,
        "small answers are not"
    );
    let long = "/api/v1/query_range?query=vector(time())&start=0&end=1000&step=1";
    let zipped = get_with(&tcp, long, &[("accept-encoding", "gzip")]).expect("an answer");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
}

#[test]
fn job_and_instance_are_configurable() {
    let server = TestServer::with(|settings| {
        settings.promql.job = "cluster".into();
        settings.promql.instance = Some("nid0001".into());
    });
    server.push(MetricKind::Gauge, &[("queue.depth", now(), 1.0)]);
    let result = data(&server.get("/api/v1/query?query=queue_depth%7Bjob=%22cluster%22%7D"));
    let expected = json!({"__name__": "queue_depth", "instance": "nid0001", "job": "cluster"});
    assert_eq!(result["result"][0]["metric"], expected);
    let stored = data(&server.get("/api/v1/query?query=%7B%22queue.depth%22%7D"));
    assert_eq!(stored["result"][0]["metric"]["__name__"], "queue.depth");
    let jobs = data(&server.get("/api/v1/label/job/values"));
    assert_eq!(jobs, json!(["cluster"]));
}

/// The slots of queries stay taken while a query runs: if it did not end with its connection, the
/// next one would wait for its timeout.
#[test]
fn a_query_ends_with_its_connection() {
    let server = TestServer::with(|settings| settings.queries_max = 1);
    // More work than fits into the ten seconds of a query, with little memory.
    let expensive = "query=sum_over_time(vector(1)[10d:1s])&start=0&end=11000&step=1";
    let mut stream = TcpStream::connect(server.tcp()).expect("connected");
    let request =
        format!("GET /api/v1/query_range?{expensive} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    eventually("the query takes the only slot", || {
        match server.get("/api/v1/query?query=1&timeout=100ms").status {
            503 => Ok(()),
            status => Err(status),
        }
    });
    drop(stream);
    assert_eq!(
        data(&server.get("/api/v1/query?query=1&timeout=5s"))["resultType"],
        "scalar"
    );
}

#[test]
fn a_body_that_cannot_be_read_is_bad_data() {
    let (server, _) = server();
    let tcp = AgentAddress::Tcp(server.tcp());
    let post = |body: &[u8]| {
        let headers = [FORM, ("content-encoding", "gzip")];
        post(&tcp, "/api/v1/query", &headers, body).expect("an answer")
    };
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let long = [b"query=1&".as_slice(), &[b'a'; 20 << 20]].concat();
    encoder.write_all(&long).expect("in memory");
    let bomb = encoder.finish().expect("in memory");
    for body in [&bomb[..], b"\x1f\x8b123"] {
        let response = post(body);
        assert_eq!(response.status, 400, "{}", response.text());
        assert_eq!(response.json()["errorType"], "bad_data");
    }
}
