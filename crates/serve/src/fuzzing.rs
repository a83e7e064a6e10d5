//! A door for `fuzz/`: what is behind the `?` of a request, as functions over text. Built only with the
//! feature `fuzzing`; no promise holds from one version to the next.

use axum::http::Uri;
use pegel_metric::{Millis, Selector};
use pegel_store::RangeQuery;

use crate::query_parameters::QueryParameters;

/// What `/api/v1/range` asks the store; `None` where the client is told that it made a mistake.
pub fn range_question(query: &str, now: Millis) -> Option<RangeQuery> {
    crate::routes::range_question(&uri(query)?, now).ok()
}

/// What `/api/v1/values` and `/api/v1/stream` choose.
pub fn selector(query: &str) -> Option<Selector> {
    let parameters = QueryParameters::parse(&uri(query)?, &["match", "names"]).ok()?;
    parameters.selector().ok()
}

fn uri(query: &str) -> Option<Uri> {
    format!("/?{query}").parse().ok()
}
