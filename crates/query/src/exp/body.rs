//! Parses and validates the body of `/api/query/exp`.

use std::collections::BTreeSet;

use pegel_metric::Millis;
use serde::Deserialize;

use super::arithmetic::Term;
use super::operand::Join;
use super::{ExpressionMetric, ExpressionOutput, ExpressionRequest, NamedExpression};
use crate::aggregator::Aggregator;
use crate::downsample::{Downsample, FillPolicy};
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::rate::RateOptions;
use crate::request::{
    FilterBody, GapFormat, LenientBool, LenientString, QueryRequest, QueryTarget, ResponseOptions,
    SubQuery, SubQueryEcho, parse_json, text_of,
};
use crate::time_syntax::parse_time_range;

const EXPRESSIONS_MAX: usize = 64;

#[derive(Debug, Deserialize)]
struct ExpressionsBody {
    time: Option<TimeBody>,
    #[serde(default)]
    filters: Option<Vec<FilterSetBody>>,
    #[serde(default)]
    metrics: Option<Vec<MetricBody>>,
    #[serde(default)]
    expressions: Option<Vec<ExpressionBody>>,
    #[serde(default)]
    outputs: Option<Vec<OutputBody>>,
}

#[derive(Debug, Deserialize)]
struct TimeBody {
    start: Option<LenientString>,
    end: Option<LenientString>,
    aggregator: Option<String>,
    downsampler: Option<DownsamplerBody>,
    rate: Option<LenientBool>,
    timezone: Option<LenientString>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DownsamplerBody {
    interval: String,
    aggregator: String,
    fill_policy: Option<FillPolicyBody>,
}

#[derive(Debug, Deserialize)]
struct FillPolicyBody {
    policy: String,
    value: Option<LenientString>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterSetBody {
    id: String,
    tags: Option<Vec<FilterBody>>,
    explicit_tags: Option<LenientBool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricBody {
    id: String,
    metric: String,
    filter: Option<String>,
    aggregator: Option<String>,
    fill_policy: Option<FillPolicyBody>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpressionBody {
    id: String,
    expr: String,
    join: Option<JoinBody>,
    fill_policy: Option<FillPolicyBody>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JoinBody {
    operator: Option<String>,
    use_query_tags: Option<LenientBool>,
    include_agg_tags: Option<LenientBool>,
}

#[derive(Debug, Deserialize)]
struct OutputBody {
    id: String,
    alias: Option<String>,
}

/// The id of a filter set, its filters, and whether series must have exactly their tags.
type NamedFilters = Vec<(String, Vec<TagFilter>, bool)>;

pub(super) fn parse_body(json: &[u8], now: Millis) -> Result<ExpressionRequest, OpentsdbError> {
    let body: ExpressionsBody = parse_json(json)?;
    let time = body
        .time
        .ok_or_else(|| OpentsdbError::bad_request("Missing time"))?;
    let given = body.metrics.unwrap_or_default();
    if given.is_empty() {
        return Err(OpentsdbError::bad_request("Missing metrics"));
    }
    let filters = body
        .filters
        .unwrap_or_default()
        .into_iter()
        .map(FilterSetBody::check);
    let filters: NamedFilters = filters.collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    let (mut metrics, mut queries) = (Vec::new(), Vec::new());
    for metric in given {
        check_id(&metric.id, &mut ids)?;
        let (metric, query) = metric.check(&time, &filters)?;
        metrics.push(metric);
        queries.push(query);
    }
    let mut expressions = Vec::new();
    for expression in body.expressions.unwrap_or_default() {
        check_id(&expression.id, &mut ids)?;
        expressions.push(expression.check()?);
    }
    if expressions.len() > EXPRESSIONS_MAX {
        let message = format!("more than {EXPRESSIONS_MAX} expressions");
        return Err(OpentsdbError::too_large(message));
    }
    let outputs = outputs(body.outputs.unwrap_or_default(), &ids, &expressions)?;
    Ok(ExpressionRequest {
        request: request(&time, queries, now)?,
        expressions: sort_by_dependency(expressions, &metrics)?,
        metrics,
        outputs,
    })
}

fn check_id(id: &str, ids: &mut BTreeSet<String>) -> Result<(), OpentsdbError> {
    let is_plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if id.is_empty() || !is_plain || id.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(OpentsdbError::bad_request(format!("Invalid id: {id:.64}"))
            .with_details("letters, digits and _, not starting with a digit"));
    }
    if ids.insert(id.to_owned()) {
        Ok(())
    } else {
        Err(OpentsdbError::bad_request(format!("Duplicate id {id}")))
    }
}

/// Validates the outputs; without any, all expressions are shown.
fn outputs(
    given: Vec<OutputBody>,
    ids: &BTreeSet<String>,
    expressions: &[NamedExpression],
) -> Result<Vec<ExpressionOutput>, OpentsdbError> {
    if given.is_empty() {
        let output = |expression: &NamedExpression| ExpressionOutput {
            id: expression.id.clone(),
            alias: None,
        };
        return Ok(expressions.iter().map(output).collect());
    }
    let check = |output: OutputBody| {
        if ids.contains(&output.id) {
            Ok(ExpressionOutput {
                id: output.id,
                alias: output.alias,
            })
        } else {
            Err(OpentsdbError::bad_request(format!(
                "No metric or expression with the id {:.64}",
                output.id
            )))
        }
    };
    given.into_iter().map(check).collect()
}

/// Sorts expressions so that each comes after those that it uses.
fn sort_by_dependency(
    mut waiting: Vec<NamedExpression>,
    metrics: &[ExpressionMetric],
) -> Result<Vec<NamedExpression>, OpentsdbError> {
    let mut known: BTreeSet<String> = metrics.iter().map(|metric| metric.id.clone()).collect();
    for expression in &waiting {
        for name in expression.term.variables() {
            if !known.contains(name) && !waiting.iter().any(|other| other.id == name) {
                return Err(OpentsdbError::bad_request(format!(
                    "The expression {} uses {name}, which is neither a metric nor an expression",
                    expression.id
                )));
            }
        }
    }
    let mut ordered = Vec::new();
    while !waiting.is_empty() {
        let is_ready = |expression: &NamedExpression| {
            expression
                .term
                .variables()
                .iter()
                .all(|name| known.contains(*name))
        };
        let Some(at) = waiting.iter().position(is_ready) else {
            let id = &waiting[0].id;
            return Err(OpentsdbError::bad_request(format!(
                "Circular reference between expressions: {id}"
            )));
        };
        let expression = waiting.remove(at);
        known.insert(expression.id.clone());
        ordered.push(expression);
    }
    Ok(ordered)
}

fn request(
    time: &TimeBody,
    queries: Vec<SubQuery>,
    now: Millis,
) -> Result<QueryRequest, OpentsdbError> {
    let (zone, start, end) = parse_time_range(
        text_of(&time.timezone),
        (text_of(&time.start), text_of(&time.end)),
        now,
    )?;
    let start = start.ok_or_else(|| OpentsdbError::bad_request("Missing start time"))?;
    let request = QueryRequest {
        start,
        end,
        queries,
        options: ResponseOptions {
            ms_resolution: true,
            no_annotations: true,
            ..ResponseOptions::default()
        },
        gap_format: GapFormat::AsRequested,
        zone,
    };
    request.finish()
}

impl FilterSetBody {
    fn check(self) -> Result<(String, Vec<TagFilter>, bool), OpentsdbError> {
        let tags = self
            .tags
            .unwrap_or_default()
            .into_iter()
            .map(FilterBody::check);
        let is_explicit = self.explicit_tags.is_some_and(|flag| flag.0);
        Ok((self.id, tags.collect::<Result<_, _>>()?, is_explicit))
    }
}

impl FillPolicyBody {
    fn check(&self) -> Result<FillPolicy, OpentsdbError> {
        if self.policy != "scalar" {
            return FillPolicy::parse(&self.policy);
        }
        let value = self
            .value
            .as_ref()
            .and_then(|text| text.0.parse::<f64>().ok());
        value
            .filter(|value| value.is_finite())
            .map(FillPolicy::Scalar)
            .ok_or_else(|| OpentsdbError::bad_request("The scalar fill policy needs a value"))
    }
}

impl MetricBody {
    fn check(
        self,
        time: &TimeBody,
        filters: &NamedFilters,
    ) -> Result<(ExpressionMetric, SubQuery), OpentsdbError> {
        let name = self.aggregator.as_ref().or(time.aggregator.as_ref());
        let name =
            name.ok_or_else(|| OpentsdbError::bad_request("Missing the aggregation function"))?;
        let (tags, explicit_tags) = match &self.filter {
            None => (Vec::new(), false),
            Some(id) => filters
                .iter()
                .find(|(known, _, _)| known == id)
                .map(|(_, tags, is_explicit)| (tags.clone(), *is_explicit))
                .ok_or_else(|| {
                    OpentsdbError::bad_request(format!("No filter with the id {id:.64}"))
                })?,
        };
        let own = self
            .fill_policy
            .as_ref()
            .map(FillPolicyBody::check)
            .transpose()?;
        let mut downsample = time
            .downsampler
            .as_ref()
            .map(DownsamplerBody::check)
            .transpose()?;
        if let (Some(downsample), Some(fill)) = (&mut downsample, own) {
            downsample.fill = fill;
        }
        let fill = own.or(downsample.as_ref().map(|downsample| downsample.fill));
        let metric = ExpressionMetric {
            id: self.id,
            fill: fill.and_then(FillPolicy::value).unwrap_or(0.0),
            keys: tags.iter().map(|filter| filter.tagk.clone()).collect(),
        };
        let query = SubQuery {
            aggregator: Aggregator::parse(name)?,
            target: QueryTarget::Metric(self.metric),
            rate: time
                .rate
                .is_some_and(|flag| flag.0)
                .then(RateOptions::default),
            downsample,
            filters: tags,
            explicit_tags,
            echo: SubQueryEcho::default(),
        };
        Ok((metric, query))
    }
}

impl DownsamplerBody {
    fn check(&self) -> Result<Downsample, OpentsdbError> {
        let text = format!("{}-{}", self.interval, self.aggregator);
        let mut downsample = Downsample::parse(&text, false)?;
        if let Some(policy) = &self.fill_policy {
            downsample.fill = policy.check()?;
        }
        Ok(downsample)
    }
}

impl ExpressionBody {
    fn check(self) -> Result<NamedExpression, OpentsdbError> {
        let term = Term::parse(&self.expr).map_err(|why| {
            OpentsdbError::bad_request(format!("Invalid expression {}: {why}", self.id))
        })?;
        let join = self.join.map_or(Ok(Join::default()), |join| join.check())?;
        let fill = self
            .fill_policy
            .as_ref()
            .map(FillPolicyBody::check)
            .transpose()?;
        Ok(NamedExpression {
            id: self.id,
            term,
            join,
            fill: fill.and_then(FillPolicy::value).unwrap_or(f64::NAN),
        })
    }
}

impl JoinBody {
    fn check(self) -> Result<Join, OpentsdbError> {
        let is_union = match self.operator.as_deref() {
            None | Some("union") => true,
            Some("intersection") => false,
            Some(other) => {
                return Err(OpentsdbError::bad_request(format!(
                    "Unknown join operator: {other:.64}"
                )));
            }
        };
        Ok(Join {
            is_union,
            uses_query_tags: self.use_query_tags.is_some_and(|flag| flag.0),
            uses_aggregated_keys: self.include_agg_tags.is_none_or(|flag| flag.0),
        })
    }
}
