//! Query requests, parsed and validated once from JSON or from a URI. The evaluation relies on the
//! validation and does not check again.

mod json;
mod lenient;
mod metric_syntax;
mod uri;

use jiff::tz::TimeZone;
use pegel_metric::Millis;
use serde::Serialize;

use crate::aggregator::Aggregator;
use crate::downsample::{Downsample, DownsampleInterval};
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::rate::RateOptions;

pub(crate) use json::{FilterBody, parse_json};
pub(crate) use lenient::{LenientBool, LenientInt, LenientString, text_of};
pub(crate) use metric_syntax::split_tags;
pub use uri::QueryParams;

/// The maximum number of sub-queries of one request.
pub const QUERIES_MAX: usize = 128;
/// The maximum number of filters of one sub-query, and of regular expressions of one request.
const FILTERS_MAX: usize = 64;
const EXPRESSIONS_MAX: usize = 16;
/// The maximum number of TSUIDs of one sub-query; in `/api/query/last`, of one request.
pub(crate) const TSUIDS_MAX: usize = 10_000;

/// A validated request of `/api/query`.
#[derive(Debug, Clone)]
pub struct QueryRequest {
    /// Both ends are included.
    pub start: Millis,
    pub end: Millis,
    pub queries: Vec<SubQuery>,
    pub zone: TimeZone,
    pub options: ResponseOptions,
    /// How NaN is written.
    pub gap_format: GapFormat,
}

/// What the response contains besides the points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseOptions {
    pub no_annotations: bool,
    pub global_annotations: bool,
    pub ms_resolution: bool,
    /// Times of annotations in whole seconds, whatever their clients sent: Grafana expects them.
    pub annotation_seconds: bool,
    pub tsuids: bool,
    pub summary: bool,
    pub stats: bool,
    pub query: bool,
    /// Points as `[[time, value], …]` instead of an object.
    pub arrays: bool,
}

/// How a bucket without a value is written. Grafana's two parsers fail on different forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapFormat {
    /// Omitted: the newer parser accepts only numbers.
    Omitted,
    /// `null`, for the parser in the browser.
    Null,
    /// `"NaN"` or `null` according to the fill policy, as OpenTSDB itself.
    AsRequested,
}

/// A query for one metric or a list of TSUIDs.
#[derive(Debug, Clone)]
pub struct SubQuery {
    pub aggregator: Aggregator,
    pub target: QueryTarget,
    pub rate: Option<RateOptions>,
    pub downsample: Option<Downsample>,
    pub filters: Vec<TagFilter>,
    pub explicit_tags: bool,
    /// The sub-query as shown in the response.
    pub echo: SubQueryEcho,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryTarget {
    Metric(String),
    /// Sorted.
    Tsuids(Vec<String>),
}

/// A sub-query as the client wrote it.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubQueryEcho {
    pub aggregator: String,
    pub metric: Option<String>,
    pub tsuids: Option<Vec<String>>,
    pub downsample: Option<String>,
    pub rate: bool,
    pub filters: Vec<FilterEcho>,
    pub explicit_tags: bool,
    pub index: usize,
    pub rate_options: Option<RateEcho>,
    pub tags: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FilterEcho {
    pub tagk: String,
    pub filter: String,
    pub group_by: bool,
    pub r#type: &'static str,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateEcho {
    pub counter: bool,
    pub counter_max: i64,
    pub reset_value: i64,
    pub drop_resets: bool,
}

impl QueryRequest {
    /// Parses the body of a `POST /api/query` and the options of its URI (`?arrays=true`).
    pub fn from_json(
        body: &[u8],
        pairs: &QueryParams,
        now: Millis,
    ) -> Result<QueryRequest, OpentsdbError> {
        json::parse_request(body, pairs, now)
    }

    /// Parses `?start=1h-ago&m=sum:metric{host=*}`.
    pub fn from_uri(pairs: &QueryParams, now: Millis) -> Result<QueryRequest, OpentsdbError> {
        uri::parse_request(pairs, now)
    }

    /// Like [`from_uri`](QueryRequest::from_uri), with these sub-queries instead of those of the
    /// URI.
    pub(crate) fn with_metrics(
        pairs: &QueryParams,
        metrics: &[String],
        now: Millis,
    ) -> Result<QueryRequest, OpentsdbError> {
        uri::with_metrics(pairs, metrics, now)
    }

    /// Validates the request as a whole and completes its sub-queries.
    pub(crate) fn finish(mut self) -> Result<QueryRequest, OpentsdbError> {
        if self.start > self.end {
            return Err(OpentsdbError::bad_request(format!(
                "End time [{}] must be greater than the start time [{}]",
                self.end, self.start
            )));
        }
        check_counts(&self.queries)?;
        for (index, query) in self.queries.iter_mut().enumerate() {
            query.complete(index, self.options.ms_resolution)?;
        }
        Ok(self)
    }
}

fn check_counts(queries: &[SubQuery]) -> Result<(), OpentsdbError> {
    if queries.is_empty() {
        return Err(OpentsdbError::bad_request("Missing queries"));
    }
    if queries.len() > QUERIES_MAX {
        return Err(too_many_queries(queries.len()));
    }
    check_expressions(queries.iter().flat_map(|query| &query.filters))
}

/// Refuses too many regular expressions among the filters of a request.
pub(crate) fn check_expressions<'a>(
    filters: impl Iterator<Item = &'a TagFilter>,
) -> Result<(), OpentsdbError> {
    if filters.filter(|filter| filter.is_expression()).count() > EXPRESSIONS_MAX {
        let message = format!("more than {EXPRESSIONS_MAX} regexp filters in one request");
        return Err(
            OpentsdbError::too_large(message).with_details("join them with |, or use wildcards")
        );
    }
    Ok(())
}

/// Refuses too many filters of one sub-query.
pub(crate) fn check_filters(count: usize, index: usize) -> Result<(), OpentsdbError> {
    if count > FILTERS_MAX {
        let message = format!("more than {FILTERS_MAX} filters in sub-query {index}");
        return Err(OpentsdbError::too_large(message));
    }
    Ok(())
}

/// Refuses too many TSUIDs.
pub(crate) fn check_tsuids(count: usize) -> Result<(), OpentsdbError> {
    if count > TSUIDS_MAX {
        let message = format!("more than {TSUIDS_MAX} tsuids");
        return Err(OpentsdbError::too_large(message));
    }
    Ok(())
}

fn too_many_queries(count: usize) -> OpentsdbError {
    OpentsdbError::too_large(format!(
        "{count} sub-queries; at most {QUERIES_MAX} are accepted"
    ))
    .with_details("send them in several requests")
}

impl SubQuery {
    /// Returns a query without options.
    fn new(aggregator: &str, target: QueryTarget) -> Result<SubQuery, OpentsdbError> {
        Ok(SubQuery {
            aggregator: Aggregator::parse(aggregator)?,
            target,
            rate: None,
            downsample: None,
            filters: Vec::new(),
            explicit_tags: false,
            echo: SubQueryEcho {
                aggregator: aggregator.to_owned(),
                ..SubQueryEcho::default()
            },
        })
    }

    /// Validates the sub-query and adds OpenTSDB's defaults.
    fn complete(&mut self, index: usize, ms_resolution: bool) -> Result<(), OpentsdbError> {
        check_filters(self.filters.len(), index)?;
        match &self.target {
            QueryTarget::Metric(name) if name.is_empty() => {
                return Err(OpentsdbError::bad_request(
                    "Missing the metric or tsuids, provide at least one",
                ));
            }
            QueryTarget::Tsuids(ids) => check_tsuids(ids.len())?,
            QueryTarget::Metric(_) => {}
        }
        self.echo.index = index;
        self.echo_filters();
        // The response has one point per second. Points of one series in the same second are
        // duplicates at that resolution, of which the last counts. The aggregator must not merge
        // them: applied to the points of one series first, `dev` is 0 and `count` is 1, and the
        // spread across the series is lost.
        if !ms_resolution && self.downsample.is_none() {
            self.downsample = Some(Downsample {
                text: String::new(),
                interval: DownsampleInterval::Fixed(1_000),
                function: Aggregator::Last,
                fill: crate::downsample::FillPolicy::None,
            });
        }
        Ok(())
    }

    fn echo_filters(&mut self) {
        let echo = |filter: &TagFilter| FilterEcho {
            tagk: filter.tagk.clone(),
            filter: filter.text.clone(),
            group_by: filter.group_by,
            r#type: filter.kind,
        };
        self.echo.filters = self.filters.iter().map(echo).collect();
        let grouping = self.filters.iter().filter(|filter| filter.group_by);
        self.echo.tags = grouping
            .map(|filter| (filter.tagk.clone(), filter.text.clone()))
            .collect();
    }
}

impl From<&RateOptions> for RateEcho {
    fn from(rate: &RateOptions) -> RateEcho {
        RateEcho {
            counter: rate.counter,
            counter_max: rate.counter_max as i64,
            reset_value: rate.reset_value as i64,
            drop_resets: rate.drop_resets,
        }
    }
}
