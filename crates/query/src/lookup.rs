//! `/api/search/lookup`: finds series by name and tags.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Selector, Series};
use serde::{Deserialize, Serialize};

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::request::{LenientInt, LenientString, QueryParams, parse_json, split_tags};
use crate::tags::{owned_tags, tags};
use crate::tsuid::tsuid;

const COUNT_DEFAULT: usize = 25;
/// Grafana sends 0 if the user set no limit; this is its own default.
const COUNT_WITHOUT_LIMIT: usize = 1_000;
const COUNT_MAX: usize = 100_000;

/// A parsed request of `/api/search/lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupQuery {
    /// Empty or `*` for any metric.
    metric: String,
    tags: Vec<TagPattern>,
    count_max: usize,
}

/// A key and a value, either of which may be `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TagPattern {
    key: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct LookupBody {
    metric: Option<String>,
    tags: Option<Vec<TagPatternBody>>,
    limit: Option<LenientInt>,
}

#[derive(Debug, Deserialize)]
struct TagPatternBody {
    key: Option<String>,
    value: Option<LenientString>,
}

/// The response in OpenTSDB's format.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LookupResponse {
    r#type: &'static str,
    metric: String,
    tags: Vec<TagPattern>,
    limit: usize,
    /// Milliseconds.
    time: f64,
    results: Vec<LookupMatch>,
    start_index: usize,
    total_results: usize,
}

#[derive(Debug, Serialize)]
struct LookupMatch {
    tsuid: String,
    metric: String,
    tags: BTreeMap<String, String>,
}

impl LookupQuery {
    pub fn from_json(body: &[u8]) -> Result<LookupQuery, OpentsdbError> {
        let body: LookupBody = parse_json(body)?;
        let pairs = body
            .tags
            .unwrap_or_default()
            .into_iter()
            .map(|pair| TagPattern {
                key: pair.key.unwrap_or_default(),
                value: pair.value.unwrap_or_default().0,
            });
        LookupQuery::new(
            body.metric.unwrap_or_default(),
            pairs.collect(),
            body.limit.map(|limit| limit.0),
        )
    }

    pub fn from_uri(pairs: &QueryParams) -> Result<LookupQuery, OpentsdbError> {
        let text = pairs
            .get("m")
            .ok_or_else(|| OpentsdbError::bad_request("Missing parameter m"))?;
        let (metric, tags) = split_metric(text)?;
        let tags = tags.into_iter().map(|(key, value)| TagPattern {
            key: key.to_owned(),
            value: value.to_owned(),
        });
        LookupQuery::new(metric.to_owned(), tags.collect(), pairs.number("limit")?)
    }

    fn new(
        metric: String,
        tags: Vec<TagPattern>,
        limit: Option<i64>,
    ) -> Result<LookupQuery, OpentsdbError> {
        let is_any = metric.is_empty() || metric == "*";
        if is_any && tags.is_empty() {
            return Err(OpentsdbError::bad_request(
                "Missing metric and tags. Please supply at least one value.",
            ));
        }
        let count_max = match limit {
            None => COUNT_DEFAULT,
            Some(0) => COUNT_WITHOUT_LIMIT,
            Some(limit) => usize::try_from(limit)
                .map_err(|_| {
                    OpentsdbError::bad_request(format!("Invalid 'limit' parameter: {limit}"))
                })?
                .min(COUNT_MAX),
        };
        Ok(LookupQuery {
            metric,
            tags,
            count_max,
        })
    }

    /// Returns whether a series matches. Pairs with the same key are alternatives; all keys must
    /// match.
    fn matches(&self, series: &Series, node: &str) -> bool {
        let tags = tags(series, node);
        let meets = |pair: &TagPattern| match (pair.key.as_str(), pair.value.as_str()) {
            ("*", wanted) => wanted == "*" || tags.values().any(|value| value == wanted),
            (key, "*" | "") => tags.contains_key(key),
            (key, wanted) => tags.get(key).is_some_and(|value| value == wanted),
        };
        let mut by_key: HashMap<&str, bool> = HashMap::new();
        for pair in &self.tags {
            *by_key.entry(&pair.key).or_default() |= meets(pair);
        }
        by_key.values().all(|is_met| *is_met)
    }
}

/// A metric and the tags in its braces.
type MetricWithTags<'a> = (&'a str, Vec<(&'a str, &'a str)>);

/// Parses `metric{key=value,…}`.
pub(crate) fn split_metric(text: &str) -> Result<MetricWithTags<'_>, OpentsdbError> {
    let text = text.trim();
    let Some((metric, rest)) = text.split_once('{') else {
        return Ok((text, Vec::new()));
    };
    let inner = rest
        .strip_suffix('}')
        .ok_or_else(|| OpentsdbError::bad_request(format!("Missing '}}' at the end of: {text}")))?;
    Ok((metric, split_tags(inner)?))
}

impl QueryEngine {
    pub fn lookup(&self, lookup: &LookupQuery) -> Result<LookupResponse, OpentsdbError> {
        let started = Instant::now();
        let is_any = lookup.metric.is_empty() || lookup.metric == "*";
        let selector = if is_any {
            Selector::all()
        } else {
            Selector::name(&lookup.metric)
        };
        let mut results = Vec::new();
        let (mut total, mut is_known) = (0, is_any || self.dragon_compat);
        let visit = &mut |series: &Arc<Series>| {
            is_known = true;
            if lookup.matches(series, &self.node) {
                total += 1;
                if results.len() < lookup.count_max {
                    results.push(self.lookup_match(series));
                }
            }
        };
        self.for_each_series(selector, self.deadline(), visit)?;
        if !is_known {
            return Err(OpentsdbError::unknown_name("metrics", &lookup.metric));
        }
        Ok(LookupResponse {
            r#type: "LOOKUP",
            metric: if is_any {
                "*".into()
            } else {
                lookup.metric.clone()
            },
            tags: lookup.tags.clone(),
            limit: lookup.count_max,
            time: started.elapsed().as_secs_f64() * 1_000.0,
            results,
            start_index: 0,
            total_results: total,
        })
    }

    fn lookup_match(&self, series: &Series) -> LookupMatch {
        LookupMatch {
            tsuid: tsuid(series, &self.node),
            metric: series.name().to_owned(),
            tags: owned_tags(series, &self.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{NOW, TestStore};

    fn test_store() -> TestStore {
        let test_store = TestStore::new(NOW);
        for text in [
            "rpcs{host=\"tsd1\",type=\"put\"}",
            "rpcs{host=\"tsd2\",type=\"put\"}",
            "rpcs{host=\"tsd2\",type=\"get\"}",
            "rpcs{role=\"tsd1\"}",
            "load",
        ] {
            test_store.put(text, &[(NOW - 1_000, 1.0)]);
        }
        test_store
    }

    fn found(engine: &QueryEngine, m: &str, limit: &str) -> (usize, Vec<String>) {
        let lookup =
            LookupQuery::from_uri(&QueryParams::from([("m", m), ("limit", limit)])).expect("valid");
        let found = engine.lookup(&lookup).expect("answered");
        let line = |found: &LookupMatch| {
            let tags: Vec<String> = found
                .tags
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!("{} {}", found.metric, tags.join(","))
        };
        (
            found.total_results,
            found.results.iter().map(line).collect(),
        )
    }

    #[test]
    fn keys_are_joined_and_values_of_one_key_are_alternatives() {
        let engine = test_store().engine("nid1");
        let all = |m| found(&engine, m, "100").1;
        assert_eq!(all("load"), ["load host=nid1"]);
        assert_eq!(all("rpcs").len(), 4);
        assert_eq!(all("rpcs{type=*}").len(), 3);
        assert_eq!(
            all("rpcs{type=*,host=tsd2}"),
            ["rpcs host=tsd2,type=get", "rpcs host=tsd2,type=put"]
        );
        assert_eq!(all("rpcs{host=tsd1,host=tsd2,type=put}").len(), 2);
        assert_eq!(
            all("{*=tsd1}"),
            ["rpcs host=tsd1,type=put", "rpcs host=nid1,role=tsd1"]
        );
        assert_eq!(all("rpcs{type=del}"), [""; 0]);
        assert_eq!(
            found(&engine, "rpcs", "1").0,
            4,
            "the total counts what is not shown"
        );
        assert_eq!(
            found(&engine, "rpcs", "0").1.len(),
            4,
            "0 is no limit of the user's"
        );
    }

    #[test]
    fn the_answer_has_the_documented_fields() {
        let engine = test_store().engine("nid1");
        let body = br#"{"metric":"rpcs","tags":[{"key":"type","value":"*"}],"limit":1}"#;
        let answer = engine
            .lookup(&LookupQuery::from_json(body).expect("valid"))
            .expect("answered");
        let mut json = serde_json::to_value(&answer).expect("JSON");
        assert!(json["time"].take().is_number());
        assert!(json["results"][0]["tsuid"].take().is_string());
        assert_eq!(
            json,
            serde_json::json!({
                "type": "LOOKUP", "metric": "rpcs", "tags": [{"key": "type", "value": "*"}], "limit": 1, "time": null,
                "results": [{"tsuid": null, "metric": "rpcs", "tags": {"host": "tsd1", "type": "put"}}],
                "startIndex": 0, "totalResults": 3,
            })
        );
    }

    #[test]
    fn mistakes_are_named() {
        let mut engine = test_store().engine("nid1");
        let ask = |m: &str| LookupQuery::from_uri(&QueryParams::from([("m", m), ("limit", "-1")]));
        for (m, message) in [
            ("", "Missing parameter m"),
            (
                "{}",
                "Missing metric and tags. Please supply at least one value.",
            ),
            ("rpcs{host=a", "Missing '}' at the end of: rpcs{host=a"),
            ("rpcs{host}", "Invalid tag: host"),
            ("rpcs", "Invalid 'limit' parameter: -1"),
        ] {
            assert_eq!(ask(m).expect_err(message).to_string(), message);
        }
        let unknown = LookupQuery::from_uri(&QueryParams::from([("m", "nothing")])).expect("valid");
        let problem = engine.lookup(&unknown).expect_err("unknown");
        assert_eq!(problem.to_string(), "No such name for 'metrics': 'nothing'");
        engine.dragon_compat = true;
        assert_eq!(engine.lookup(&unknown).expect("nothing").total_results, 0);
    }
}
