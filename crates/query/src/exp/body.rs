//! Reads and checks the body.

use std::collections::BTreeSet;

use pegel_metric::Millis;
use serde::Deserialize;

use super::arithmetic::Term;
use super::set::Join;
use super::{Expression, Expressions, Metric, Output};
use crate::aggregator::Aggregator;
use crate::downsample::{Downsample, Fill};
use crate::filter::Filter;
use crate::moment::parse_moment;
use crate::problem::Problem;
use crate::rate::Rate;
use crate::request::{
    Echo, Flag, Gaps, QueryFilter, Request, Show, SubQuery, Subject, Text, parse_json,
};
use crate::zone::Zone;

const EXPRESSIONS_MAX: usize = 64;

#[derive(Debug, Deserialize)]
struct Body {
    time: Option<Time>,
    #[serde(default)]
    filters: Option<Vec<FilterSet>>,
    #[serde(default)]
    metrics: Option<Vec<BodyMetric>>,
    #[serde(default)]
    expressions: Option<Vec<BodyExpression>>,
    #[serde(default)]
    outputs: Option<Vec<BodyOutput>>,
}

#[derive(Debug, Deserialize)]
struct Time {
    start: Option<Text>,
    end: Option<Text>,
    aggregator: Option<String>,
    downsampler: Option<Downsampler>,
    rate: Option<Flag>,
    timezone: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Downsampler {
    interval: String,
    aggregator: String,
    fill_policy: Option<FillPolicy>,
}

#[derive(Debug, Deserialize)]
struct FillPolicy {
    policy: String,
    value: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterSet {
    id: String,
    tags: Option<Vec<QueryFilter>>,
    explicit_tags: Option<Flag>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BodyMetric {
    id: String,
    metric: String,
    filter: Option<String>,
    aggregator: Option<String>,
    fill_policy: Option<FillPolicy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BodyExpression {
    id: String,
    expr: String,
    join: Option<BodyJoin>,
    fill_policy: Option<FillPolicy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BodyJoin {
    operator: Option<String>,
    use_query_tags: Option<Flag>,
    include_agg_tags: Option<Flag>,
}

#[derive(Debug, Deserialize)]
struct BodyOutput {
    id: String,
    alias: Option<String>,
}

/// Filters by name, and whether series may have other tags.
type Filters = Vec<(String, Vec<Filter>, bool)>;

pub(super) fn read(json: &[u8], now: Millis) -> Result<Expressions, Problem> {
    let body: Body = parse_json(json)?;
    let time = body.time.ok_or_else(|| Problem::bad("Missing time"))?;
    let given = body.metrics.unwrap_or_default();
    if given.is_empty() {
        return Err(Problem::bad("Missing metrics"));
    }
    let filters = body
        .filters
        .unwrap_or_default()
        .into_iter()
        .map(FilterSet::check);
    let filters: Filters = filters.collect::<Result<_, _>>()?;
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
        return Err(Problem::large(message));
    }
    let outputs = outputs(body.outputs.unwrap_or_default(), &ids, &expressions)?;
    Ok(Expressions {
        request: request(&time, queries, now)?,
        expressions: in_order(expressions, &metrics)?,
        metrics,
        outputs,
    })
}

fn check_id(id: &str, ids: &mut BTreeSet<String>) -> Result<(), Problem> {
    let is_plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if id.is_empty() || !is_plain || id.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Problem::bad(format!("Invalid id: {id:.64}"))
            .details("letters, digits and _, and no digit first"));
    }
    match ids.insert(id.to_owned()) {
        true => Ok(()),
        false => Err(Problem::bad(format!("The id {id} is given twice"))),
    }
}

/// Expressions are shown where nothing else was asked for.
fn outputs(
    given: Vec<BodyOutput>,
    ids: &BTreeSet<String>,
    expressions: &[Expression],
) -> Result<Vec<Output>, Problem> {
    if given.is_empty() {
        let output = |expression: &Expression| Output {
            id: expression.id.clone(),
            alias: None,
        };
        return Ok(expressions.iter().map(output).collect());
    }
    let check = |output: BodyOutput| match ids.contains(&output.id) {
        true => Ok(Output {
            id: output.id,
            alias: output.alias,
        }),
        false => Err(Problem::bad(format!(
            "No metric and no expression with the id {:.64}",
            output.id
        ))),
    };
    given.into_iter().map(check).collect()
}

/// Each after those that it uses.
fn in_order(mut waiting: Vec<Expression>, metrics: &[Metric]) -> Result<Vec<Expression>, Problem> {
    let mut known: BTreeSet<String> = metrics.iter().map(|metric| metric.id.clone()).collect();
    for expression in &waiting {
        for name in expression.term.variables() {
            if !known.contains(name) && !waiting.iter().any(|other| other.id == name) {
                return Err(Problem::bad(format!(
                    "The expression {} uses {name}, which is no metric and no expression",
                    expression.id
                )));
            }
        }
    }
    let mut ordered = Vec::new();
    while !waiting.is_empty() {
        let is_ready = |expression: &Expression| {
            expression
                .term
                .variables()
                .iter()
                .all(|name| known.contains(*name))
        };
        let Some(at) = waiting.iter().position(is_ready) else {
            let id = &waiting[0].id;
            return Err(Problem::bad(format!(
                "The expressions need each other: {id}"
            )));
        };
        let expression = waiting.remove(at);
        known.insert(expression.id.clone());
        ordered.push(expression);
    }
    Ok(ordered)
}

fn request(time: &Time, queries: Vec<SubQuery>, now: Millis) -> Result<Request, Problem> {
    let zone = Zone::named(time.timezone.as_ref().map_or("", |name| &name.0))?;
    let moment = |text: &Option<Text>| {
        let given = text.as_ref().filter(|text| !text.0.is_empty());
        given
            .map(|text| parse_moment(&text.0, now, &zone))
            .transpose()
    };
    let start = moment(&time.start)?.ok_or_else(|| Problem::bad("Missing start time"))?;
    let request = Request {
        start,
        end: moment(&time.end)?.unwrap_or(now),
        queries,
        show: Show {
            ms_resolution: true,
            no_annotations: true,
            ..Show::default()
        },
        gaps: Gaps::AsAsked,
        zone,
    };
    request.finish()
}

impl FilterSet {
    fn check(self) -> Result<(String, Vec<Filter>, bool), Problem> {
        let tags = self
            .tags
            .unwrap_or_default()
            .into_iter()
            .map(QueryFilter::check);
        let is_explicit = self.explicit_tags.is_some_and(|flag| flag.0);
        Ok((self.id, tags.collect::<Result<_, _>>()?, is_explicit))
    }
}

impl FillPolicy {
    fn check(&self) -> Result<Fill, Problem> {
        if self.policy != "scalar" {
            return Fill::parse(&self.policy);
        }
        let value = self
            .value
            .as_ref()
            .and_then(|text| text.0.parse::<f64>().ok());
        value
            .filter(|value| value.is_finite())
            .map(Fill::Scalar)
            .ok_or_else(|| Problem::bad("The scalar fill policy needs a value"))
    }
}

impl BodyMetric {
    fn check(self, time: &Time, filters: &Filters) -> Result<(Metric, SubQuery), Problem> {
        let name = self.aggregator.as_ref().or(time.aggregator.as_ref());
        let name = name.ok_or_else(|| Problem::bad("Missing the aggregation function"))?;
        let (tags, explicit_tags) = match &self.filter {
            None => (Vec::new(), false),
            Some(id) => filters
                .iter()
                .find(|(known, _, _)| known == id)
                .map(|(_, tags, is_explicit)| (tags.clone(), *is_explicit))
                .ok_or_else(|| Problem::bad(format!("No filter with the id {id:.64}")))?,
        };
        let own = self
            .fill_policy
            .as_ref()
            .map(FillPolicy::check)
            .transpose()?;
        let mut downsample = time
            .downsampler
            .as_ref()
            .map(Downsampler::check)
            .transpose()?;
        if let (Some(downsample), Some(fill)) = (&mut downsample, own) {
            downsample.fill = fill;
        }
        let fill = own.or(downsample.as_ref().map(|downsample| downsample.fill));
        let metric = Metric {
            id: self.id,
            fill: fill.and_then(Fill::value).unwrap_or(0.0),
            keys: tags.iter().map(|filter| filter.tagk.clone()).collect(),
        };
        let query = SubQuery {
            aggregator: Aggregator::parse(name)?,
            subject: Subject::Metric(self.metric),
            rate: time.rate.is_some_and(|flag| flag.0).then(Rate::default),
            downsample,
            filters: tags,
            explicit_tags,
            echo: Echo::default(),
        };
        Ok((metric, query))
    }
}

impl Downsampler {
    fn check(&self) -> Result<Downsample, Problem> {
        let text = format!("{}-{}", self.interval, self.aggregator);
        let mut downsample = Downsample::parse(&text, false)?;
        if let Some(policy) = &self.fill_policy {
            downsample.fill = policy.check()?;
        }
        Ok(downsample)
    }
}

impl BodyExpression {
    fn check(self) -> Result<Expression, Problem> {
        let term = Term::parse(&self.expr)
            .map_err(|why| Problem::bad(format!("Invalid expression {}: {why}", self.id)))?;
        let join = self.join.map_or(Ok(Join::default()), |join| join.check())?;
        let fill = self
            .fill_policy
            .as_ref()
            .map(FillPolicy::check)
            .transpose()?;
        Ok(Expression {
            id: self.id,
            term,
            join,
            fill: fill.and_then(Fill::value).unwrap_or(f64::NAN),
        })
    }
}

impl BodyJoin {
    fn check(self) -> Result<Join, Problem> {
        let is_union = match self.operator.as_deref() {
            None | Some("union") => true,
            Some("intersection") => false,
            Some(other) => return Err(Problem::bad(format!("Unknown join operator: {other:.64}"))),
        };
        Ok(Join {
            is_union,
            uses_query_tags: self.use_query_tags.is_some_and(|flag| flag.0),
            with_aggregated: self.include_agg_tags.is_none_or(|flag| flag.0),
        })
    }
}
