//! `/api/suggest` and `/api/search/lookup`.
use std::time::Instant;

use pegel_query::{LookupQuery, OpentsdbError, SuggestKind, SuggestQuery};

use super::super::HandlerResult;
use super::super::query_http_request::QueryHttpRequest;
use super::{parse_pairs, respond};
use crate::tree::{FanOutLimits, TextKind, TextRequest, own_texts, texts_of_nodes};

/// Names that begin with the given text.
pub(super) async fn suggest(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let suggest = if asked.has_body() {
            SuggestQuery::from_json(&asked.plain_body()?)?
        } else {
            SuggestQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        let found = match asked.suggestions(&suggest)? {
            Some(found) => found,
            None => asked.engine().suggest(&suggest)?,
        };
        Ok(buffer.json(&found)?)
    })
    .await
}

impl QueryHttpRequest {
    /// Returns names of all nodes; `None` on an agent without a tree.
    fn suggestions(&self, suggest: &SuggestQuery) -> Result<Option<Vec<String>>, OpentsdbError> {
        let Some(tree) = &self.tree.0 else {
            return Ok(None);
        };
        let engine = &self.context.engine;
        let limits = FanOutLimits {
            deadline: Instant::now() + engine.limits.time_max,
            bytes_max: engine.limits.bytes_max,
            cancellation: Default::default(),
        };
        let request = TextRequest::stored(match suggest.kind() {
            SuggestKind::Metric => TextKind::Names,
            SuggestKind::Key => TextKind::Keys,
            SuggestKind::Value => TextKind::AllValues,
        });
        let own = self.context.promql_for(self.history.as_ref());
        let own = own_texts(&own, &request, &limits);
        let own =
            own.map_err(|error| OpentsdbError::new(error.kind().status(), error.to_string()))?;
        let texts = texts_of_nodes(own, &tree.all_nodes(), &request, &limits)?;
        let found = engine.suggest_among(suggest, texts.iter().map(String::as_str));
        Ok(Some(found))
    }
}

/// Series by name and tags.
pub(super) async fn lookup(asked: QueryHttpRequest) -> HandlerResult {
    respond(asked, |asked, buffer| {
        let lookup = if asked.has_body() {
            LookupQuery::from_json(&asked.plain_body()?)?
        } else {
            LookupQuery::from_uri(&parse_pairs(&asked.uri)?)?
        };
        Ok(buffer.json(&asked.engine().lookup(&lookup)?)?)
    })
    .await
}
