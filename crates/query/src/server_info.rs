//! Endpoints that describe the server: filters, serializers, configuration, version, statistics.

use std::sync::Arc;

use pegel_metric::{Selector, Series, format_value};
use pegel_store::LatestValue;
use serde_json::{Map, Value, json};

use crate::engine::QueryEngine;
use crate::filter::FILTER_KINDS;
use crate::request::QUERIES_MAX;
use crate::tags::tags;

/// The version of the implemented API.
const OPENTSDB_VERSION: &str = "2.4.0";

/// The response of `/api/config/filters`.
pub fn describe_filters() -> Value {
    let entry = |(name, examples, description): &(&str, &str, &str)| {
        let about = json!({"examples": examples, "description": description});
        ((*name).to_owned(), about)
    };
    Value::Object(
        FILTER_KINDS
            .iter()
            .map(entry)
            .collect::<Map<String, Value>>(),
    )
}

/// The response of `/api/serializers`.
pub fn describe_serializers() -> Value {
    json!([{
        "serializer": "json",
        "formatters": ["Aggregators", "Annotation", "Config", "Error", "LastPointQuery", "Query", "Search", "Serializers", "Stats", "Suggest", "Version"],
        "parsers": ["Annotation", "LastPointQuery", "Query", "Search", "Suggest"],
        "class": "pegel",
        "response_content_type": "application/json; charset=UTF-8",
        "request_content_type": "application/json",
    }])
}

impl QueryEngine {
    /// The response of `/api/config`: the settings of OpenTSDB that apply to Pegel.
    pub fn config(&self) -> Value {
        json!({
            "tsd.core.auto_create_metrics": "true",
            "tsd.http.query.allow_delete": "false",
            "tsd.query.allow_simultaneous_duplicates": "true",
            "tsd.query.sub_queries_max": QUERIES_MAX.to_string(),
            "tsd.query.timeout": self.limits.time_max.as_millis().to_string(),
            "tsd.storage.fix_duplicates": "true",
        })
    }

    /// The response of `/api/version`: the versions of the API and of the program.
    pub fn version(&self, program: &str) -> Value {
        json!({
            "version": OPENTSDB_VERSION,
            "short_revision": "",
            "full_revision": "",
            "repo": "",
            "repo_status": "",
            "branch": "",
            "user": "",
            "host": &*self.node,
            "timestamp": "0",
            "program": format!("pegel {program}"),
        })
    }

    /// The response of `/api/stats`: the agent's own metrics.
    pub fn stats(&self) -> Value {
        let mut found: Vec<(String, Value)> = Vec::new();
        let selector = Selector::parse("pegel_*").unwrap_or_else(|_| Selector::all());
        let visit = &mut |series: &Arc<Series>, latest: LatestValue| {
            let mut value = String::new();
            format_value(&mut value, latest.value);
            let line = json!({
                "metric": series.name(),
                "timestamp": latest.last_sampled / 1_000,
                "value": value,
                "tags": tags(series, &self.node),
            });
            found.push((series.text().to_owned(), line));
        };
        // After the deadline the list is incomplete.
        let _ = self.source.latest(self.deadline(), &selector, visit);
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Value::Array(found.into_iter().map(|(_, line)| line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{NOW, TestStore};

    #[test]
    fn every_kind_of_filter_is_described() {
        let filters = describe_filters();
        let kinds: Vec<&String> = filters.as_object().expect("an object").keys().collect();
        assert_eq!(kinds.len(), FILTER_KINDS.len());
        assert!(filters["wildcard"]["examples"].is_string());
        assert!(filters["not_key"]["description"].is_string());
    }

    #[test]
    fn stats_are_the_agents_own_series() {
        let test_store = TestStore::new(NOW);
        test_store.put("pegel_kept_total{input=\"push\"}", &[(NOW - 1_000, 3.0)]);
        test_store.put("load", &[(NOW - 1_000, 1.0)]);
        let expected = json!([{"metric": "pegel_kept_total", "timestamp": NOW / 1_000 - 1, "value": "3", "tags": {"host": "nid1", "input": "push"}}]);
        assert_eq!(test_store.engine("nid1").stats(), expected);
        assert_eq!(test_store.engine("nid1").version("0.1")["version"], "2.4.0");
        assert!(
            test_store
                .engine("nid1")
                .config()
                .as_object()
                .is_some_and(|all| all.values().all(Value::is_string))
        );
    }
}
