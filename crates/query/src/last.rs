//! `/api/query/last`: the last value of each series.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::{Millis, Selector, Series, format_value};
use pegel_store::{QueryStep, RangeQuery, StepAggregation};
use serde::{Deserialize, Serialize};

use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::evaluate::host_condition;
use crate::filter::TagFilter;
use crate::lookup::split_metric;
use crate::request::{
    LenientBool, LenientInt, LenientString, QUERIES_MAX, QueryParams, check_expressions,
    check_filters, check_tsuids, parse_json,
};
use crate::tags::{HOST, owned_tags, tag_value};
use crate::tsuid::tsuid;

/// The maximum number of series that are no longer live: each requires its own search.
const ENDED_SERIES_MAX: usize = 1_000;
/// The search first finds the step that contains the last value, then the value.
const SEARCH_STEPS: Millis = 500;

/// A validated request of `/api/query/last`.
#[derive(Debug)]
pub struct LastQuery {
    queries: Vec<LastSubQuery>,
    /// Whether the response contains names and tags.
    resolve: bool,
    /// How far to look back; `None` for the whole store.
    back_scan: Option<Millis>,
}

#[derive(Debug)]
enum LastSubQuery {
    Metric(String, Vec<TagFilter>),
    Tsuids(HashSet<String>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastQueryBody {
    queries: Option<Vec<LastSubQueryBody>>,
    #[serde(alias = "resolveNames")]
    resolve: Option<LenientBool>,
    back_scan: Option<LenientInt>,
}

#[derive(Debug, Deserialize)]
struct LastSubQueryBody {
    metric: Option<String>,
    tags: Option<BTreeMap<String, LenientString>>,
    tsuids: Option<Vec<String>>,
}

/// One last value.
#[derive(Debug, Serialize, PartialEq)]
pub struct LastPoint {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Milliseconds.
    pub timestamp: Millis,
    /// A string, as in OpenTSDB.
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    pub tsuid: String,
}

impl LastQuery {
    pub fn from_json(body: &[u8]) -> Result<LastQuery, OpentsdbError> {
        let body: LastQueryBody = parse_json(body)?;
        let queries = body.queries.unwrap_or_default();
        check_count(queries.len())?;
        let queries = queries.into_iter().enumerate().map(|(index, query)| {
            if let Some(ids) = query.tsuids.filter(|ids| !ids.is_empty()) {
                check_tsuids(ids.len())?;
                return Ok(LastSubQuery::Tsuids(
                    ids.iter().map(|id| id.to_uppercase()).collect(),
                ));
            }
            let tags = query.tags.unwrap_or_default();
            check_filters(tags.len(), index)?;
            let tags = tags
                .iter()
                .map(|(key, value)| (key.as_str(), value.0.as_str()));
            LastSubQuery::metric(&query.metric.unwrap_or_default(), tags)
        });
        Ok(LastQuery {
            queries: checked(queries.collect::<Result<_, _>>()?)?,
            resolve: body.resolve.is_some_and(|flag| flag.0),
            back_scan: back_scan_millis(body.back_scan.map(|hours| hours.0))?,
        })
    }

    pub fn from_uri(pairs: &QueryParams) -> Result<LastQuery, OpentsdbError> {
        let count = ["timeseries", "tsuids"]
            .map(|key| pairs.all(key).count())
            .iter()
            .sum();
        check_count(count)?;
        let metrics = pairs.all("timeseries").enumerate().map(|(index, text)| {
            let (metric, tags) = split_metric(text)?;
            check_filters(tags.len(), index)?;
            LastSubQuery::metric(metric, tags.into_iter())
        });
        let ids = pairs.all("tsuids").map(|text| {
            let ids = text.split(',').map(|id| id.trim().to_uppercase());
            Ok(LastSubQuery::Tsuids(
                ids.filter(|id| !id.is_empty()).collect(),
            ))
        });
        Ok(LastQuery {
            queries: checked(metrics.chain(ids).collect::<Result<_, _>>()?)?,
            resolve: pairs.flag("resolve"),
            back_scan: back_scan_millis(pairs.number("back_scan")?)?,
        })
    }
}

fn check_count(count: usize) -> Result<(), OpentsdbError> {
    match count {
        0 => Err(OpentsdbError::bad_request("Missing sub queries")
            .with_details("timeseries=metric{tag=value} or tsuids=…")),
        1..=QUERIES_MAX => Ok(()),
        _ => Err(OpentsdbError::too_large(format!(
            "{count} sub-queries; at most {QUERIES_MAX} are accepted"
        ))),
    }
}

/// Refuses more TSUIDs or regular expressions than a request may have.
fn checked(queries: Vec<LastSubQuery>) -> Result<Vec<LastSubQuery>, OpentsdbError> {
    let tsuids = queries.iter().map(|query| match query {
        LastSubQuery::Tsuids(ids) => ids.len(),
        LastSubQuery::Metric(..) => 0,
    });
    check_tsuids(tsuids.sum())?;
    check_expressions(queries.iter().flat_map(|query| match query {
        LastSubQuery::Metric(_, filters) => &filters[..],
        LastSubQuery::Tsuids(_) => &[],
    }))?;
    Ok(queries)
}

fn back_scan_millis(back_scan: Option<i64>) -> Result<Option<Millis>, OpentsdbError> {
    match back_scan {
        None | Some(0) => Ok(None),
        Some(hours @ 1..=1_000_000) => Ok(Some(hours * 3_600_000)),
        Some(hours) => Err(
            OpentsdbError::bad_request(format!("Invalid back scan: {hours}"))
                .with_details("a number of hours"),
        ),
    }
}

impl LastSubQuery {
    fn metric<'a>(
        metric: &str,
        tags: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<LastSubQuery, OpentsdbError> {
        if metric.is_empty() {
            return Err(OpentsdbError::bad_request("Missing metric name or tsuids"));
        }
        let filters = tags.map(|(key, value)| TagFilter::from_tag_value(key, value, false));
        Ok(LastSubQuery::Metric(
            metric.to_owned(),
            filters.collect::<Result<_, _>>()?,
        ))
    }

    fn selector(&self, node: &Arc<str>) -> Selector {
        match self {
            LastSubQuery::Metric(metric, filters) => {
                let is_on_host = host_condition(filters);
                let (filters, node) = (filters.clone(), node.clone());
                Selector::with_predicate(metric, move |series| {
                    filters.iter().all(|filter| filter.matches(series, &node))
                })
                .with_label_condition(HOST, is_on_host)
            }
            LastSubQuery::Tsuids(_) => Selector::all(),
        }
    }

    fn accepts(&self, series: &Series, node: &str) -> bool {
        match self {
            LastSubQuery::Metric(..) => true,
            LastSubQuery::Tsuids(ids) => ids.contains(&tsuid(series, node)),
        }
    }
}

impl QueryEngine {
    /// Returns the last values, sub-query by sub-query, series sorted by text.
    pub fn last(&self, last: &LastQuery, now: Millis) -> Result<Vec<LastPoint>, OpentsdbError> {
        let deadline = self.deadline();
        let start = last.back_scan.map_or(0, |back| now - back);
        let mut points = Vec::new();
        for which in &last.queries {
            let selector = which.selector(&self.node);
            let mut live: HashMap<Arc<Series>, (Millis, f64)> = HashMap::new();
            self.source
                .latest(deadline, &selector, &mut |series, latest| {
                    live.insert(series.clone(), (latest.last_sampled, latest.value));
                })?;
            let mut found: Vec<Arc<Series>> = Vec::new();
            self.for_each_series(selector, deadline, &mut |series| found.push(series.clone()))?;
            let mut ended = 0;
            for series in &found {
                QueryEngine::check_time(deadline)?;
                if !which.accepts(series, &self.node) {
                    continue;
                }
                let value = match live.get(series) {
                    Some(value) => Some(*value).filter(|(time, _)| *time >= start),
                    None if ended == ENDED_SERIES_MAX => {
                        return Err(OpentsdbError::too_large(format!(
                            "more than {ENDED_SERIES_MAX} series that no longer receive samples"
                        ))
                        .with_details("add tags to select fewer series"));
                    }
                    None => {
                        ended += 1;
                        self.last_sample(series, start, now, deadline)?
                    }
                };
                points.extend(value.map(|value| self.last_point(series, value, last.resolve)));
            }
        }
        Ok(points)
    }

    fn last_point(
        &self,
        series: &Series,
        (time, value): (Millis, f64),
        resolve: bool,
    ) -> LastPoint {
        let mut text = String::new();
        format_value(&mut text, value);
        LastPoint {
            metric: resolve.then(|| series.name().to_owned()),
            timestamp: time,
            value: text,
            tags: resolve.then(|| owned_tags(series, &self.node)),
            tsuid: tsuid(series, &self.node),
        }
    }

    /// Finds the last sample of one series without reading all its samples.
    fn last_sample(
        &self,
        series: &Arc<Series>,
        start: Millis,
        end: Millis,
        deadline: Instant,
    ) -> Result<Option<(Millis, f64)>, OpentsdbError> {
        let (oldest, _) = self.source.time_bounds();
        let start = start.max(oldest.unwrap_or(start));
        let wanted = series.clone();
        let host = tag_value(series, HOST, &self.node).map(Cow::into_owned);
        let selector = Selector::with_predicate(series.name(), move |series| *series == *wanted)
            .with_label_condition(HOST, move |value| host.as_deref() == Some(value));
        let mut range_query = RangeQuery::new(selector, start, end, None);
        if start > end {
            return Ok(None);
        }
        range_query.deadline = deadline;
        let millis = ((end - start) / SEARCH_STEPS).max(1_000);
        range_query.step = Some(QueryStep {
            millis,
            aggregation: Some(StepAggregation::Last),
        });
        let mut last = None;
        self.source
            .query_range(&range_query, &mut |_, points| last = points.last().copied())?;
        let Some((bucket, _)) = last else {
            return Ok(None);
        };
        range_query.start = bucket.max(start);
        range_query.end = (bucket + millis - 1).min(end);
        range_query.step = None;
        self.source
            .query_range(&range_query, &mut |_, points| last = points.last().copied())?;
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pegel_store::{QueryError, SeriesVisitor};

    use super::*;
    use crate::sample_source::{LatestVisitor, SampleReader};
    use crate::test_store::{NOW, TestStore, series};

    const MINUTE: Millis = 60_000;

    fn test_store() -> TestStore {
        let test_store = TestStore::new(NOW);
        test_store.put(
            "rpcs{type=\"put\"}",
            &[(NOW - 2_000, 5.0), (NOW - 1_000, 7.5)],
        );
        test_store.put(
            "rpcs{type=\"get\"}",
            &[(NOW - 90 * MINUTE, 3.0), (NOW - 89 * MINUTE, 4.0)],
        );
        test_store
    }

    #[test]
    fn live_and_ended_series_have_a_last_value() {
        let engine = test_store().engine("nid1");
        let ask = |pairs: QueryParams| {
            let query = LastQuery::from_uri(&pairs).expect("valid");
            let points = engine.last(&query, NOW).expect("answered");
            points
                .iter()
                .map(|point| (point.timestamp, point.value.clone()))
                .collect::<Vec<_>>()
        };
        let (get, put) = (
            (NOW - 89 * MINUTE, "4".to_owned()),
            (NOW - 1_000, "7.5".to_owned()),
        );
        assert_eq!(
            ask(QueryParams::from([("timeseries", "rpcs")])),
            [get.clone(), put.clone()]
        );
        assert_eq!(
            ask(QueryParams::from([("timeseries", "rpcs{type=put}")])),
            std::slice::from_ref(&put)
        );
        assert_eq!(
            ask(QueryParams::from([
                ("timeseries", "rpcs"),
                ("back_scan", "1")
            ])),
            std::slice::from_ref(&put)
        );
        assert_eq!(
            ask(QueryParams::from([
                ("timeseries", "rpcs"),
                ("back_scan", "2")
            ])),
            [get, put]
        );
        assert_eq!(ask(QueryParams::from([("timeseries", "nothing")])), []);
    }

    #[test]
    fn names_are_given_where_they_are_asked_for() {
        let engine = test_store().engine("nid1");
        let json = |body: &str| {
            let query = LastQuery::from_json(body.as_bytes()).expect("valid");
            serde_json::to_string(&engine.last(&query, NOW).expect("answered")).expect("JSON")
        };
        let body = r#"{"queries":[{"metric":"rpcs","tags":{"type":"put"}}],"resolve":true}"#;
        let answer = json(body);
        let id = answer.split("\"tsuid\":\"").nth(1).expect("an id")[..32].to_owned();
        assert_eq!(
            answer,
            format!(
                r#"[{{"metric":"rpcs","timestamp":{},"value":"7.5","tags":{{"host":"nid1","type":"put"}},"tsuid":"{id}"}}]"#,
                NOW - 1_000
            )
        );
        let body = format!(r#"{{"queries":[{{"tsuids":["{id}"]}}]}}"#);
        assert_eq!(
            json(&body),
            format!(
                r#"[{{"timestamp":{},"value":"7.5","tsuid":"{id}"}}]"#,
                NOW - 1_000
            )
        );
    }

    /// Returns a query of this many TSUIDs, none of which exists.
    fn tsuids(count: usize) -> String {
        let ids = (0..count).map(|id| format!("\"{id:032X}\""));
        let ids: Vec<String> = ids.collect();
        format!(r#"{{"queries":[{{"tsuids":[{}]}}]}}"#, ids.join(","))
    }

    /// Returns a query of 65 tags that have the same value.
    fn tags(value: &str) -> String {
        let tags = (0..65).map(|tag| format!(r#""t{tag}":"{value}""#));
        let tags: Vec<String> = tags.collect();
        let tags = tags.join(",");
        format!(r#"{{"queries":[{{"metric":"m","tags":{{{tags}}}}}]}}"#)
    }

    /// A source of many series that does not look at the deadline.
    #[derive(Debug)]
    struct ManySeries;

    impl SampleReader for ManySeries {
        fn latest(
            &self,
            _: Instant,
            _: &Selector,
            _: &mut LatestVisitor<'_>,
        ) -> Result<(), QueryError> {
            Ok(())
        }

        fn series(
            &self,
            _: &RangeQuery,
            visit: &mut dyn FnMut(&Arc<Series>),
        ) -> Result<(), QueryError> {
            for label in 0..100_000 {
                visit(&Arc::new(series(&format!("m{{a=\"{label}\"}}"))));
            }
            Ok(())
        }

        fn query_range(&self, _: &RangeQuery, _: &mut SeriesVisitor<'_>) -> Result<(), QueryError> {
            Ok(())
        }

        fn time_bounds(&self) -> (Option<Millis>, Option<Millis>) {
            (None, None)
        }
    }

    #[test]
    fn series_are_not_compared_after_the_deadline() {
        let annotations = test_store().annotations.clone();
        let mut engine = QueryEngine::new(ManySeries, annotations, "nid1", false);
        let query = LastQuery::from_json(tsuids(10_000).as_bytes()).expect("valid");
        engine.limits.time_max = Duration::ZERO;
        let refused = engine.last(&query, NOW).expect_err("too late");
        assert_eq!(refused.status(), 504);
        engine.limits.time_max = Duration::from_secs(60);
        assert_eq!(engine.last(&query, NOW).expect("in time"), []);
    }

    #[test]
    fn mistakes_are_named() {
        let many = format!(r#"{{"queries":[{}{{}}]}}"#, "{},".repeat(9_999));
        let query = r#"{"metric":"m","tags":{"a":"regexp(x)"}}"#;
        let expressions = vec![query; 17].join(",");
        let expressions = format!(r#"{{"queries":[{expressions}]}}"#);
        for (body, status, message) in [
            ("{}", 400, "Missing sub queries"),
            (r#"{"queries":[{}]}"#, 400, "Missing metric name or tsuids"),
            (
                r#"{"queries":[{"metric":"m"}],"backScan":-1}"#,
                400,
                "Invalid back scan: -1",
            ),
            (&many, 413, "10000 sub-queries; at most 128 are accepted"),
            (&tsuids(30_000), 413, "more than 10000 tsuids"),
            (&tags("a"), 413, "more than 64 filters in sub-query 0"),
            (
                &expressions,
                413,
                "more than 16 regexp filters in one request",
            ),
        ] {
            let problem = LastQuery::from_json(body.as_bytes()).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (status, message)
            );
        }
    }
}
