//! The inputs that the server hosts: points over HTTP, lines, and the requests of wrappers whose
//! programs the agent counts. Registers them with the server, and reports their state.

use std::sync::Arc;

use pegel_ingest::Ingest;
use pegel_ingest::handlers::{
    CommandSession, DragonCleanup, DragonMetrics, PutPoints, SocketLines, TelnetLines,
};
use pegel_ingest::statsd::StatsdInput;
use pegel_run::CountingService;
use pegel_serve::{Access, ChargeBytes, InputRoute};
use serde_json::{Value, json};

/// The input from programs.
#[derive(Debug, Clone)]
pub(crate) struct HostedInputs {
    pub ingest: Arc<Ingest>,
    pub statsd: Arc<StatsdInput>,
    /// Counts system calls for wrappers that lack the privilege to do so themselves.
    pub counting_service: Arc<CountingService>,
}

impl HostedInputs {
    /// The routes by which clients send points, with the access that each requires.
    pub(crate) fn routes(&self) -> Vec<InputRoute> {
        let ingest = || self.ingest.clone();
        vec![
            InputRoute::new("/api/put", Access::Change, PutPoints(ingest())),
            InputRoute::new("/api/metrics", Access::Change, DragonMetrics(ingest())),
            InputRoute::new("/api/tsdb_cleanup", Access::Owner, DragonCleanup(ingest())),
        ]
    }

    pub(crate) fn socket_lines(&self) -> SocketLines {
        let service = self.counting_service.clone();
        SocketLines {
            ingest: self.ingest.clone(),
            statsd: self.statsd.clone(),
            open_commands: Box::new(move |uid| -> CommandSession {
                let (service, mut session) = (service.clone(), None);
                Box::new(move |line| service.answer(line, uid, &mut session))
            }),
        }
    }

    pub(crate) fn telnet_lines(&self, version: &str) -> TelnetLines {
        TelnetLines {
            ingest: self.ingest.clone(),
            version: version.into(),
        }
    }

    /// Stores what programs counted until now. Values that cannot be written are as old as the last
    /// tick; `/status` reports the reason.
    pub(crate) fn refresh_programs(&self) -> Arc<dyn Fn() + Send + Sync> {
        let ingest = self.ingest.clone();
        Arc::new(move || drop(ingest.refresh()))
    }

    /// Charges a sender for bytes to be written.
    pub(crate) fn charge_bytes(&self) -> ChargeBytes {
        let ingest = self.ingest.clone();
        Arc::new(move |sender, bytes| ingest.try_charge(sender, bytes))
    }

    /// The fields of `/status`.
    pub(crate) fn status_fields(&self) -> [(&'static str, Value); 4] {
        let unavailable = self.counting_service.unavailable_reason();
        let watching = json!({
            "ebpf": unavailable.is_none(),
            "why_not": unavailable,
            "programs": self.counting_service.programs(),
        });
        [
            ("senders", json!(self.ingest.sender_statuses())),
            ("lanes", json!(self.ingest.lanes_status())),
            ("statsd", json!(self.statsd.status())),
            ("watching", watching),
        ]
    }
}
