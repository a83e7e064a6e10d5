//! The records of tasks: connects the sessions with the server, the sampler and the snapshot, and
//! publishes their metrics.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use pegel_collect::{ExtraSamples, SelfMetrics};
use pegel_ingest::Ingest;
use pegel_metric::{Family, MetricKind};
use pegel_serve::{SessionCall, SessionCalls, SessionClient, SessionRefusal, StatusSource};
use pegel_session::{SessionCaller, SessionContext, SessionError, SessionHost, SessionManager};
use pegel_store::Store;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;

/// How long a sample at the start or the end of a session may take.
const EXTRA_SAMPLE_TIME: Duration = Duration::from_millis(200);

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, unit, 0, help)
}

static FAMILIES: [Family; 9] = [
    gauge(
        "pegel_session_recording",
        "",
        "Whether the task of a slot is being recorded (1).",
    ),
    gauge(
        "pegel_session_waiting_bytes",
        "bytes",
        "Bytes of the record of a task that wait on the disk of this node to be stored.",
    ),
    Family::new(
        "pegel_session_dropped_blocks_total",
        MetricKind::Counter,
        "",
        0,
        "Total number of blocks of records that were dropped because the spool was full.",
    ),
    gauge(
        "pegel_session_lag_seconds",
        "seconds",
        "Age of the newest sample in the record of a task.",
    ),
    Family::new(
        "pegel_task_cpu_seconds_total",
        MetricKind::Counter,
        "seconds",
        0,
        "Total CPU time of the task of a slot.",
    ),
    gauge(
        "pegel_task_memory_peak_bytes",
        "bytes",
        "Largest memory use of the task of a slot so far, as the kernel reports it.",
    ),
    gauge(
        "pegel_task_processes_peak",
        "",
        "Largest number of processes of the task of a slot so far.",
    ),
    Family::new(
        "pegel_task_read_bytes_total",
        MetricKind::Counter,
        "bytes",
        0,
        "Total number of bytes that the task of a slot read from disks.",
    ),
    Family::new(
        "pegel_task_written_bytes_total",
        MetricKind::Counter,
        "bytes",
        0,
        "Total number of bytes that the task of a slot wrote to disks.",
    ),
];

/// The families of the metrics of sessions.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// The sessions of the agent; empty until it can record.
#[derive(Debug, Default)]
pub(crate) struct AgentSessions {
    manager: OnceLock<SessionManager>,
}

impl AgentSessions {
    /// Continues the sessions of an earlier agent, and accepts requests from now on.
    pub(crate) fn start(
        &self,
        plan: &AgentSettings,
        store: &Store,
        status: &Arc<AgentStatus>,
        ingest: &Arc<Ingest>,
        extra_samples: ExtraSamples,
    ) {
        let context = SessionContext {
            dir: plan.store.dir.join("sessions"),
            node: plan.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: plan.session.clone(),
            store: store.clone(),
            clock: plan.store.clock.clone(),
            supervisor: plan.store.supervisor.clone(),
            host: Arc::new(AgentSessionHost {
                status: Arc::downgrade(status),
                ingest: ingest.clone(),
                extra_samples,
            }),
            root: plan.host.root.clone(),
            ends_with_agent: plan.ends_records,
        };
        // The agent is started once.
        let _ = self.manager.set(SessionManager::open(context));
    }

    /// Writes everything to the spools and stores what time permits.
    pub(crate) fn stop(&self) {
        if let Some(manager) = self.manager.get() {
            manager.stop_all();
        }
    }
}

fn refusal(error: &SessionError) -> SessionRefusal {
    SessionRefusal {
        status: error.http_status(),
        message: error.to_string(),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SessionRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        // Other messages repeat values, which may be secrets.
        let is_about_fields = ["missing field", "unknown field"];
        let message = match is_about_fields.iter().any(|start| text.starts_with(start)) {
            true => format!("malformed request: {text}"),
            false => format!("malformed request at column {}", error.column()),
        };
        SessionRefusal {
            status: 400,
            message,
        }
    })
}

impl SessionCalls for AgentSessions {
    fn call(
        &self,
        client: SessionClient,
        call: SessionCall,
        body: &[u8],
    ) -> Result<Value, SessionRefusal> {
        let manager = self.manager.get().ok_or_else(|| SessionRefusal {
            status: 503,
            message: "the agent is starting; try again".to_owned(),
        })?;
        let caller = SessionCaller {
            uid: client.uid,
            is_owner: client.is_owner,
        };
        let answer = match call {
            SessionCall::List => Ok(json!({"sessions": manager.statuses(caller)})),
            SessionCall::Start => manager
                .start(caller, &parse(body)?)
                .map(|(session, is_new)| json!({"session": session, "new": is_new})),
            SessionCall::Stop => manager
                .stop(caller, &parse(body)?)
                .map(|session| json!({"session": session})),
            SessionCall::Credentials => manager
                .set_credentials(caller, &parse(body)?)
                .map(|sessions| json!({"sessions": sessions})),
            SessionCall::Flush => Ok(json!({"flushed": manager.flush()})),
        };
        answer.map_err(|error| refusal(&error))
    }
}

/// The functions of the agent that sessions use.
#[derive(Debug)]
struct AgentSessionHost {
    /// The status owns the sampler, which publishes the metrics of sessions.
    status: Weak<AgentStatus>,
    ingest: Arc<Ingest>,
    extra_samples: ExtraSamples,
}

impl SessionHost for AgentSessionHost {
    fn snapshot(&self) -> Option<Arc<str>> {
        self.status.upgrade()?.snapshot()
    }

    fn sample_now(&self) {
        self.extra_samples.sample_now(EXTRA_SAMPLE_TIME);
        // Waits until the log contains the sample.
        drop(self.ingest.refresh());
    }

    fn scheduled_events(&self) -> Vec<String> {
        let events = { self.status.upgrade() }.and_then(|status| status.cloud_events());
        let events = events.into_iter().flat_map(|(_, events)| events);
        events
            .map(|event| format!("{} {}", event.kind, event.status))
            .collect()
    }
}

/// Publishes the state of sessions and what their tasks use.
#[derive(Debug)]
pub(crate) struct SessionMetrics {
    sessions: Arc<AgentSessions>,
    families: Vec<Arc<Family>>,
}

impl SessionMetrics {
    pub(crate) fn new(sessions: &Arc<AgentSessions>) -> Arc<SessionMetrics> {
        Arc::new(SessionMetrics {
            sessions: sessions.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for SessionMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let Some(manager) = self.sessions.manager.get() else {
            return;
        };
        let [recording, waiting, dropped, lag, of_task @ ..] = self.families.as_slice() else {
            return;
        };
        // An ended session would have the same labels as the next one in its slot.
        for session in manager.recordings() {
            let labels = [("slot", &*session.slot), ("user", &*session.user)];
            put(recording, &labels, 1.0);
            if let Some(upload) = &session.upload {
                put(waiting, &labels, upload.waiting_bytes as f64);
                put(dropped, &labels, upload.dropped_blocks as f64);
            }
            if let Some(until) = session.recorded_until {
                let age = manager.now().saturating_sub(until);
                put(lag, &labels, age as f64 / 1000.0);
            }
            let Some(peaks) = &session.peaks else {
                continue;
            };
            let values = [
                peaks.cpu_seconds,
                peaks.memory_bytes.map(|bytes| bytes as f64),
                peaks.processes.map(|count| count as f64),
                peaks.read_bytes.map(|bytes| bytes as f64),
                peaks.written_bytes.map(|bytes| bytes as f64),
            ];
            for (family, value) in of_task.iter().zip(values) {
                if let Some(value) = value {
                    put(family, &labels, value);
                }
            }
        }
    }
}
