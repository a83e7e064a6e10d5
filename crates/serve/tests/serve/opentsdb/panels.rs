//! The requests of a panel, and how their responses are parsed.

use pegel_testkit::{AgentAddress, get_with};
use serde::de::DeserializeOwned;

use super::grafana::{BrowserSeries, GoArrays, GoSeries};
use super::{ask, server};
use crate::support::TestServer;

#[track_caller]
fn read<T: DeserializeOwned>(server: &TestServer, path: &str, body: &str) -> Vec<T> {
    let answer = ask(server, path, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/json; charset=UTF-8")
    );
    serde_json::from_slice(&answer.body)
        .unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

#[test]
fn the_browsers_form() {
    let (server, at) = server(|_| {});
    let body = format!(
        r#"{{"start":{at},"queries":[
        {{"metric":"cpu_percent","aggregator":"sum","downsample":"10s-avg","filters":[{{"type":"wildcard","tagk":"host","filter":"*","groupBy":true}}]}},
        {{"metric":"DevicePowerUsage","aggregator":"max","downsample":"10s-max-null","rate":true,"rateOptions":{{"counter":false,"dropResets":false}},"filters":[]}}],
        "msResolution":false,"globalAnnotations":true,"showQuery":true}}"#
    );
    let lines: Vec<BrowserSeries> = read(&server, "/api/query", &body);
    let hosts: Vec<(&str, usize)> = lines
        .iter()
        .map(|line| {
            (
                line.tags.get("host").map_or("", String::as_str),
                line.query.as_ref().expect("asked for").index,
            )
        })
        .collect();
    assert_eq!(
        hosts,
        [("n1", 0), ("n2", 0), ("nid0001", 1)],
        "each names its target"
    );
    let first = (at / 1_000).to_string();
    // The mean of 10 to 19.
    assert_eq!(lines[0].dps[&first], Some(14.5));
    assert_eq!(lines[0].metric, "cpu_percent");
    assert_eq!(lines[2].aggregate_tags, ["gpu"]);
    // From 409 to 419 in 10 s, and empty buckets after the last sample.
    assert_eq!(lines[2].dps[&(at / 1_000 + 10).to_string()], Some(1.0));
    assert!(lines[2].dps.values().any(Option::is_none));
}

#[test]
fn the_browsers_form_in_milliseconds() {
    let (server, at) = server(|_| {});
    let body = format!(
        r#"{{"start":{at},"end":{},"queries":[{{"metric":"cpu_percent","aggregator":"avg","downsample":"500ms-avg","tags":{{"host":"n1"}}}}],"msResolution":true}}"#,
        at + 2_000
    );
    let lines: Vec<BrowserSeries> = read(&server, "/api/query", &body);
    let keys: Vec<String> = lines[0].dps.keys().cloned().collect();
    assert_eq!(
        keys,
        [at, at + 1_000, at + 2_000].map(|time| time.to_string())
    );
    assert!(lines[0].query.is_none());
}

#[test]
fn the_backends_form_as_objects_and_as_arrays() {
    let (server, at) = server(|_| {});
    let body = format!(
        r#"{{"start":{},"end":{},"queries":[{{"metric":"cpu_percent","aggregator":"sum","downsample":"1s-avg-nan","filters":[{{"type":"wildcard","tagk":"host","filter":"*","groupBy":false}}]}}]}}"#,
        at / 1_000 - 5,
        at / 1_000 + 2
    );
    let lines: Vec<GoSeries> = read(&server, "/api/query", &body);
    let seconds = [0, 1, 2].map(|second| at / 1_000 + second);
    let expected = [110.0, 112.0, 114.0];
    let found: Vec<(&String, &f64)> = lines[0].dps.iter().collect();
    for ((key, value), (second, sum)) in found.iter().zip(seconds.iter().zip(&expected)) {
        assert_eq!((key.as_str(), **value), (second.to_string().as_str(), *sum));
    }
    assert_eq!(found.len(), 3, "buckets without a value are omitted");
    assert_eq!((lines.len(), lines[0].metric.as_str()), (1, "cpu_percent"));
    assert_eq!(
        (lines[0].tags.len(), &lines[0].aggregate_tags),
        (0, &vec!["host".to_owned()])
    );

    let lines: Vec<GoArrays> = read(&server, "/api/query?arrays=true", &body);
    let expected: Vec<(f64, f64)> = seconds
        .iter()
        .zip(expected)
        .map(|(second, sum)| (*second as f64, sum))
        .collect();
    assert_eq!(lines[0].dps, expected);
    assert_eq!(
        (
            lines[0].metric.as_str(),
            lines[0].tags.len(),
            lines[0].aggregate_tags.len()
        ),
        ("cpu_percent", 0, 1)
    );
}

#[test]
fn the_old_alerting_form() {
    let (server, at) = server(|_| {});
    let body = format!(
        r#"{{"start":{at},"end":{},"queries":[{{"metric":"DevicePowerUsage","aggregator":"avg","downsample":"1m-avg","tags":{{"gpu":"0"}}}}]}}"#,
        at + 60_000
    );
    let lines: Vec<GoSeries> = read(&server, "/api/query", &body);
    assert!(
        lines
            .iter()
            .all(|line| line.tags["gpu"] == "0" && line.tags["host"] == "nid0001")
    );
}

#[test]
fn by_uri_with_and_without_compression() {
    let (server, at) = server(|_| {});
    let path = format!(
        "/api/query?start={at}&end={}&m=sum:10s-avg:cpu_percent%7Bhost=*%7D",
        at + 29_000
    );
    let lines: Vec<GoSeries> = serde_json::from_slice(&server.get(&path).body).expect("lines");
    assert_eq!(lines.len(), 2);
    let raw = path.replace("%7B", "{").replace("%7D", "}");
    let again: Vec<GoSeries> = serde_json::from_slice(&server.get(&raw).body).expect("lines");
    assert_eq!(again.len(), 2);
    let address = AgentAddress::Tcp(server.tcp());
    let long = format!("/api/query?start={at}&m=none:cpu_percent&ms=true&show_query=true");
    let zipped = get_with(&address, &long, &[("Accept-Encoding", "gzip")]).expect("an answer");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
}

#[test]
fn every_metric_of_dragons_dashboards_has_a_line_for_each_host() {
    let (server, at) = server(|settings| settings.dragon_compat = true);
    let body = |metric: &str, tagk: &str| {
        format!(
            r#"{{"start":{at},"queries":[{{"metric":"{metric}","aggregator":"sum","downsample":"1s-avg","filters":[{{"type":"wildcard","tagk":"{tagk}","filter":"*","groupBy":false}}]}}],"msResolution":false,"globalAnnotations":true,"showQuery":true}}"#
        )
    };
    let hosts = |metric: &str, tagk: &str| {
        let lines: Vec<BrowserSeries> = read(&server, "/api/query", &body(metric, tagk));
        lines
            .iter()
            .map(|line| line.tags["host"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(hosts("cpu_percent", "host"), ["n1", "n2"]);
    assert_eq!(hosts("DevicePowerUsage", "gpu"), ["nid0001", "nid0001"]);
    assert_eq!(
        hosts("pool_start_time", "host"),
        [""; 0],
        "a panel without such a metric is empty"
    );
    let names: Vec<String> =
        serde_json::from_slice(&server.get("/api/suggest?type=metrics&q=percent").body)
            .expect("texts");
    assert_eq!(names, ["cpu_percent"], "names that contain the text");
}

#[test]
fn last_values_and_expressions() {
    let (server, at) = server(|_| {});
    let last = server
        .get("/api/query/last?timeseries=cpu_percent%7Bhost=n1%7D&resolve=true")
        .json();
    assert_eq!(last[0]["value"], "39");
    assert_eq!(last[0]["timestamp"], at + 29_000);
    assert_eq!(last[0]["tags"]["host"], "n1");
    let body = r#"{"queries":[{"metric":"cpu_percent","tags":{"host":"n2"}}]}"#;
    assert_eq!(
        ask(&server, "/api/query/last", body).json()[0]["value"],
        "129"
    );
    let path =
        format!("/api/query/gexp?start={at}&end={at}&exp=scale(sum:cpu_percent%7Bhost=n1%7D,10)");
    let lines: Vec<GoSeries> = serde_json::from_slice(&server.get(&path).body).expect("lines");
    assert_eq!(lines[0].dps.values().copied().collect::<Vec<_>>(), [100.0]);
    let body = format!(
        r#"{{"time":{{"start":{at},"end":{},"aggregator":"sum"}},"metrics":[{{"id":"a","metric":"cpu_percent"}}],"expressions":[{{"id":"e","expr":"a / 2"}}]}}"#,
        at + 1
    );
    let answer = ask(&server, "/api/query/exp", &body).json();
    assert_eq!(answer["outputs"][0]["dps"], serde_json::json!([[at, 55]]));
}
