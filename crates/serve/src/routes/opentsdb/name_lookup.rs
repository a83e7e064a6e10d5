use pegel_query::{LookupQuery, SuggestQuery};

use super::super::HandlerResult;
use super::{OpentsdbRequest, parse_pairs, respond};

/// Names that begin with what someone types.
pub(super) async fn suggest(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, room| {
        let suggest = match asked.has_body() {
            true => SuggestQuery::from_json(&asked.plain_body()?)?,
            false => SuggestQuery::from_uri(&parse_pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.suggest(&suggest)?)?)
    })
    .await
}

/// Series by their names and tags.
pub(super) async fn lookup(asked: OpentsdbRequest) -> HandlerResult {
    respond(asked, |asked, room| {
        let lookup = match asked.has_body() {
            true => LookupQuery::from_json(&asked.plain_body()?)?,
            false => LookupQuery::from_uri(&parse_pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.lookup(&lookup)?)?)
    })
    .await
}
