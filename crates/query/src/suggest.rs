//! `/api/suggest`: completes metric names, tag keys and tag values.

use std::collections::BTreeSet;

use pegel_metric::Selector;
use serde::Deserialize;

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::request::{LenientInt, QueryParams, parse_json};
use crate::tags::{HOST, tags};

const COUNT_DEFAULT: usize = 25;

/// A validated request of `/api/suggest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestQuery {
    kind: SuggestKind,
    text: String,
    count_max: usize,
}

/// What is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuggestKind {
    Metric,
    Key,
    Value,
}

#[derive(Debug, Deserialize)]
struct SuggestBody {
    r#type: Option<String>,
    q: Option<String>,
    max: Option<LenientInt>,
}

impl SuggestQuery {
    pub fn from_json(body: &[u8]) -> Result<SuggestQuery, OpentsdbError> {
        let body: SuggestBody = parse_json(body)?;
        SuggestQuery::new(body.r#type.as_deref(), body.q, body.max.map(|max| max.0))
    }

    pub fn from_uri(pairs: &QueryParams) -> Result<SuggestQuery, OpentsdbError> {
        let text = pairs.get("q").map(str::to_owned);
        SuggestQuery::new(pairs.get("type"), text, pairs.number("max")?)
    }

    fn new(
        kind: Option<&str>,
        text: Option<String>,
        max: Option<i64>,
    ) -> Result<SuggestQuery, OpentsdbError> {
        let kind = match kind {
            Some("metrics") => SuggestKind::Metric,
            Some("tagk") => SuggestKind::Key,
            Some("tagv") => SuggestKind::Value,
            None => {
                return Err(OpentsdbError::bad_request("Missing parameter type")
                    .with_details(SUGGEST_KINDS));
            }
            Some(other) => {
                return Err(OpentsdbError::bad_request(format!(
                    "Invalid 'type' parameter: {other}"
                ))
                .with_details(SUGGEST_KINDS));
            }
        };
        let count_max = match max {
            None => COUNT_DEFAULT,
            Some(max @ 1..) => usize::try_from(max).unwrap_or(usize::MAX),
            Some(max) => {
                return Err(
                    OpentsdbError::bad_request(format!("Invalid 'max' parameter: {max}"))
                        .with_details("it must be more than zero"),
                );
            }
        };
        Ok(SuggestQuery {
            kind,
            text: text.unwrap_or_default(),
            count_max,
        })
    }
}

const SUGGEST_KINDS: &str = "one of metrics, tagk, tagv";

impl SuggestQuery {
    pub fn kind(&self) -> SuggestKind {
        self.kind
    }
}

impl QueryEngine {
    /// Returns the texts among the given ones that match, sorted.
    pub fn suggest_among<'t>(
        &self,
        suggest: &SuggestQuery,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Vec<String> {
        let mut found = SuggestedNames::new(self, suggest);
        texts.into_iter().for_each(|text| found.add(text));
        found.names.into_iter().collect()
    }

    /// Returns the matching names, sorted.
    pub fn suggest(&self, suggest: &SuggestQuery) -> Result<Vec<String>, OpentsdbError> {
        let mut found = SuggestedNames::new(self, suggest);
        let visit = &mut |series: &std::sync::Arc<pegel_metric::Series>| match suggest.kind {
            SuggestKind::Metric => found.add(series.name()),
            SuggestKind::Key => {
                series.labels().for_each(|(key, _)| found.add(key));
                found.add(HOST);
            }
            SuggestKind::Value => tags(series, &self.node)
                .values()
                .for_each(|value| found.add(value)),
        };
        self.for_each_series(Selector::all(), self.deadline(), visit)?;
        Ok(found.names.into_iter().collect())
    }
}

/// The first names that match, in the order of texts.
struct SuggestedNames<'a> {
    suggest: &'a SuggestQuery,
    matches_anywhere: bool,
    names: BTreeSet<String>,
}

impl<'a> SuggestedNames<'a> {
    fn new(engine: &QueryEngine, suggest: &'a SuggestQuery) -> SuggestedNames<'a> {
        SuggestedNames {
            suggest,
            matches_anywhere: engine.dragon_compat,
            names: BTreeSet::new(),
        }
    }

    fn add(&mut self, name: &str) {
        let (text, count_max) = (&self.suggest.text, self.suggest.count_max);
        // Only the first `count_max` names are kept.
        let is_beyond = self.names.len() >= count_max
            && self.names.last().is_some_and(|last| last.as_str() < name);
        let fits = match self.matches_anywhere {
            true => name.contains(text),
            false => name.starts_with(text),
        };
        if !is_beyond && fits && !self.names.contains(name) {
            self.names.insert(name.to_owned());
            if self.names.len() > count_max {
                self.names.pop_last();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{NOW, TestStore};

    fn suggest(engine: &QueryEngine, kind: &str, text: &str, max: &str) -> Vec<String> {
        let pairs = QueryParams::from([("type", kind), ("q", text), ("max", max)]);
        let suggest = SuggestQuery::from_uri(&pairs).expect("valid");
        engine.suggest(&suggest).expect("answered")
    }

    #[test]
    fn names_keys_and_values_by_how_they_begin() {
        let test_store = TestStore::new(NOW);
        for text in [
            "cpu.user{core=\"0\"}",
            "cpu.idle{core=\"1\",host=\"web1\"}",
            "Cpu",
            "mem",
        ] {
            test_store.put(text, &[(NOW - 1_000, 1.0)]);
        }
        let mut engine = test_store.engine("nid1");
        assert_eq!(
            suggest(&engine, "metrics", "cpu", ""),
            ["cpu.idle", "cpu.user"]
        );
        assert_eq!(suggest(&engine, "metrics", "", "2"), ["Cpu", "cpu.idle"]);
        assert_eq!(suggest(&engine, "tagk", "", ""), ["core", "host"]);
        assert_eq!(suggest(&engine, "tagv", "", ""), ["0", "1", "nid1", "web1"]);
        assert_eq!(suggest(&engine, "tagv", "w", ""), ["web1"]);
        assert_eq!(suggest(&engine, "metrics", "idle", ""), [""; 0]);
        engine.dragon_compat = true;
        assert_eq!(suggest(&engine, "metrics", "idle", ""), ["cpu.idle"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (body, message) in [
            ("{}", "Missing parameter type"),
            (r#"{"type":"metric"}"#, "Invalid 'type' parameter: metric"),
            (
                r#"{"type":"metrics","max":0}"#,
                "Invalid 'max' parameter: 0",
            ),
        ] {
            let problem = SuggestQuery::from_json(body.as_bytes()).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (400, message)
            );
        }
        let plain = SuggestQuery::from_json(br#"{"type":"metrics"}"#).expect("valid");
        assert_eq!((plain.count_max, plain.text.as_str()), (25, ""));
    }
}
