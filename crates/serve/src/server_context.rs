//! What connections and handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use axum::Router;
use axum::http::Method;
use pegel_query::QueryEngine;
use pegel_query::promql::{PromqlLimits, StoreSource};
use pegel_wire::RequestHandler;
use tokio::sync::watch;

use crate::agent_handles::AgentHandles;
use crate::body_memory::BodyMemory;
use crate::connection_limit::ConnectionLimit;
use crate::guard::Guard;
use crate::participants::Participants;
use crate::refusals::{ClientRefusal, RefusalCounters};
use crate::request_executor::RequestExecutor;
use crate::sender_refusals::SenderRefusals;
use crate::settings::ServeSettings;

/// How far the shutdown of the server has progressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownStage {
    Serving,
    /// Finishes requests in progress and accepts no new ones.
    Stopping,
    /// Drops all connections.
    Ended,
}

/// TCP and the UNIX socket have separate connection limits.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    pub tcp: ConnectionLimit,
    pub socket: ConnectionLimit,
}

/// The state of a running server. Handlers get it as a request extension.
#[derive(Debug)]
pub(crate) struct ServerContext {
    pub settings: ServeSettings,
    pub agent: AgentHandles,
    pub router: Router,
    pub guard: Arc<Guard>,
    /// Executes the queries of OpenTSDB clients.
    pub engine: QueryEngine,
    /// The series that PromQL selects from, and the limits of one query.
    pub promql: StoreSource,
    pub promql_limits: PromqlLimits,
    pub executor: RequestExecutor,
    pub body_memory: BodyMemory,
    pub refusals: Arc<RefusalCounters>,
    /// Limits that senders exceeded.
    pub sender_refusals: SenderRefusals,
    pub connection_limits: ConnectionLimits,
    pub stage: watch::Receiver<ShutdownStage>,
    /// The processes that take part in a job.
    pub participants: Participants,
    /// Number of series that the last `/metrics` response had to omit.
    pub name_collisions: AtomicUsize,
    /// Number of series that a child sent for nodes that are not below it.
    pub foreign_hosts: AtomicU64,
}

impl ServerContext {
    /// Counts a limit that a sender exceeded.
    pub(crate) fn count_refusal(&self, sender: &str, refusal: ClientRefusal) {
        self.refusals.count(refusal);
        self.sender_refusals.count(sender, refusal);
    }

    /// Stores what programs counted until now, so that a read sees it.
    pub(crate) async fn refresh_programs(&self) {
        self.executor.refresh(&self.agent.refresh_programs).await;
    }

    /// The input that counts a request whose body is not read.
    pub(crate) fn input_for(&self, method: &Method, path: &str) -> Option<Arc<dyn RequestHandler>> {
        let mut inputs = self.agent.input_routes.iter();
        let input = inputs.find(|input| method == Method::POST && input.path == path)?;
        Some(input.handler.clone())
    }
}
