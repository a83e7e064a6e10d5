use pegel_query::{LookupQuery, SuggestQuery};

use super::super::Answer;
use super::{Asked, answer, pairs};

/// Names that begin with what someone types.
pub(super) async fn suggest(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let suggest = match asked.has_body() {
            true => SuggestQuery::from_json(&asked.plain_body()?)?,
            false => SuggestQuery::from_uri(&pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.suggest(&suggest)?)?)
    })
    .await
}

/// Series by their names and tags.
pub(super) async fn lookup(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let lookup = match asked.has_body() {
            true => LookupQuery::from_json(&asked.plain_body()?)?,
            false => LookupQuery::from_uri(&pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.lookup(&lookup)?)?)
    })
    .await
}
