use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use pegel_query::{Lookup, Suggest};

use super::super::{Answer, Shared};
use super::{Asked, answer, pairs};

/// Names that begin with what someone types.
pub(super) async fn suggest(
    State(site): Shared,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let asked = Asked {
        site,
        method,
        uri,
        headers,
        body,
    };
    answer(asked, |asked, room| {
        let suggest = match asked.has_body() {
            true => Suggest::from_json(&asked.plain_body()?)?,
            false => Suggest::from_uri(&pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.suggest(&suggest)?)?)
    })
    .await
}

/// Series by their names and tags.
pub(super) async fn lookup(
    State(site): Shared,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let asked = Asked {
        site,
        method,
        uri,
        headers,
        body,
    };
    answer(asked, |asked, room| {
        let lookup = match asked.has_body() {
            true => Lookup::from_json(&asked.plain_body()?)?,
            false => Lookup::from_uri(&pairs(&asked.uri)?)?,
        };
        Ok(room.json(&asked.site.engine.lookup(&lookup)?)?)
    })
    .await
}
