//! The reasons why storage does not accept a block.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The kind of a problem, which determines what a user must do and when a retry makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageProblemKind {
    /// No response: network, name resolution, TLS, a lost request.
    Unreachable,
    /// The storage limits the rate of requests (429, 503).
    Throttled,
    /// The storage failed (500, 502, 504, …).
    ServerError,
    /// The credentials are wrong, have expired, or do not permit writing.
    Credentials,
    /// The container or bucket does not exist.
    MissingContainer,
    /// The disk of a local or shared directory is full.
    DiskFull,
    /// The clock of this node differs from that of the storage, which rejects the signature.
    ClockSkew,
    /// The part has content of another process.
    OtherWriter,
    /// The storage rejected the request for another reason.
    Rejected,
}

impl StorageProblemKind {
    pub const ALL: [StorageProblemKind; 9] = [
        StorageProblemKind::Unreachable,
        StorageProblemKind::Throttled,
        StorageProblemKind::ServerError,
        StorageProblemKind::Credentials,
        StorageProblemKind::MissingContainer,
        StorageProblemKind::DiskFull,
        StorageProblemKind::ClockSkew,
        StorageProblemKind::OtherWriter,
        StorageProblemKind::Rejected,
    ];

    /// Returns the name used in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            StorageProblemKind::Unreachable => "unreachable",
            StorageProblemKind::Throttled => "throttled",
            StorageProblemKind::ServerError => "server-error",
            StorageProblemKind::Credentials => "credentials",
            StorageProblemKind::MissingContainer => "missing-container",
            StorageProblemKind::DiskFull => "disk-full",
            StorageProblemKind::ClockSkew => "clock-skew",
            StorageProblemKind::OtherWriter => "other-writer",
            StorageProblemKind::Rejected => "rejected",
        }
    }

    /// Returns what a user can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            StorageProblemKind::Unreachable => "check network, address and certificates",
            StorageProblemKind::Throttled | StorageProblemKind::ServerError => {
                "nothing to do; blocks wait in the spool"
            }
            StorageProblemKind::Credentials => {
                "pass valid credentials with `pegel session credentials`"
            }
            StorageProblemKind::MissingContainer => "create the container or bucket",
            StorageProblemKind::DiskFull => "free space on the disk of the record",
            StorageProblemKind::ClockSkew => "set the clock of this node",
            StorageProblemKind::OtherWriter => {
                "start the session with another --attempt; the record is left as it is"
            }
            StorageProblemKind::Rejected => "check the place of the record",
        }
    }

    /// Whether a retry succeeds without an action of the user.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            StorageProblemKind::Unreachable
                | StorageProblemKind::Throttled
                | StorageProblemKind::ServerError
        )
    }
}

/// A problem. Its text never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageProblem {
    pub kind: StorageProblemKind,
    /// The problem and its place.
    pub text: String,
    /// The wait that the storage requested (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl StorageProblem {
    pub fn new(kind: StorageProblemKind, text: impl Into<String>) -> StorageProblem {
        StorageProblem {
            kind,
            text: text.into(),
            retry_after: None,
        }
    }
}

impl fmt::Display for StorageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.text, self.kind.advice())
    }
}

impl std::error::Error for StorageProblem {}
