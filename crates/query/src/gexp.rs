//! `/api/query/gexp`: Graphite functions over query results: `scale(sum:metric{host=*},8)`.

mod function;
mod parse;

use std::io::Write;
use std::time::Instant;

use pegel_metric::Millis;

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::evaluate::{ResultSeries, collect_results};
use crate::memory_budget::QueryMemoryBudget;
use crate::request::{QueryParams, QueryRequest};
use crate::response::ResponseWriter;
use function::GexpFunction;
use parse::parse;

/// A validated request of `/api/query/gexp`.
#[derive(Debug, Clone)]
pub struct GexpRequest {
    /// Contains the sub-queries of the expressions, in their order.
    request: QueryRequest,
    expressions: Vec<GexpExpression>,
}

#[derive(Debug, Clone, PartialEq)]
enum GexpExpression {
    /// The index of a sub-query.
    Query(usize),
    Call {
        function: GexpFunction,
        /// As it was written.
        text: String,
        series: Vec<GexpExpression>,
    },
}

impl GexpRequest {
    pub fn from_uri(pairs: &QueryParams, now: Millis) -> Result<GexpRequest, OpentsdbError> {
        let texts: Vec<&str> = pairs.all("exp").collect();
        if texts.is_empty() {
            return Err(OpentsdbError::bad_request("Missing parameter exp")
                .with_details("exp=scale(sum:metric,10)"));
        }
        let mut queries = Vec::new();
        let expressions = texts
            .iter()
            .map(|text| parse(text, &mut queries))
            .collect::<Result<_, _>>()?;
        Ok(GexpRequest {
            request: QueryRequest::with_metrics(pairs, &queries, now)?,
            expressions,
        })
    }
}

impl QueryEngine {
    /// Answers a request in the format of `/api/query`.
    pub fn gexp(&self, gexp: &GexpRequest, out: &mut dyn Write) -> Result<(), OpentsdbError> {
        let deadline = self.deadline();
        let mut budget = QueryMemoryBudget::new(self.limits.bytes_max);
        let mut answer = ResponseWriter::new(self, &gexp.request, out);
        answer.begin()?;
        for expression in &gexp.expressions {
            let lines = self.evaluate_gexp(gexp, expression, deadline, &mut budget)?;
            let query = &gexp.request.queries[expression.first_query()];
            for line in &lines {
                answer.write_series(self, query, line)?;
            }
        }
        answer.end()
    }

    fn evaluate_gexp(
        &self,
        gexp: &GexpRequest,
        expression: &GexpExpression,
        deadline: Instant,
        budget: &mut QueryMemoryBudget,
    ) -> Result<Vec<ResultSeries>, OpentsdbError> {
        match expression {
            GexpExpression::Query(number) => {
                let request = &gexp.request;
                collect_results(self, request, &request.queries[*number], deadline, budget)
            }
            GexpExpression::Call {
                function,
                text,
                series,
            } => {
                let sets = series
                    .iter()
                    .map(|inner| self.evaluate_gexp(gexp, inner, deadline, budget))
                    .collect::<Result<Vec<_>, _>>()?;
                let mut lines = function.apply(sets, budget)?;
                lines
                    .iter_mut()
                    .for_each(|line| line.metric.clone_from(text));
                Ok(lines)
            }
        }
    }
}

impl GexpExpression {
    fn first_query(&self) -> usize {
        match self {
            GexpExpression::Query(number) => *number,
            // The parser rejects functions without a series.
            GexpExpression::Call { series, .. } => {
                series.first().map_or(0, GexpExpression::first_query)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{NOW, TestStore};

    fn test_store() -> TestStore {
        let test_store = TestStore::new(NOW);
        let at = |values: [f64; 3]| {
            let start = NOW - 30_000;
            values
                .iter()
                .enumerate()
                .map(|(index, value)| (start + index as Millis * 10_000, *value))
                .collect::<Vec<_>>()
        };
        test_store.put("in{host=\"a\"}", &at([1.0, -2.0, 3.0]));
        test_store.put("in{host=\"b\"}", &at([10.0, 20.0, 60.0]));
        test_store.put("out{host=\"a\"}", &at([2.0, 4.0, 6.0]));
        test_store.put("out{host=\"b\"}", &at([5.0, 5.0, 0.0]));
        test_store
    }

    /// Returns host and values of each result series.
    fn ask(expression: &str) -> Result<Vec<(String, Vec<f64>)>, OpentsdbError> {
        let pairs =
            QueryParams::from([("start", "1m-ago"), ("exp", expression), ("arrays", "true")]);
        let gexp = GexpRequest::from_uri(&pairs, NOW)?;
        let mut out = Vec::new();
        test_store().engine("nid1").gexp(&gexp, &mut out)?;
        let lines: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let line = |line: &serde_json::Value| {
            let points = line["dps"].as_array().expect("points").iter();
            let values = points
                .map(|point| point[1].as_f64().unwrap_or(f64::NAN))
                .collect();
            (
                line["tags"]["host"].as_str().unwrap_or("").to_owned(),
                values,
            )
        };
        Ok(lines.as_array().expect("a list").iter().map(line).collect())
    }

    #[test]
    fn the_nine_functions() {
        let of = |expression: &str| ask(expression).expect(expression);
        let line = |host: &str, values: &[f64]| (host.to_owned(), values.to_vec());
        assert_eq!(
            of("scale(sum:in{host=*},10)"),
            [
                line("a", &[10.0, -20.0, 30.0]),
                line("b", &[100.0, 200.0, 600.0])
            ]
        );
        assert_eq!(
            of("absolute(sum:in{host=a})"),
            [line("a", &[1.0, 2.0, 3.0])]
        );
        // The mean of the point and the one before it.
        assert_eq!(
            of("movingAverage(sum:in{host=b},2)"),
            [line("b", &[10.0, 15.0, 40.0])]
        );
        assert_eq!(
            of("movingAverage(sum:in{host=b},'15s')"),
            [line("b", &[10.0, 15.0, 40.0])]
        );
        assert_eq!(
            of("highestCurrent(sum:in{host=*},1)"),
            [line("b", &[10.0, 20.0, 60.0])]
        );
        assert_eq!(
            of("highestCurrent(sum:out{host=*},1)"),
            [line("a", &[2.0, 4.0, 6.0])]
        );
        assert_eq!(
            of("highestMax(sum:out{host=*},1)"),
            [line("a", &[2.0, 4.0, 6.0])]
        );
        assert_eq!(
            of("sumSeries(sum:in{host=*},sum:out{host=*})"),
            [line("a", &[3.0, 2.0, 9.0]), line("b", &[15.0, 25.0, 60.0])]
        );
        assert_eq!(
            of("diffSeries(sum:in{host=a},sum:out{host=a})"),
            [line("a", &[-1.0, -6.0, -3.0])]
        );
        assert_eq!(
            of("multiplySeries(sum:in{host=a},sum:out{host=a})"),
            [line("a", &[2.0, -8.0, 18.0])]
        );
        // 60 / 0 is not a number.
        let divided = of("divideSeries(sum:in{host=b},sum:out{host=b})");
        assert_eq!(divided[0].1[..2], [2.0, 4.0]);
        assert!(divided[0].1[2].is_nan());
        // Nested functions, and single series combined regardless of their tags.
        assert_eq!(
            of("scale(absolute(sum:in{host=a}),2)"),
            [line("a", &[2.0, 4.0, 6.0])]
        );
        assert_eq!(
            of("sumSeries(sum:in{host=a},sum:out{host=b})"),
            [line("", &[6.0, 3.0, 3.0])]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (expression, message) in [
            ("", "Missing parameter exp"),
            (
                "scale(sum:in,10",
                "Invalid expression: scale(sum:in,10: unclosed parenthesis",
            ),
            ("shout(sum:in)", "Unknown function shout"),
            ("scale(sum:in)", "scale: requires a number after the series"),
            ("scale(sum:in,x)", "scale: expected a number, found x"),
            ("scale()", "scale: requires a series"),
            ("divideSeries(sum:in)", "divideSeries: requires two series"),
            (
                "movingAverage(sum:in,0)",
                "movingAverage: requires a number of points or a duration",
            ),
            ("sum:none", "No such name for 'metrics': 'none'"),
            ("bad:in", "No such aggregator: bad"),
        ] {
            let pairs = QueryParams::from([("start", "1m-ago"), ("exp", expression)]);
            let problem = match GexpRequest::from_uri(&pairs, NOW) {
                Ok(gexp) => test_store()
                    .engine("nid1")
                    .gexp(&gexp, &mut Vec::new())
                    .expect_err(expression),
                Err(problem) => problem,
            };
            let problem = match expression {
                "" => GexpRequest::from_uri(&QueryParams::from([("start", "1m-ago")]), NOW)
                    .expect_err("nothing asked"),
                _ => problem,
            };
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (400, message)
            );
        }
        let deep = format!("{}sum:in{}", "absolute(".repeat(2_000), ")".repeat(2_000));
        let pairs = QueryParams::from([("start", "1m-ago"), ("exp", deep.as_str())]);
        assert_eq!(
            GexpRequest::from_uri(&pairs, NOW)
                .expect_err("deep")
                .status(),
            400
        );
    }
}
