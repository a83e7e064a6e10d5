//! Entry points for `fuzz/`: the parsers of query strings as functions over text. Built only with
//! the feature `fuzzing`; not a stable API.

use axum::http::Uri;
use pegel_metric::{Millis, Selector};
use pegel_store::RangeQuery;

use crate::query_parameters::QueryParameters;

/// The range query of `/api/v1/range`; `None` if the query string is malformed.
pub fn range_question(query: &str, now: Millis) -> Option<RangeQuery> {
    crate::routes::range_question(&uri(query)?, now).ok()
}

/// The selector of `/api/v1/values` and `/api/v1/stream`.
pub fn selector(query: &str) -> Option<Selector> {
    let parameters = QueryParameters::parse(&uri(query)?, &["match", "names"]).ok()?;
    parameters.selector().ok()
}

fn uri(query: &str) -> Option<Uri> {
    format!("/?{query}").parse().ok()
}
