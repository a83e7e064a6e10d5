//! The handles through which the server reaches the rest of the agent.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pegel_jobs::Jobs;
use pegel_metric::{Clock, Level, Millis, ProcessTable};
use pegel_mpi_state::MpiRank;
use pegel_query::{Annotations, HistoryReader};
use pegel_store::Store;
use pegel_tree_protocol::NodeTree;
use pegel_wire::LineInput;

use crate::routes::InputRoute;

/// Charges a sender for bytes to be written; returns false if its allowance is used up.
pub type ChargeBytes = Arc<dyn Fn(&str, u64) -> bool + Send + Sync>;

/// Everything the server needs from the agent: the store, the inputs, and the data of `/status`.
#[derive(Clone)]
pub struct AgentHandles {
    pub store: Store,
    /// The routes by which clients send samples.
    pub input_routes: Vec<InputRoute>,
    /// Handles the lines on the UNIX socket, and those of OpenTSDB's telnet protocol.
    pub socket_lines: Arc<dyn LineInput>,
    pub telnet_lines: Arc<dyn LineInput>,
    /// Stores what programs counted until now, so that a read sees it. Waits for the log.
    pub refresh_programs: Arc<dyn Fn() + Send + Sync>,
    pub charge_bytes: ChargeBytes,
    /// Annotations, marks and phases.
    pub annotations: Arc<Annotations>,
    /// The jobs of this node.
    pub jobs: Jobs,
    /// Stops the agent. Set only if a job started the agent.
    pub request_stop: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Stops the agent when all participants of a job on this node are done.
    pub participants_done: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Stops an agent that `pegel session start` started, so that another version replaces it.
    pub stop_supervised: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The records of tasks.
    pub sessions: Arc<dyn SessionCalls>,
    pub clock: Arc<dyn Clock>,
    pub node: String,
    pub version: String,
    pub started: Millis,
    pub level: Level,
    /// The time between two samples of the fast tier.
    pub rate: Duration,
    pub status_source: Arc<dyn StatusSource>,
    /// The engine with samples that are older than the store; `None` if none is configured.
    pub history: Option<Arc<dyn HistoryReader>>,
    /// The nodes below this agent; `None` if it accepts none.
    pub tree: Option<Arc<dyn NodeTree>>,
}

/// The parts of `/status` that only the agent knows. Called on every request, so implementations
/// must be fast.
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

    /// The groups of rules, as `GET /api/v1/rules` shows them without filters.
    fn rule_groups(&self) -> serde_json::Value {
        serde_json::json!([])
    }

    /// The metrics of remote write, as their senders describe them, sorted by name.
    fn remote_metrics(&self) -> Vec<RemoteMetric> {
        Vec::new()
    }

    /// A description of this machine as JSON; `None` before the first snapshot.
    fn snapshot(&self) -> Option<Arc<str>> {
        None
    }

    /// The processes of this machine as of the collector's latest pass.
    fn processes(&self) -> Result<Arc<ProcessTable>, ProcessesUnavailable> {
        Err(ProcessesUnavailable::CollectorOff)
    }

    /// The MPI processes of this node, or those of one user, as they are now. Reads files.
    fn mpi_ranks(&self, _: Option<u32>) -> Vec<MpiRank> {
        Vec::new()
    }

    /// Why the agent is degraded, apart from the store's own reasons.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// Why an input is degraded. Reported if nothing else is wrong.
    fn degraded_input(&self) -> Option<String> {
        None
    }
}

/// Handles requests about the records of tasks. May wait for the disk, so the server calls it on
/// blocking threads.
pub trait SessionCalls: Send + Sync {
    /// Returns the JSON of the response. `body` is JSON too, or empty.
    fn call(
        &self,
        client: SessionClient,
        call: SessionCall,
        body: &[u8],
    ) -> Result<serde_json::Value, SessionRefusal>;
}

/// The local user that sent a request about sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionClient {
    pub uid: u32,
    /// Whether it may see the sessions of all users.
    pub is_owner: bool,
}

/// A request about sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCall {
    List,
    Start,
    Stop,
    Credentials,
    Flush,
}

/// The reason why a request about sessions failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRefusal {
    pub status: u16,
    pub message: String,
}

/// The sessions of an agent that records none: every request fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSessions;

impl SessionCalls for NoSessions {
    fn call(
        &self,
        _: SessionClient,
        _: SessionCall,
        _: &[u8],
    ) -> Result<serde_json::Value, SessionRefusal> {
        Err(SessionRefusal {
            status: 404,
            message: "this agent records no tasks".to_owned(),
        })
    }
}

/// A metric of remote write, as its sender describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteMetric {
    pub name: String,
    pub metric_type: &'static str,
    pub help: String,
    pub unit: String,
}

/// Why there is no table of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessesUnavailable {
    /// The collector is disabled, or its level is above the agent's.
    CollectorOff,
    /// The collector has not completed a pass yet, or failed.
    NotReady,
}

impl fmt::Debug for AgentHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandles")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl AgentHandles {
    /// Why the agent is degraded; `None` if it is healthy.
    pub(crate) fn degraded(&self) -> Option<String> {
        let store = || self.store.status().degraded.map(|degraded| degraded.reason);
        // A dead thread comes first: errors of the store are then a consequence of it.
        self.status_source
            .degraded()
            .or_else(store)
            .or_else(|| self.status_source.degraded_input())
    }
}
