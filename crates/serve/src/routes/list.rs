//! `GET /api/v1/list`.
use axum::extract::Extension;
use axum::http::{HeaderMap, Uri};
use pegel_metric::Series;
use serde::Serialize;

use super::values::changed_after;
use super::{HandlerResult, SharedContext};
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;

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
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let selector = QueryParameters::parse(&uri, &["match"])?.selector()?;
    let store = context.agent.store.clone();
    context.refresh_programs().await;
    context
        .respond_latest(&caller, &headers, move |buffer| {
            let (mut found, _) = changed_after(&store, &selector, 0)?;
            found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let listed: Vec<ListedSeries<'_>> = found
                .iter()
                .map(|(series, _)| listed_series(series))
                .collect();
            buffer.json(&listed)
        })
        .await
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
