//! The requests of clients about sessions, the status of a session, and the reasons of failures.

use pegel_metric::Millis;
use serde::{Deserialize, Serialize};

use crate::description::SessionEndReason;
use crate::identity::{SessionIdentity, path_component};
use crate::storage::{RecordPlace, StorageCredentials, StorageEndpoints};
use crate::upload::UploadStatus;

/// The client of a request: a local user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCaller {
    pub uid: u32,
    /// Whether it may see the sessions of all users, and store records in any directory.
    pub is_owner: bool,
}

/// Starts or continues a session.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The names of the record. Characters that a path component cannot contain are replaced.
    pub workflow: String,
    pub task: String,
    pub attempt: String,
    #[serde(default)]
    pub slot: Option<String>,
    /// The place of the record.
    pub to: RecordPlace,
    #[serde(default)]
    pub endpoints: StorageEndpoints,
    /// `None` keeps those of a session that continues.
    #[serde(default)]
    pub credentials: Option<StorageCredentials>,
    /// A process of the task, in the agent's PID namespace.
    #[serde(default)]
    pub pid: Option<u32>,
}

impl StartRequest {
    pub(crate) fn identity(&self) -> SessionIdentity {
        SessionIdentity {
            workflow: path_component(&self.workflow),
            task: path_component(&self.task),
            attempt: path_component(&self.attempt),
        }
    }
}

/// Ends the session of a slot.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    #[serde(default)]
    pub slot: Option<String>,
    /// The exit status of the task, as a shell reports it: 128 + N for signal N.
    #[serde(default)]
    pub exit_status: Option<i32>,
}

/// Renews the credentials of a session.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialsRequest {
    #[serde(default)]
    pub slot: Option<String>,
    pub credentials: StorageCredentials,
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// Samples are added to the record.
    Recording,
    /// The end was requested and is not in the record yet.
    Ending,
    /// The record has ended, and a part of it waits to be stored.
    Storing,
    /// The record has ended and is stored.
    Stored,
}

/// A session as `session status` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionStatus {
    pub slot: String,
    pub uid: u32,
    #[serde(flatten)]
    pub identity: SessionIdentity,
    /// The folder of the record.
    pub to: String,
    pub state: SessionState,
    pub begin: Millis,
    pub task_end: Option<Millis>,
    pub end: Option<Millis>,
    pub end_reason: Option<SessionEndReason>,
    /// The time of the newest sample in the record.
    pub recorded_until: Option<Millis>,
    /// The numbers of blocks and samples that were written since the start of the agent.
    pub blocks: u64,
    pub samples: u64,
    /// The reason why samples cannot be written; they wait in the store.
    pub problem: Option<String>,
    pub upload: Option<UploadStatus>,
}

/// The reason why a request about sessions failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "the agent already has a record {0}; start the session with another --attempt, or another \
         --task"
    )]
    RecordEnded(String),
    #[error(
        "{0} sessions are recorded or wait to be stored, which is the limit; end some with `pegel \
         session stop`, repair their storage, or raise session.sessions"
    )]
    TooMany(usize),
    #[error("there is no session in slot {0:?}; `pegel session status` lists sessions")]
    NoSession(String),
    #[error("the end of the session is not in its record yet: {0}")]
    NotEnded(String),
    #[error(
        "only the agent's user may store records in this directory; use cloud storage, or a \
         directory in session.directories"
    )]
    NotPermitted,
    #[error("the agent is stopping; try again")]
    Stopping,
    #[error("{0}")]
    Failed(String),
}

impl SessionError {
    /// Returns the status code of the response.
    pub fn http_status(&self) -> u16 {
        match self {
            SessionError::BadRequest(_) => 400,
            SessionError::NotPermitted => 403,
            SessionError::NoSession(_) => 404,
            SessionError::RecordEnded(_) => 409,
            SessionError::TooMany(_) => 429,
            SessionError::NotEnded(_) | SessionError::Stopping => 503,
            SessionError::Failed(_) => 500,
        }
    }
}
