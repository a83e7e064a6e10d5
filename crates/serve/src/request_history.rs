//! Records the use of the history in one request, for the header `Pegel-History`.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use pegel_query::promql::StoreSource;
use pegel_query::{HistoryMark, HistoryRecord};

use crate::server_context::ServerContext;

/// States up to which time a response comes from the history, and what is missing.
pub(crate) const HISTORY_HEADER: HeaderName = HeaderName::from_static("pegel-history");

/// The record of one request. Handlers get it as a request extension if an engine is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHistory(Arc<HistoryRecord>);

impl RequestHistory {
    /// Returns a new record; `None` on an agent without history.
    pub(crate) fn of(context: &ServerContext) -> Option<RequestHistory> {
        context.promql.has_history().then(RequestHistory::default)
    }

    pub(crate) fn mark(&self) -> Option<HistoryMark> {
        self.0.mark()
    }

    /// Returns the header of the response.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let header = HeaderValue::try_from(self.mark()?.header());
        Some(header.unwrap_or_else(|_| HeaderValue::from_static("unknown")))
    }

    /// Returns whether a part of the history is missing from the response.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.mark().is_some_and(|mark| mark.from.is_some())
    }
}

impl ServerContext {
    /// Returns the series of this agent for one request.
    pub(crate) fn promql_for(&self, history: Option<&RequestHistory>) -> StoreSource {
        match history {
            Some(history) => self.promql.clone().recording(history.0.clone()),
            None => self.promql.clone(),
        }
    }
}
