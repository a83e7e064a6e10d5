//! `GET /api/v1/range`.
use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::{Labels, Millis, Series};
use pegel_query::SampleReader;
use pegel_store::{QueryStep, RangeQuery, StepAggregation};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::nodes_parameter::NodesParameter;
use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::{Caller, JobVisibility};
use crate::job_query::{JobOnNodes, JobSamples};
use crate::query_parameters::QueryParameters;
use crate::request_history::RequestHistory;
use crate::time_parameters::{parse_duration, parse_time};
use crate::tree::{RequestTree, TreeAccess};

/// Stored samples per series: `[{"name","labels","points":[[ms,value],…]}]`.
pub(super) async fn range(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    history: Option<Extension<RequestHistory>>,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let own = context.promql_for(history.as_deref()).stored_series();
    let now = context.agent.clock.utc();
    let accepted = ["match", "start", "end", "step", "agg", "nodes", "job"];
    let parameters = QueryParameters::parse(&uri, &accepted)?;
    let nodes = NodesParameter::parse(&parameters)?;
    if let Some(id) = parameters.single("job")?.map(str::to_owned) {
        let visible = context.guard.visible_jobs(&caller);
        let for_work = context.clone();
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let (source, job) =
                    job_samples(&for_work, tree.as_ref(), own, &nodes, visible, &id)?;
                let mut query = job_range_query(&parameters, now, &job)?;
                query.bytes_max = for_work.settings.query_bytes_max;
                write_range(buffer, &source, &query)
            })
            .await;
    }
    let mut query = range_query(&parameters, now)?;
    query.bytes_max = context.settings.query_bytes_max;
    if let Some(tree) = tree {
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let source = tree.source(nodes.choice())?;
                write_range(buffer, &source, &query)
            })
            .await;
    }
    nodes.check_single(&context.agent.node)?;
    context
        .respond_query(&caller, &headers, move |buffer| {
            write_range(buffer, &*own, &query)
        })
        .await
}

/// Parses the query string of a request.
pub(crate) fn parse_range_query(uri: &Uri, now: Millis) -> Result<RangeQuery, ApiError> {
    let accepted = ["match", "start", "end", "step", "agg", "nodes"];
    range_query(&QueryParameters::parse(uri, &accepted)?, now)
}

/// Parses the query string of a request for a job, whose time is the default.
fn job_range_query(
    parameters: &QueryParameters,
    now: Millis,
    job: &JobOnNodes,
) -> Result<RangeQuery, ApiError> {
    let mut query = range_query(parameters, now)?;
    if parameters.single("start")?.is_none() {
        query.start = job.begin;
    }
    if parameters.single("end")?.is_none() {
        query.end = job.end;
    }
    Ok(query)
}

/// Returns what belongs to a job: of this agent, or of the job's nodes. Blocks.
pub(super) fn job_samples(
    context: &ServerContext,
    tree: Option<&TreeAccess>,
    own: Arc<dyn SampleReader>,
    nodes: &NodesParameter,
    visible: JobVisibility,
    id: &str,
) -> Result<(JobSamples, Arc<JobOnNodes>), ApiError> {
    let job = Arc::new(JobOnNodes::find(context, tree, visible, id)?);
    let source: Arc<dyn SampleReader> = match tree {
        Some(tree) => {
            let choice = match nodes {
                NodesParameter::Named(choice) => choice.clone(),
                NodesParameter::Absent | NodesParameter::Each => job.nodes(),
            };
            Arc::new(tree.source(choice)?)
        }
        None => {
            nodes.check_single(&context.agent.node)?;
            own
        }
    };
    let samples = JobSamples {
        source,
        job: job.clone(),
    };
    Ok((samples, job))
}

pub(super) fn range_query(
    parameters: &QueryParameters,
    now: Millis,
) -> Result<RangeQuery, ApiError> {
    let moment = |key, default| {
        let text = parameters.single(key)?.unwrap_or(default);
        parse_time(key, text, now)
    };
    let (start, end) = (moment("start", "-5m")?, moment("end", "now")?);
    let aggregation = parameters
        .single("agg")?
        .map(parse_aggregation)
        .transpose()?;
    let millis = parameters
        .single("step")?
        .map(|text| parse_duration("step", text))
        .transpose()?;
    let step = match (millis, aggregation) {
        (Some(millis), aggregation) => Some(QueryStep {
            millis,
            aggregation,
        }),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(ApiError::bad_request("agg requires a step")
                .hint("add a step, for example step=10s"));
        }
    };
    Ok(RangeQuery::new(parameters.selector()?, start, end, step))
}

fn parse_aggregation(text: &str) -> Result<StepAggregation, ApiError> {
    StepAggregation::parse(text).ok_or_else(|| {
        let known: Vec<&str> = StepAggregation::ALL
            .iter()
            .map(|aggregation| aggregation.as_str())
            .collect();
        ApiError::bad_request(format!("unknown aggregation agg={text}"))
            .hint(format!("one of {}", known.join(", ")))
    })
}

#[derive(Serialize)]
struct SeriesPoints<'a> {
    name: &'a str,
    #[serde(serialize_with = "write_labels")]
    labels: Labels<'a>,
    /// Values that are not finite become null.
    points: &'a [(Millis, f64)],
}

fn write_labels<S: Serializer>(labels: &Labels<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (key, value) in labels.clone() {
        map.serialize_entry(key, &value)?;
    }
    map.end()
}

fn write_range(
    buffer: &mut ResponseBuffer,
    source: &dyn SampleReader,
    query: &RangeQuery,
) -> Result<(), ApiError> {
    buffer.text("[")?;
    let mut first = true;
    let mut written = Ok(());
    source.query_range(query, &mut |series, points| {
        // The store's scan cannot be stopped; after the first error the rest is skipped.
        if written.is_ok() {
            written = write_series(buffer, series, points, std::mem::take(&mut first));
        }
    })?;
    written?;
    buffer.text("]")
}

fn write_series(
    buffer: &mut ResponseBuffer,
    series: &Series,
    points: &[(Millis, f64)],
    first: bool,
) -> Result<(), ApiError> {
    if !first {
        buffer.text(",")?;
    }
    buffer.json(&SeriesPoints {
        name: series.name(),
        labels: series.labels(),
        points,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_700_000_000_000;

    fn ask(query: &str) -> Result<RangeQuery, ApiError> {
        parse_range_query(
            &format!("/api/v1/range?{query}")
                .parse()
                .expect("a valid URI"),
            NOW,
        )
    }

    #[test]
    fn the_last_five_minutes_are_the_default() {
        let query = ask("").expect("valid");
        assert_eq!(
            (query.start, query.end, query.step),
            (NOW - 300_000, NOW, None)
        );
        let query = ask("start=1699999999&end=1700000000500&step=500ms&agg=max").expect("valid");
        assert_eq!(
            (query.start, query.end),
            (1_699_999_999_000, 1_700_000_000_500)
        );
        assert_eq!(
            query.step,
            Some(QueryStep {
                millis: 500,
                aggregation: Some(StepAggregation::Max)
            })
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (query, expected) in [
            ("agg=max", "agg requires a step"),
            ("agg=median&step=1", "unknown aggregation agg=median"),
            ("start=yesterday", "start=yesterday: not a time"),
            ("step=0", "step: \"0\" is not greater than 0"),
            ("from=1", "unknown parameter \"from\""),
        ] {
            assert_eq!(ask(query).expect_err(query).message(), expected);
        }
    }

    #[test]
    fn a_series_is_written_with_its_labels_and_points() {
        let family = pegel_metric::Family::new("m", pegel_metric::MetricKind::Gauge, "", 1, "");
        let series = Series::new(family.into(), &[("b", "x\"y"), ("a", "1")]).expect("valid");
        let track = SeriesPoints {
            name: series.name(),
            labels: series.labels(),
            points: &[(1, 0.5), (2, f64::NAN), (3, f64::INFINITY)],
        };
        let expected =
            r#"{"name":"m","labels":{"a":"1","b":"x\"y"},"points":[[1,0.5],[2,null],[3,null]]}"#;
        assert_eq!(serde_json::to_string(&track).expect("written"), expected);
    }
}
