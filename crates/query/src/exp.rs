//! `/api/query/exp`: named metrics and arithmetic expressions over them.

mod arithmetic;
mod body;
mod operand;
mod output;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use pegel_metric::Millis;

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::evaluate::collect_results;
use crate::memory_budget::QueryMemoryBudget;
use crate::request::QueryRequest;
use arithmetic::Term;
use operand::{Join, Operand};

/// A validated request of `/api/query/exp`.
#[derive(Debug, Clone)]
pub struct ExpressionRequest {
    /// Contains the sub-queries of the metrics, in their order.
    request: QueryRequest,
    metrics: Vec<ExpressionMetric>,
    /// Sorted by dependency.
    expressions: Vec<NamedExpression>,
    outputs: Vec<ExpressionOutput>,
}

#[derive(Debug, Clone)]
struct ExpressionMetric {
    id: String,
    /// The value for missing times and missing series.
    fill: f64,
    /// The keys of its filters.
    keys: Vec<String>,
}

#[derive(Debug, Clone)]
struct NamedExpression {
    id: String,
    term: Term,
    join: Join,
    fill: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ExpressionOutput {
    id: String,
    alias: Option<String>,
}

impl ExpressionRequest {
    pub fn from_json(json: &[u8], now: Millis) -> Result<ExpressionRequest, OpentsdbError> {
        body::parse_body(json, now)
    }
}

impl QueryEngine {
    pub fn exp(
        &self,
        exp_request: &ExpressionRequest,
        out: &mut dyn Write,
    ) -> Result<(), OpentsdbError> {
        let deadline = self.deadline();
        let mut budget = QueryMemoryBudget::new(self.limits.bytes_max);
        let mut sets: BTreeMap<&str, Operand> = BTreeMap::new();
        for (metric, query) in exp_request.metrics.iter().zip(&exp_request.request.queries) {
            let lines = collect_results(self, &exp_request.request, query, deadline, &mut budget)?;
            sets.insert(&metric.id, Operand::of_metric(lines, metric));
        }
        for expression in &exp_request.expressions {
            if Instant::now() > deadline {
                return Err(pegel_store::QueryError::TooLong.into());
            }
            let set = operand::evaluate_expression(expression, &sets, &mut budget)?;
            sets.insert(&expression.id, set);
        }
        output::write(exp_request, &sets, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{NOW, TestStore};
    use serde_json::{Value, json};

    const AT: Millis = NOW - 30_000;

    fn test_store() -> TestStore {
        let test_store = TestStore::new(NOW);
        let at = |values: &[f64]| {
            values
                .iter()
                .enumerate()
                .map(|(index, value)| (AT + index as Millis * 10_000, *value))
                .collect::<Vec<_>>()
        };
        test_store.put("user{host=\"web01\"}", &at(&[1.0, 3.0]));
        test_store.put("user{host=\"web02\"}", &at(&[2.0, 4.0]));
        test_store.put("user{host=\"web03\"}", &at(&[9.0]));
        test_store.put("wait{host=\"web01\"}", &at(&[10.0, 20.0]));
        test_store.put("wait{host=\"web02\"}", &at(&[100.0]));
        test_store
    }

    fn body(expressions: &str, outputs: &str) -> String {
        format!(
            r#"{{"time":{{"start":"1m-ago","aggregator":"sum"}},
            "filters":[{{"id":"f1","tags":[{{"type":"wildcard","tagk":"host","filter":"web*","groupBy":true}}]}}],
            "metrics":[{{"id":"a","metric":"user","filter":"f1","fillPolicy":{{"policy":"nan"}}}},
                       {{"id":"b","metric":"wait","filter":"f1"}}],
            "expressions":{expressions},"outputs":{outputs}}}"#
        )
    }

    fn ask(body: &str) -> Result<Value, OpentsdbError> {
        let exp_request = ExpressionRequest::from_json(body.as_bytes(), NOW)?;
        let mut out = Vec::new();
        test_store().engine("nid1").exp(&exp_request, &mut out)?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    #[test]
    fn series_are_joined_by_their_tags() {
        let inner = r#"[{"id":"e","expr":"a + b","join":{"operator":"intersection"}},{"id":"e2","expr":"(e * 2 - 1) / 2"}]"#;
        let answer = ask(&body(inner, r#"[{"id":"e2","alias":"Mega"}]"#)).expect("answered");
        // b lacks the second value of web02: zero by default.
        assert_eq!(
            answer["outputs"],
            json!([{
                "id": "e2", "alias": "Mega",
                "dps": [[AT, 10.5, 101.5], [AT + 10_000, 22.5, 3.5]],
                "dpsMeta": {"firstTimestamp": AT, "lastTimestamp": AT + 10_000, "setCount": 2, "series": 2},
                "meta": [
                    {"index": 0, "metrics": ["timestamp"]},
                    {"index": 1, "metrics": ["user", "wait"], "commonTags": {"host": "web01"}, "aggregatedTags": []},
                    {"index": 2, "metrics": ["user", "wait"], "commonTags": {"host": "web02"}, "aggregatedTags": []},
                ],
            }])
        );
        // A union includes web03 too, with zero for b; a is NaN where it has no value.
        let answer = ask(&body(r#"[{"id":"e","expr":"a + b"}]"#, "null")).expect("answered");
        assert_eq!(
            answer["outputs"][0]["dps"],
            json!([[AT, 11, 102, 9], [AT + 10_000, 23, 4, "NaN"]])
        );
        // A metric without an expression.
        let answer = ask(&body("[]", r#"[{"id":"b"}]"#)).expect("answered");
        assert_eq!(
            answer["outputs"][0]["dps"],
            json!([[AT, 10, 100], [AT + 10_000, 20, 0]])
        );
    }

    #[test]
    fn buckets_and_fill_policies_are_those_of_the_time() {
        let body = r#"{"time":{"start":"30s-ago","end":"now","aggregator":"sum","downsampler":{"interval":"10s","aggregator":"avg","fillPolicy":{"policy":"scalar","value":7}}},
            "metrics":[{"id":"a","metric":"user"}],"expressions":[{"id":"e","expr":"-a % 4"}]}"#;
        let answer = ask(body).expect("answered");
        // 1 + 2 + 9, 3 + 4 + 7, 7 + 7 + 7 twice; negated, and the remainder of division by 4.
        let expected = json!([
            [AT, 0],
            [AT + 10_000, -2],
            [AT + 20_000, -1],
            [AT + 30_000, -1]
        ]);
        assert_eq!(
            answer["outputs"][0]["dps"].as_array().map(Vec::len),
            Some(4)
        );
        let number = |value: &Value, at: usize| value[at][1].as_f64();
        for at in 0..4 {
            assert_eq!(
                number(&answer["outputs"][0]["dps"], at),
                number(&expected, at),
                "{at}"
            );
        }
    }

    #[test]
    fn mistakes_are_named() {
        let of = |expressions: &str, outputs: &str| body(expressions, outputs);
        for (body, status, message) in [
            ("{}".to_owned(), 400, "Missing time"),
            (r#"{"time":{"start":"1m-ago"},"metrics":[]}"#.to_owned(), 400, "Missing metrics"),
            (r#"{"time":{"start":"1m-ago","aggregator":"sum"},"metrics":[{"id":"a","metric":"user","filter":"f9"}]}"#.to_owned(), 400, "No filter with the id f9"),
            (r#"{"time":{"start":"1m-ago","aggregator":"sum"},"metrics":[{"id":"a b","metric":"user"}]}"#.to_owned(), 400, "Invalid id: a b"),
            (r#"{"time":{"start":"1m-ago","aggregator":"sum"},"metrics":[{"id":"a","metric":"user"},{"id":"a","metric":"wait"}]}"#.to_owned(), 400, "Duplicate id a"),
            (of(r#"[{"id":"e","expr":"a + c"}]"#, "[]"), 400, "The expression e uses c, which is neither a metric nor an expression"),
            (of(r#"[{"id":"e","expr":"f"},{"id":"f","expr":"e"}]"#, "[]"), 400, "Circular reference between expressions: e"),
            (of(r#"[{"id":"e","expr":"a +"}]"#, "[]"), 400, "Invalid expression e: unexpected end"),
            (of(r#"[{"id":"e","expr":"a ? b"}]"#, "[]"), 400, "Invalid expression e: unexpected '?'"),
            (of(r#"[{"id":"e","expr":"a","join":{"operator":"outer"}}]"#, "[]"), 400, "Unknown join operator: outer"),
            (of("[]", r#"[{"id":"x"}]"#), 400, "No metric or expression with the id x"),
        ] {
            let problem = ask(&body).expect_err(message);
            assert_eq!((problem.status(), problem.to_string().as_str()), (status, message));
        }
        let deep = format!(
            r#"[{{"id":"e","expr":"{}a{}"}}]"#,
            "(".repeat(3_000),
            ")".repeat(3_000)
        );
        assert_eq!(ask(&of(&deep, "[]")).expect_err("deep").status(), 400);
    }
}
