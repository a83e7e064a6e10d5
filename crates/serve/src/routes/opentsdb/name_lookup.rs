//! `/api/suggest` and `/api/search/lookup`.
use pegel_query::{LookupQuery, SuggestQuery};

use super::super::HandlerResult;
use super::{OpentsdbRequest, parse_pairs, respond};

/// Names that begin with the given text.
pub(super) async fn suggest(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let suggest = if asked.has_body() {
            SuggestQuery::from_json(&asked.plain_body()?)?
        } else {
            SuggestQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        Ok(buffer.json(&asked.context.engine.suggest(&suggest)?)?)
    })
    .await
}

/// Series by name and tags.
pub(super) async fn lookup(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let lookup = if asked.has_body() {
            LookupQuery::from_json(&asked.plain_body()?)?
        } else {
            LookupQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        Ok(buffer.json(&asked.context.engine.lookup(&lookup)?)?)
    })
    .await
}
