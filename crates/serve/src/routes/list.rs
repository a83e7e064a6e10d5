//! `GET /api/v1/list`.
use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::Series;
use pegel_store::LatestValue;
use serde::Serialize;

use super::nodes_parameter::NodesParameter;
use super::reduced_list::write_reduced;
use super::values::{changed_after, node_values};
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;
use crate::tree::RequestTree;

#[derive(Serialize)]
struct ListedSeries<'a> {
    name: &'a str,
    doc: &'a str,
    r#type: &'static str,
    unit: &'a str,
}

/// The live series with their descriptions, sorted by name.
pub(super) async fn list(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let parameters = QueryParameters::parse(&uri, &["match", "nodes"])?;
    let (selector, nodes) = (parameters.selector()?, NodesParameter::parse(&parameters)?);
    context.refresh_programs().await;
    if let Some(tree) = tree {
        let own = context.agent.node.clone();
        return context
            .respond_query(&caller, &headers, move |buffer| {
                let found = node_values(&tree, &nodes, &selector, &own)?;
                write_list(buffer, &found)
            })
            .await;
    }
    nodes.check_single(&context.agent.node)?;
    let store = context.agent.store.clone();
    context
        .respond_latest(&caller, &headers, move |buffer| {
            let (mut found, _) = changed_after(&store, &selector, 0)?;
            found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            write_list(buffer, &found)
        })
        .await
}

fn write_list(
    buffer: &mut ResponseBuffer,
    found: &[(Arc<Series>, LatestValue)],
) -> Result<(), ApiError> {
    write_reduced(buffer, found, |buffer, found, _| {
        let listed = found.iter().map(|(series, _)| listed_series(series));
        buffer.json(&listed.collect::<Vec<_>>())
    })
}

fn listed_series(series: &Series) -> ListedSeries<'_> {
    let family = series.family();
    ListedSeries {
        name: series.text(),
        doc: &family.help,
        r#type: family.kind.as_str(),
        unit: &family.unit,
    }
}
