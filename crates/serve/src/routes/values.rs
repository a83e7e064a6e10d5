//! `GET /api/v1/values`, and the current values that other routes share.
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::{Millis, Selector, Series};
use pegel_query::SampleReader;
use pegel_store::{LatestValue, QueryError, RangeQuery, Store};
use serde::Serialize;

use super::node_values::{CurrentSeries, values_of_each, values_over_nodes};
use super::nodes_parameter::NodesParameter;
use super::range::job_samples;
use super::reduced_list::write_reduced;
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::Caller;
use crate::job_query::{JobOnNodes, JobSamples};
use crate::query_parameters::QueryParameters;
use crate::tree::{RequestTree, TreeAccess};

/// Time limit for matching, as for range queries: patterns come from the client.
const MATCH_TIME: Duration = Duration::from_secs(10);

/// How long before the end of a job a value may be, in milliseconds.
const JOB_LOOKBACK: Millis = 300_000;

#[derive(Serialize)]
pub(super) struct CurrentValue<'a> {
    name: &'a str,
    /// In seconds.
    ts: f64,
    /// Null if it is not finite.
    value: f64,
}

/// Current values, sorted by name; `ts` is the time of the last change. On a parent, those of all
/// nodes.
pub(super) async fn values(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let parameters = QueryParameters::parse(&uri, &["match", "names", "nodes", "job"])?;
    let (selector, nodes) = (parameters.selector()?, NodesParameter::parse(&parameters)?);
    context.refresh_programs().await;
    if let Some(id) = parameters.single("job")?.map(str::to_owned) {
        let visible = context.guard.visible_jobs(&caller);
        let for_work = context.clone();
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let (source, job) = job_samples(
                    &for_work,
                    tree.as_ref(),
                    Arc::new(for_work.agent.store.clone()),
                    &nodes,
                    visible,
                    &id,
                )?;
                let bytes_max = for_work.settings.query_bytes_max;
                let found = last_values(&source, &selector, &job, bytes_max)?;
                write_values(buffer, &found)
            })
            .await;
    }
    if let Some(tree) = tree {
        let own = context.agent.node.clone();
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let found = node_values(&tree, &nodes, &selector, &own)?;
                write_values(buffer, &found)
            })
            .await;
    }
    nodes.check_single(&context.agent.node)?;
    let store = context.agent.store.clone();
    context
        .respond_latest(&caller, &headers, move |buffer| {
            write_current(buffer, &store, &selector, 0).map(drop)
        })
        .await
}

/// Returns the last values while a job ran; those of its last five minutes count. Blocks.
fn last_values(
    source: &JobSamples,
    selector: &Selector,
    job: &JobOnNodes,
    bytes_max: usize,
) -> Result<CurrentSeries, ApiError> {
    let start = job.begin.max(job.end - JOB_LOOKBACK);
    let query = RangeQuery {
        bytes_max,
        deadline: Instant::now() + MATCH_TIME,
        ..RangeQuery::new(selector.clone(), start, job.end, None)
    };
    let mut found = CurrentSeries::new();
    source.query_range(&query, &mut |series, points| {
        if let Some((time, value)) = points.last() {
            let latest = LatestValue {
                value: *value,
                last_changed: *time,
                last_sampled: *time,
            };
            found.push((series.clone(), latest));
        }
    })?;
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Returns the current values of the nodes of a parent, each or reduced. Blocks.
pub(super) fn node_values(
    tree: &TreeAccess,
    nodes: &NodesParameter,
    selector: &Selector,
    own: &str,
) -> Result<CurrentSeries, ApiError> {
    let source = tree.source(nodes.choice())?;
    Ok(match nodes {
        NodesParameter::Absent => values_over_nodes(&source, selector, own)?,
        NodesParameter::Each | NodesParameter::Named(_) => values_of_each(&source, selector)?,
    })
}

/// How many values were written, and the number of the latest change.
pub(super) struct WrittenChanges {
    pub count: usize,
    pub change: u64,
}

/// Series with their current values, and the number of the latest change.
pub(super) type ChangedValues = (Vec<(Arc<Series>, LatestValue)>, u64);

/// Returns the values that changed after change number `after`.
pub(super) fn changed_after(
    store: &Store,
    selector: &Selector,
    after: u64,
) -> Result<ChangedValues, QueryError> {
    let mut found = Vec::new();
    let deadline = Instant::now() + MATCH_TIME;
    let change = store.latest_until(deadline, selector, after, &mut |series, latest| {
        found.push((series.clone(), latest))
    })?;
    Ok((found, change))
}

/// Writes the values that changed after change number `after`, as a JSON array.
pub(super) fn write_current(
    buffer: &mut ResponseBuffer,
    store: &Store,
    selector: &Selector,
    after: u64,
) -> Result<WrittenChanges, ApiError> {
    let (mut found, change) = changed_after(store, selector, after)?;
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    write_values(buffer, &found)?;
    Ok(WrittenChanges {
        count: found.len(),
        change,
    })
}

fn write_values(
    buffer: &mut ResponseBuffer,
    found: &[(Arc<Series>, LatestValue)],
) -> Result<(), ApiError> {
    write_reduced(buffer, found, |buffer, found, _| {
        buffer.json(&current_values(found))
    })
}

pub(super) fn current_values(found: &[(Arc<Series>, LatestValue)]) -> Vec<CurrentValue<'_>> {
    let current = found.iter().map(|(series, latest)| CurrentValue {
        name: series.text(),
        ts: latest.last_changed as f64 / 1000.0,
        value: latest.value,
    });
    current.collect()
}
