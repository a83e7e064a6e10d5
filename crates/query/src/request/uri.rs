//! Parses `/api/query?start=…&m=…`.

use pegel_metric::Millis;

use super::json::{delete_not_enabled, sorted_tsuids};
use super::metric_syntax::parse_sub_query;
use super::{
    GapFormat, QUERIES_MAX, QueryRequest, QueryTarget, ResponseOptions, SubQuery, too_many_queries,
};
use crate::error::OpentsdbError;
use crate::time_syntax::parse_time_range;

/// The decoded parameters of a URI, in their order.
#[derive(Debug, Clone, Default)]
pub struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    pub fn new(pairs: Vec<(String, String)>) -> QueryParams {
        QueryParams(pairs)
    }

    /// Removes a parameter that is not OpenTSDB's and returns its value, if it is not empty.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.remove(at).1).filter(|value| !value.is_empty())
    }

    /// Returns the last non-empty value of a key.
    pub fn get<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.all(key).filter(|value| !value.is_empty()).last()
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.0.iter().filter(move |(known, _)| known == key);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Returns whether a flag is set: `?arrays`, `?arrays=true`; `false` turns it off.
    pub fn flag(&self, key: &str) -> bool {
        self.all(key)
            .last()
            .is_some_and(|value| !matches!(value, "false" | "0" | "no"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, OpentsdbError> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let wrong =
            |_| OpentsdbError::bad_request(format!("Unable to parse '{key}' as a number: {text}"));
        text.trim().parse().map(Some).map_err(wrong)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for QueryParams {
    fn from(pairs: [(&str, &str); N]) -> QueryParams {
        QueryParams(
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .to_vec(),
        )
    }
}

pub(super) fn parse_request(
    pairs: &QueryParams,
    now: Millis,
) -> Result<QueryRequest, OpentsdbError> {
    let metrics: Vec<&str> = pairs.all("m").collect();
    let ids: Vec<&str> = pairs.all("tsuid").chain(pairs.all("tsuids")).collect();
    parse_params(pairs, &metrics, &ids, now)
}

pub(super) fn with_metrics(
    pairs: &QueryParams,
    metrics: &[String],
    now: Millis,
) -> Result<QueryRequest, OpentsdbError> {
    let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
    parse_params(pairs, &metrics, &[], now)
}

fn parse_params(
    pairs: &QueryParams,
    metrics: &[&str],
    ids: &[&str],
    now: Millis,
) -> Result<QueryRequest, OpentsdbError> {
    if pairs.flag("delete") {
        return Err(delete_not_enabled());
    }
    let zone_name = pairs.get("tz").or(pairs.get("timezone"));
    let range = (pairs.get("start"), pairs.get("end"));
    let (zone, start, end) = parse_time_range(zone_name, range, now)?;
    let start = start.ok_or_else(|| OpentsdbError::bad_request("Missing parameter start"))?;
    let calendar = pairs.flag("use_calendar");
    let count = metrics.len() + ids.len();
    if count > QUERIES_MAX {
        return Err(too_many_queries(count));
    }
    let metrics = metrics.iter().map(|text| parse_sub_query(text, calendar));
    let ids = ids.iter().map(|text| tsuid_query(text));
    let request = QueryRequest {
        start,
        end,
        queries: metrics.chain(ids).collect::<Result<_, _>>()?,
        zone,
        options: ResponseOptions {
            no_annotations: pairs.flag("no_annotations"),
            global_annotations: pairs.flag("global_annotations"),
            ms_resolution: pairs.flag("ms") || pairs.flag("msResolution"),
            annotation_seconds: false,
            tsuids: pairs.flag("show_tsuids"),
            summary: pairs.flag("show_summary"),
            stats: pairs.flag("show_stats"),
            query: pairs.flag("show_query"),
            arrays: pairs.flag("arrays"),
        },
        gap_format: GapFormat::AsRequested,
    };
    request.finish()
}

/// Parses `sum:0001,0002`.
fn tsuid_query(text: &str) -> Result<SubQuery, OpentsdbError> {
    let wrong = || {
        OpentsdbError::bad_request(format!("Invalid parameter tsuid={text}"))
            .with_details("an aggregator, a colon, and comma-separated TSUIDs")
    };
    let (name, ids) = text.split_once(':').ok_or_else(wrong)?;
    let ids: Vec<String> = ids
        .split(',')
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect();
    if ids.is_empty() {
        return Err(wrong());
    }
    let mut query = SubQuery::new(name, QueryTarget::Tsuids(sorted_tsuids(&ids)))?;
    query.echo.tsuids = Some(ids);
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_300_000;

    #[test]
    fn every_parameter_is_read() {
        let pairs = QueryParams::from([
            ("start", "2023/11/14-00:00"),
            ("end", "1s-ago"),
            ("tz", "Etc/UTC"),
            ("m", "sum:a"),
            ("m", "avg:10s-avg:b{host=*}"),
            ("tsuid", "max:0a,0B"),
            ("ms", "true"),
            ("show_tsuids", "true"),
            ("show_query", ""),
            ("arrays", "false"),
        ]);
        let request = QueryRequest::from_uri(&pairs, NOW).expect("valid");
        assert_eq!(request.start, 1_699_920_000_000);
        assert_eq!(request.end, NOW - 1_000);
        assert_eq!(request.queries.len(), 3);
        assert_eq!(
            request.queries[2].target,
            QueryTarget::Tsuids(vec!["0A".into(), "0B".into()])
        );
        assert_eq!(request.gap_format, GapFormat::AsRequested);
        let show = ResponseOptions {
            ms_resolution: true,
            tsuids: true,
            query: true,
            ..ResponseOptions::default()
        };
        assert_eq!(request.options, show);
    }

    #[test]
    fn mistakes_are_named() {
        let ask = |pairs: Vec<(&str, &str)>| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            QueryRequest::from_uri(&QueryParams::new(pairs.collect()), NOW)
        };
        let mut many = vec![("start", "1h-ago")];
        many.extend([("m", "sum:m"); 10_000]);
        for (pairs, status, message) in [
            (vec![("m", "sum:m")], 400, "Missing parameter start"),
            (vec![("start", "1h-ago")], 400, "Missing queries"),
            (
                vec![("start", "1h-ago"), ("end", "2h-ago"), ("m", "sum:m")],
                400,
                "End time [1699993100000] must be greater than the start time [1699996700000]",
            ),
            (
                vec![("start", "1h-ago"), ("tsuid", "sum")],
                400,
                "Invalid parameter tsuid=sum",
            ),
            (
                vec![("start", "1h-ago"), ("tsuid", "sum:,")],
                400,
                "Invalid parameter tsuid=sum:,",
            ),
            (
                vec![("start", "1h-ago"), ("m", "sum:m"), ("delete", "true")],
                400,
                "Deleting data is not enabled",
            ),
            (many, 413, "10000 sub-queries; at most 128 are accepted"),
        ] {
            let problem = ask(pairs).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (status, message)
            );
        }
    }
}
