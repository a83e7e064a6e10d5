use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pegel_ingest::Ingest;
use pegel_ingest::statsd::StatsdInput;
use pegel_metric::{Clock, Level, Millis};
use pegel_store::Store;

/// What is served: the store, and what `/status` says about the agent around it.
#[derive(Clone)]
pub struct AgentHandles {
    pub store: Store,
    /// The way in for what programs send.
    pub ingest: Arc<Ingest>,
    /// Takes the statsd lines that come over the socket.
    pub statsd: Option<Arc<StatsdInput>>,
    /// Ends the agent; only there where a job started it.
    pub request_stop: Option<Arc<dyn Fn() + Send + Sync>>,
    pub clock: Arc<dyn Clock>,
    pub node: String,
    pub version: String,
    pub started: Millis,
    pub level: Level,
    /// The time between two samples of the fast tier.
    pub rate: Duration,
    pub status_source: Arc<dyn StatusSource>,
}

/// The parts of `/status` that only the agent knows. Asked at every request, so answer quickly.
pub trait StatusSource: Send + Sync {
    /// An array: `[{"name","state","error","cost",…}]`.
    fn collectors(&self) -> serde_json::Value;

    /// Further top-level fields.
    fn extra_fields(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::new()
    }

    /// The configuration in force: `[{"key","value","place"}]`, without secrets.
    fn config(&self) -> serde_json::Value {
        serde_json::json!([])
    }

    /// What this machine is, as JSON; `None` until it was looked at.
    fn snapshot(&self) -> Option<Arc<str>> {
        None
    }

    /// Why the agent is not well, beyond what the store says of itself.
    fn degraded(&self) -> Option<String> {
        None
    }
}

impl fmt::Debug for AgentHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandles")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl AgentHandles {
    /// Why the agent is not well.
    pub(crate) fn degraded(&self) -> Option<String> {
        let store = || self.store.status().degraded.map(|degraded| degraded.reason);
        // The end of a thread comes first: what the store says then is a consequence.
        self.status_source
            .degraded()
            .or_else(store)
            .or_else(|| self.ingest.journal_error())
    }
}
