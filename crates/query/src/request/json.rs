//! Parses the body of a `POST /api/query`.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{
    GapFormat, LenientBool, LenientInt, LenientString, QUERIES_MAX, QueryParams, QueryRequest,
    QueryTarget, RateEcho, ResponseOptions, SubQuery, SubQueryEcho, text_of, too_many_queries,
};
use crate::aggregator::Aggregator;
use crate::downsample::Downsample;
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::rate::RateOptions;
use crate::time_syntax::parse_time_range;

/// Unknown fields are ignored, as in OpenTSDB: newer clients send more.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryBody {
    start: Option<LenientString>,
    end: Option<LenientString>,
    queries: Option<Vec<SubQueryBody>>,
    timezone: Option<LenientString>,
    use_calendar: Option<LenientBool>,
    no_annotations: Option<LenientBool>,
    global_annotations: Option<LenientBool>,
    #[serde(alias = "ms")]
    ms_resolution: Option<LenientBool>,
    #[serde(rename = "showTSUIDs")]
    show_tsuids: Option<LenientBool>,
    show_summary: Option<LenientBool>,
    show_stats: Option<LenientBool>,
    show_query: Option<LenientBool>,
    delete: Option<LenientBool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubQueryBody {
    aggregator: Option<String>,
    metric: Option<String>,
    tsuids: Option<Vec<String>>,
    rate: Option<LenientBool>,
    rate_options: Option<RateOptionsBody>,
    downsample: Option<String>,
    tags: Option<BTreeMap<String, LenientString>>,
    filters: Option<Vec<FilterBody>>,
    explicit_tags: Option<LenientBool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RateOptionsBody {
    counter: Option<LenientBool>,
    counter_max: Option<LenientInt>,
    reset_value: Option<LenientInt>,
    drop_resets: Option<LenientBool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FilterBody {
    r#type: Option<String>,
    tagk: Option<String>,
    filter: Option<LenientString>,
    #[serde(alias = "group_by")]
    group_by: Option<LenientBool>,
}

pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, OpentsdbError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(OpentsdbError::bad_request("Missing request content"));
    }
    serde_json::from_slice(body).map_err(|error| {
        OpentsdbError::bad_request("Unable to parse the given JSON").with_details(error.to_string())
    })
}

fn is_set(flag: &Option<LenientBool>) -> bool {
    flag.is_some_and(|flag| flag.0)
}

pub(super) fn parse_request(
    body: &[u8],
    pairs: &QueryParams,
    now: Millis,
) -> Result<QueryRequest, OpentsdbError> {
    let body: QueryBody = parse_json(body)?;
    if is_set(&body.delete) {
        return Err(delete_not_enabled());
    }
    let (zone, start, end) = parse_time_range(
        text_of(&body.timezone),
        (text_of(&body.start), text_of(&body.end)),
        now,
    )?;
    let start = start.ok_or_else(|| OpentsdbError::bad_request("Missing start time"))?;
    let queries = body.queries.unwrap_or_default();
    if queries.len() > QUERIES_MAX {
        return Err(too_many_queries(queries.len()));
    }
    // Grafana's browser client always sends one of these, its other clients neither.
    let from_browser = body.ms_resolution.is_some() || body.show_query.is_some();
    let calendar = is_set(&body.use_calendar);
    let queries = queries.into_iter().map(|query| query.check(calendar));
    let request = QueryRequest {
        start,
        end,
        queries: queries.collect::<Result<_, _>>()?,
        options: ResponseOptions {
            no_annotations: is_set(&body.no_annotations),
            global_annotations: is_set(&body.global_annotations),
            ms_resolution: is_set(&body.ms_resolution) || pairs.flag("ms"),
            annotation_seconds: body.ms_resolution.as_ref().is_some_and(|flag| !flag.0),
            tsuids: is_set(&body.show_tsuids) || pairs.flag("show_tsuids"),
            summary: is_set(&body.show_summary) || pairs.flag("show_summary"),
            stats: is_set(&body.show_stats) || pairs.flag("show_stats"),
            query: is_set(&body.show_query) || pairs.flag("show_query"),
            arrays: pairs.flag("arrays"),
        },
        gap_format: if from_browser {
            GapFormat::Null
        } else {
            GapFormat::Omitted
        },
        zone,
    };
    request.finish()
}

pub(super) fn delete_not_enabled() -> OpentsdbError {
    OpentsdbError::bad_request("Deleting data is not enabled")
        .with_details("samples are removed only by the age and size limits of the store")
}

impl SubQueryBody {
    fn check(self, uses_calendar: bool) -> Result<SubQuery, OpentsdbError> {
        let name = self
            .aggregator
            .ok_or_else(|| OpentsdbError::bad_request("Missing the aggregation function"))?;
        let downsample = self.downsample.filter(|text| !text.is_empty());
        let options = self.rate_options.unwrap_or_default().check();
        let has_rate = is_set(&self.rate);
        let tsuids = self.tsuids.filter(|ids| !ids.is_empty());
        let metric = self.metric.unwrap_or_default();
        let subject = match &tsuids {
            Some(ids) => QueryTarget::Tsuids(sorted_tsuids(ids)),
            None => QueryTarget::Metric(metric.clone()),
        };
        Ok(SubQuery {
            aggregator: Aggregator::parse(&name)?,
            filters: filters(self.filters, self.tags)?,
            explicit_tags: is_set(&self.explicit_tags),
            downsample: downsample
                .as_deref()
                .map(|text| Downsample::parse(text, uses_calendar))
                .transpose()?,
            rate: has_rate.then_some(options),
            echo: SubQueryEcho {
                aggregator: name,
                metric: tsuids.is_none().then_some(metric),
                tsuids,
                downsample,
                rate: has_rate,
                explicit_tags: is_set(&self.explicit_tags),
                rate_options: has_rate.then(|| RateEcho::from(&options)),
                ..SubQueryEcho::default()
            },
            target: subject,
        })
    }
}

pub(super) fn sorted_tsuids(ids: &[String]) -> Vec<String> {
    let mut ids: Vec<String> = ids.iter().map(|id| id.trim().to_uppercase()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns `filters` if there are any, else `tags`: according to the manual only one of them
/// applies.
fn filters(
    filters: Option<Vec<FilterBody>>,
    tags: Option<BTreeMap<String, LenientString>>,
) -> Result<Vec<TagFilter>, OpentsdbError> {
    match filters.filter(|filters| !filters.is_empty()) {
        Some(filters) => filters.into_iter().map(FilterBody::check).collect(),
        None => tags
            .unwrap_or_default()
            .iter()
            .map(|(key, value)| TagFilter::from_tag_value(key, &value.0, true))
            .collect(),
    }
}

impl FilterBody {
    pub(crate) fn check(self) -> Result<TagFilter, OpentsdbError> {
        let text = self.filter.unwrap_or_default();
        let kind = self
            .r#type
            .ok_or_else(|| OpentsdbError::bad_request("Missing filter type"))?;
        let tagk = self.tagk.unwrap_or_default();
        TagFilter::new(&tagk, &kind, &text.0, is_set(&self.group_by))
    }
}

impl RateOptionsBody {
    fn check(self) -> RateOptions {
        let default = RateOptions::default();
        RateOptions {
            counter: is_set(&self.counter),
            counter_max: self
                .counter_max
                .map_or(default.counter_max, |max| max.0 as f64),
            reset_value: self
                .reset_value
                .map_or(default.reset_value, |value| value.0 as f64),
            drop_resets: is_set(&self.drop_resets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downsample::DownsampleInterval;

    const NOW: Millis = 1_700_000_300_000;

    fn ask(body: &str) -> Result<QueryRequest, OpentsdbError> {
        QueryRequest::from_json(body.as_bytes(), &QueryParams::default(), NOW)
    }

    #[test]
    fn the_browsers_form() {
        let request = ask(r#"{"start":1700000000000,"queries":[{"metric":"cpu_percent","aggregator":"sum",
            "downsample":"1s-avg","rate":true,"rateOptions":{"counter":true,"counterMax":65535,"resetValue":100,
            "dropResets":false},"filters":[{"type":"wildcard","tagk":"host","filter":"*","groupBy":false}],
            "explicitTags":true}],"msResolution":false,"globalAnnotations":true,"showQuery":true}"#).expect("valid");
        assert_eq!((request.start, request.end), (1_700_000_000_000, NOW));
        assert_eq!(request.gap_format, GapFormat::Null);
        let show = ResponseOptions {
            global_annotations: true,
            annotation_seconds: true,
            query: true,
            ..ResponseOptions::default()
        };
        assert_eq!(request.options, show);
        let query = &request.queries[0];
        assert_eq!(query.target, QueryTarget::Metric("cpu_percent".into()));
        assert_eq!(
            query.downsample.as_ref().map(|d| d.interval),
            Some(DownsampleInterval::Fixed(1_000))
        );
        let rate = RateOptions {
            counter: true,
            counter_max: 65_535.0,
            reset_value: 100.0,
            drop_resets: false,
        };
        assert_eq!(query.rate, Some(rate));
        assert!(query.explicit_tags && !query.filters[0].group_by);
    }

    #[test]
    fn the_backends_form() {
        let pairs = QueryParams::from([("arrays", "true")]);
        let body = r#"{"start":1700000000,"end":1700000300,"queries":[{"metric":"m","aggregator":"sum"}]}"#;
        let request = QueryRequest::from_json(body.as_bytes(), &pairs, NOW).expect("valid");
        assert_eq!(
            (request.start, request.end),
            (1_700_000_000_000, 1_700_000_300_000)
        );
        assert_eq!(request.gap_format, GapFormat::Omitted);
        assert!(request.options.arrays);
    }

    #[test]
    fn loose_values_are_understood() {
        let request = ask(r#"{"start":"1h-ago","end":"","timezone":"UTC","unknown":{"x":[1]},"queries":[
            {"metric":"m","aggregator":"avg","rate":"true","tags":{"gpu":0,"host":"a|b"},"downsample":null},
            {"aggregator":"sum","tsuids":["0a","0A","ff"]}]}"#).expect("valid");
        assert_eq!(request.start, NOW - 3_600_000);
        let query = &request.queries[0];
        assert!(query.rate.is_some() && query.filters.iter().all(|filter| filter.group_by));
        assert_eq!(query.filters[0].text, "0");
        assert_eq!(
            request.queries[1].target,
            QueryTarget::Tsuids(vec!["0A".into(), "FF".into()])
        );
        assert_eq!(request.queries[1].echo.index, 1);
    }

    #[test]
    fn several_points_a_second_become_one_unless_milliseconds_are_asked_for() {
        let of = |extra: &str, aggregator: &str| {
            let body = format!(
                r#"{{"start":1,"queries":[{{"metric":"m","aggregator":"{aggregator}"}}]{extra}}}"#
            );
            let query = ask(&body).expect("valid").queries.remove(0);
            (
                query.downsample.map(|d| (d.interval, d.function)),
                query.echo.downsample,
            )
        };
        // The last point, whatever the aggregator.
        for aggregator in ["sum", "dev", "count", "none"] {
            assert_eq!(
                of("", aggregator),
                (
                    Some((DownsampleInterval::Fixed(1_000), Aggregator::Last)),
                    None
                )
            );
        }
        assert_eq!(of(",\"msResolution\":true", "sum"), (None, None));
    }

    #[test]
    fn mistakes_are_named() {
        let many = format!(
            r#"{{"start":1,"queries":[{}{{}}]}}"#,
            r#"{"metric":"m","aggregator":"sum"},"#.repeat(9_999)
        );
        let filters = format!(
            r#"{{"start":1,"queries":[{{"metric":"m","aggregator":"sum","filters":[{}{{"type":"regexp","tagk":"a","filter":"x"}}]}}]}}"#,
            r#"{"type":"regexp","tagk":"a","filter":"x"},"#.repeat(20)
        );
        for (body, status, message) in [
            ("", 400, "Missing request content"),
            ("{", 400, "Unable to parse the given JSON"),
            ("[]", 400, "Unable to parse the given JSON"),
            ("{\"start\":[]}", 400, "Unable to parse the given JSON"),
            ("{}", 400, "Missing start time"),
            (r#"{"start":"x"}"#, 400, "Invalid date: x"),
            (r#"{"start":1}"#, 400, "Missing queries"),
            (r#"{"start":1,"queries":[]}"#, 400, "Missing queries"),
            (
                r#"{"start":1,"queries":[{}]}"#,
                400,
                "Missing the aggregation function",
            ),
            (
                r#"{"start":1,"queries":[{"aggregator":"summ","metric":"m"}]}"#,
                400,
                "No such aggregator: summ",
            ),
            (
                r#"{"start":1,"queries":[{"aggregator":"sum"}]}"#,
                400,
                "Missing the metric or tsuids, provide at least one",
            ),
            (
                r#"{"start":1,"queries":[{"aggregator":"sum","metric":"m","downsample":"1s"}]}"#,
                400,
                "Invalid downsampling specifier '1s': expected two or three parts",
            ),
            (
                r#"{"start":1,"timezone":"Mars/Base","queries":[]}"#,
                400,
                "Invalid timezone name: Mars/Base",
            ),
            (
                r#"{"start":1700000000,"end":1600000000,"queries":[{"aggregator":"sum","metric":"m"}]}"#,
                400,
                "End time [1600000000000] must be greater than the start time [1700000000000]",
            ),
            (
                r#"{"start":1,"delete":true,"queries":[]}"#,
                400,
                "Deleting data is not enabled",
            ),
            (&many, 413, "10000 sub-queries; at most 128 are accepted"),
            (&filters, 413, "more than 16 regexp filters in one request"),
        ] {
            let problem = ask(body).expect_err(message);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (status, message)
            );
        }
    }
}
