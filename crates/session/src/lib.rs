//! A session records one task: its identity, the blocks of its record that are not stored yet, and
//! the storage that they are sent to.
//!
//! ```text
//! samples ─► SessionRecord ─► RecordSpool ─► RecordUploader ─► RecordStorage
//!            makes blocks     local disk     one at a time     files, blobs, objects
//! ```
//!
//! [`SessionManager`] owns all sessions of an agent. Each has a thread that makes blocks
//! (`recorder.rs`) and one that stores them (`upload_thread.rs`): storage that is slow or
//! unreachable never delays sampling.
//!
//! Guarantees:
//! - A block that [`SessionRecord`] accepted survives kill -9 and a power failure.
//! - Each block is stored once and in order, even if requests or responses are lost or the agent is
//!   killed.
//! - A second process cannot write the same record: the spool is locked, and storage of another
//!   length than expected is reported, never overwritten.
//! - The spool is bounded. What it drops are the oldest samples; the record shows the gap.

mod aggregate;
mod description;
mod identity;
mod manager;
mod recorder;
mod requests;
mod sample_source;
mod session;
mod session_limits;
mod session_record;
mod settings;
mod spool;
pub mod task;
mod upload;
mod upload_thread;
mod workflow_engines;

pub use description::{RequestedEnd, SessionDescription, SessionEndReason};
pub use identity::{CallerContext, RequestedNames, SessionIdentity, path_component};
pub use manager::{
    DEFAULT_SLOT, SessionContext, SessionHost, SessionManager, SlotRecording, is_recorded_in,
};
/// The clients of storage, which the archive uses too.
pub use pegel_storage as storage;
pub use requests::{
    CredentialsRequest, SessionCaller, SessionError, SessionState, SessionStatus, StartRequest,
    StopRequest,
};
pub use session_record::{SessionRecord, SessionRecordError};
pub use settings::SessionSettings;
pub use spool::{RecordSpool, SharedSpool, SpoolError, UploadPosition};
pub use upload::{RecordUploader, UploadState, UploadStatus, UploadStep};
