use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse;
use pegel_metric::Series;
use serde::Serialize;

use super::values::changed_after;
use super::{Answer, Shared};
use crate::guard::Caller;
use crate::negotiate;
use crate::parameters::Parameters;

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    doc: &'a str,
    r#type: &'static str,
    unit: &'a str,
}

/// The live series and what they mean, sorted.
pub(super) async fn list(
    State(site): Shared,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Answer {
    let selector = Parameters::read(&uri, &["match"])?.selector()?;
    let gzip = negotiate::gzip(&headers);
    let store = site.app.store.clone();
    site.answers.refresh(&site.app.intake).await;
    let mut room = site.answers.room();
    let made = site.answers.look(caller.rights, move || {
        let (mut found, _) = changed_after(&store, &selector, 0)?;
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let listed: Vec<Listed<'_>> = found.iter().map(|(series, _)| listed(series)).collect();
        room.json(&listed)?;
        room.finish("application/json", gzip)
    });
    Ok(made.await?.into_response())
}

fn listed(series: &Series) -> Listed<'_> {
    let family = series.family();
    Listed {
        name: series.text(),
        doc: &family.help,
        r#type: family.kind.as_str(),
        unit: &family.unit,
    }
}
