//! `/api/v1/targets` and `/api/v1/status/…`: what clients of Prometheus ask about the server.

use std::collections::HashMap;
use std::time::Instant;

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{PrometheusRequest, respond, success};

/// The version of Prometheus whose API and query language this server has. Clients decide by it
/// which requests they may send.
const COMPATIBLE_VERSION: &str = "3.5.0";

/// The number of entries in each list of `/api/v1/status/tsdb`.
const TOP_COUNT: usize = 10;

/// This node as the only target.
pub(super) async fn targets(request: PrometheusRequest) -> Response {
    if request.parameters.get("state") == Some("dropped") {
        return success(
            &json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}}),
        );
    }
    let agent = &request.request.context.agent;
    let degraded = agent.degraded();
    let labels = request.request.context.promql.node_labels();
    let url = format!("http://{}/metrics", labels.instance);
    let newest = agent.store.status().newest.unwrap_or(agent.started);
    let rate = agent.rate.as_secs_f64();
    success(&json!({
        "activeTargets": [{
            "discoveredLabels": {"__address__": labels.instance},
            "labels": {"job": labels.job, "instance": labels.instance},
            "scrapePool": labels.job,
            "scrapeUrl": url,
            "globalUrl": url,
            "lastError": degraded.clone().unwrap_or_default(),
            "lastScrape": rfc3339(newest),
            "lastScrapeDuration": 0.0,
            "health": if degraded.is_none() { "up" } else { "down" },
            "scrapeInterval": format!("{rate}s"),
            "scrapeTimeout": format!("{rate}s"),
        }],
        "droppedTargets": [],
        "droppedTargetCounts": {},
    }))
}

pub(super) async fn buildinfo(request: PrometheusRequest) -> Response {
    success(&json!({
        "version": COMPATIBLE_VERSION,
        "revision": format!("pegel {}", request.request.context.agent.version),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    }))
}

/// The configuration in force, without secrets, one key per line.
pub(super) async fn config(request: PrometheusRequest) -> Response {
    let config = request.request.context.agent.status_source.config();
    let mut yaml = String::new();
    for entry in config.as_array().into_iter().flatten() {
        let (Some(key), Some(value)) = (entry["key"].as_str(), entry["value"].as_str()) else {
            continue;
        };
        yaml.push_str(&format!("{key}: {value}\n"));
    }
    success(&json!({"yaml": yaml}))
}

/// The limits that Prometheus has as flags.
pub(super) async fn flags(request: PrometheusRequest) -> Response {
    let limits = &request.request.context.promql_limits;
    let seconds = |duration: std::time::Duration| format!("{}s", duration.as_secs_f64());
    success(&json!({
        "query.lookback-delta": seconds(limits.lookback),
        "query.max-concurrency": request.request.context.settings.queries_max.to_string(),
        "query.max-samples": limits.samples_max.to_string(),
        "query.timeout": seconds(limits.time_max),
        "storage.tsdb.retention.time": seconds(request.request.context.agent.store.retention()),
    }))
}

pub(super) async fn runtimeinfo(request: PrometheusRequest) -> Response {
    let agent = &request.request.context.agent;
    let status = agent.store.status();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    success(&json!({
        "startTime": rfc3339(agent.started),
        "serverTime": rfc3339(agent.clock.utc()),
        "CWD": status.dir,
        "hostname": agent.node,
        "reloadConfigSuccess": true,
        "lastConfigTime": rfc3339(agent.started),
        "corruptionCount": status.damaged_blocks,
        "goroutineCount": 0,
        "GOMAXPROCS": threads,
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": format!("{}s", agent.store.retention().as_secs()),
    }))
}

/// How many series there are, by name and by label.
pub(super) async fn tsdb(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let status = work.context.agent.store.status();
        let top = work.parameters.limit()?.min(10_000);
        let top = if top == 10_000 { TOP_COUNT } else { top };
        let deadline = Instant::now() + work.limits.time_max;
        let range = (status.oldest.unwrap_or(0), i64::MAX);
        let selection = work.selection(&[], range, deadline);
        let mut by_name: HashMap<String, u64> = HashMap::new();
        let mut by_pair: HashMap<String, u64> = HashMap::new();
        let mut series = 0u64;
        work.context
            .promql
            .clone()
            .without_history()
            .series(&selection, &mut |labels, _| {
                series += 1;
                *by_name.entry(labels.metric_name().to_owned()).or_default() += 1;
                for (name, value) in labels.iter() {
                    *by_pair.entry(format!("{name}={value}")).or_default() += 1;
                }
                Ok(())
            })?;
        let mut values_by_label: HashMap<String, u64> = HashMap::new();
        let mut bytes_by_label: HashMap<String, u64> = HashMap::new();
        for pair in by_pair.keys() {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            *values_by_label.entry(name.to_owned()).or_default() += 1;
            *bytes_by_label.entry(name.to_owned()).or_default() += value.len() as u64;
        }
        let data = json!({
            "headStats": {
                "numSeries": series,
                "numLabelPairs": by_pair.len(),
                "chunkCount": status.blocks,
                "minTime": status.oldest.unwrap_or(0),
                "maxTime": status.newest.unwrap_or(0),
            },
            "seriesCountByMetricName": largest(by_name, top),
            "labelValueCountByLabelName": largest(values_by_label, top),
            "memoryInBytesByLabelName": largest(bytes_by_label, top),
            "seriesCountByLabelValuePair": largest(by_pair, top),
        });
        Ok(work.buffer.json(&data)?)
    })
    .await
}

/// Returns the entries with the largest counts, as `[{"name","value"}]`.
fn largest(counts: HashMap<String, u64>, top: usize) -> Value {
    let mut sorted: Vec<(String, u64)> = counts.into_iter().collect();
    sorted.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sorted.truncate(top);
    let entry = |(name, value): (String, u64)| {
        let mut entry = Map::new();
        entry.insert("name".into(), name.into());
        entry.insert("value".into(), value.into());
        Value::Object(entry)
    };
    sorted.into_iter().map(entry).collect()
}

fn rfc3339(time: i64) -> String {
    pegel_query::promql::format_time(time)
}
