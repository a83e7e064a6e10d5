//! The files of a session next to its spool: its description, and the credentials of its storage. A
//! restarted agent continues its sessions from them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pegel_metric::Millis;
use pegel_plain_file::write_durably;
use serde::{Deserialize, Serialize};

use crate::identity::SessionIdentity;
use crate::storage::{RecordPlace, StorageCredentials, StorageEndpoints};
use crate::task::{TaskCheckpoint, TaskExit};

const DESCRIPTION_FILE: &str = "session.json";
const CREDENTIALS_FILE: &str = "credentials.json";
const SPOOL_DIR: &str = "spool";
/// The most bytes of either file; larger files are refused.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The description of a session, in `session.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionDescription {
    /// The user that started it.
    pub uid: u32,
    /// Separates sessions of a user that run at the same time.
    pub slot: String,
    pub identity: SessionIdentity,
    pub place: RecordPlace,
    /// The directory that the record may not leave, for a user other than the agent's.
    #[serde(default)]
    pub permitted_directory: Option<PathBuf>,
    #[serde(default)]
    pub endpoints: StorageEndpoints,
    pub begin: Millis,
    /// The processes of the task and what they used; `None` if they are unknown.
    pub task: Option<TaskCheckpoint>,
    /// When the task ended; the session may continue.
    pub task_end: Option<Millis>,
    /// How the task ended, if the kernel reports it.
    pub task_exit: Option<TaskExit>,
    /// The end of the session that was requested. It survives a restart of the agent.
    pub requested_end: Option<RequestedEnd>,
    /// Whether everything is stored, with the summary.
    pub is_stored: bool,
}

impl SessionDescription {
    /// Returns the folder of the record.
    pub fn folder(&self) -> RecordPlace {
        self.place.join(&self.identity.folder())
    }
}

/// The requested end of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedEnd {
    pub reason: SessionEndReason,
    pub time: Millis,
    /// The exit status of the task, if the request contains it.
    pub exit_status: Option<i32>,
}

/// The reason why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionEndReason {
    /// `pegel session stop`.
    Stop,
    /// Another task started in the same slot.
    HandOver,
    /// The agent cannot outlive the task, and was stopped.
    AgentStopped,
}

/// The directory of one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionDir(PathBuf);

impl SessionDir {
    /// Creates the directory, readable by the agent's user only.
    pub(crate) fn create(path: PathBuf) -> io::Result<SessionDir> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&path)?;
        Ok(SessionDir(path))
    }

    pub(crate) fn existing(path: PathBuf) -> SessionDir {
        SessionDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.0.join(SPOOL_DIR)
    }

    pub(crate) fn read_description(&self) -> io::Result<SessionDescription> {
        let bytes = read_bounded(&self.0.join(DESCRIPTION_FILE))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    pub(crate) fn write_description(&self, description: &SessionDescription) -> io::Result<()> {
        let text = serde_json::to_vec(description)?;
        write_durably(&self.0, DESCRIPTION_FILE, &text)
    }

    /// Reads the credentials; without a file there are none.
    pub(crate) fn read_credentials(&self) -> io::Result<StorageCredentials> {
        match read_bounded(&self.0.join(CREDENTIALS_FILE)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(StorageCredentials::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the credentials with mode 0600.
    pub(crate) fn write_credentials(&self, credentials: &StorageCredentials) -> io::Result<()> {
        let text = serde_json::to_vec(credentials)?;
        write_durably(&self.0, CREDENTIALS_FILE, &text)
    }

    /// Removes what a stored record no longer needs: spool and credentials.
    pub(crate) fn remove_spool(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join(CREDENTIALS_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::remove_dir_all(self.spool()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("{} is too large", path.display())));
    }
    fs::read(path)
}
