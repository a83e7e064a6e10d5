//! The state of one rank, as a node reports it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a communicator: the same on all members. In JSON 16 hexadecimal digits, since numbers
/// of 64 bits are not exact in JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommId(pub u64);

impl CommId {
    /// `MPI_COMM_WORLD`.
    pub const WORLD: CommId = CommId(0);
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for CommId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CommId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CommId, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id = u64::from_str_radix(&text, 16);
        id.map(CommId)
            .map_err(|_| serde::de::Error::custom("not the id of a communicator"))
    }
}

/// The phase of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankPhase {
    /// Before the end of `MPI_Init`.
    Starting,
    Running,
    /// `MPI_Finalize` has returned.
    Finalized,
}

/// One process of an MPI program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MpiRank {
    /// Empty until the node is known.
    #[serde(default)]
    pub node: String,
    pub pid: u32,
    /// The user who owns the lane.
    pub uid: u32,
    pub user: String,
    /// Empty if there is none.
    pub job: String,
    pub command: String,
    /// The rank in `MPI_COMM_WORLD`, or the launcher's before that is known.
    pub rank: Option<u32>,
    pub size: Option<u32>,
    /// The same for all processes of one start of the program; 0 if unknown.
    pub launch: CommId,
    pub parent_pid: u32,
    pub phase: RankPhase,
    /// Whether the process is gone.
    pub has_ended: bool,
    /// Seconds since its lane was created.
    pub age: f64,
    /// Seconds in blocking collectives, including the current one.
    pub collective_seconds: f64,
    /// The state of the process, as in `ps`: R, S, D, T, t, Z; `None` if it is not visible.
    pub state: Option<char>,
    /// The kernel function in which it sleeps.
    pub wchan: Option<String>,
    pub threads: Vec<RankThread>,
    pub comms: Vec<RankComm>,
}

/// A thread that has called MPI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankThread {
    pub id: u32,
    /// The function it is in, or was in last.
    pub function: String,
    pub is_inside: bool,
    /// Seconds since it entered or left the function, if known.
    pub seconds: Option<f64>,
    pub operation: RankOperation,
}

/// What a thread does in the function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankOperation {
    Other,
    PointToPoint {
        comm: Option<CommId>,
        /// The rank in the communicator; `None`: any, or none.
        peer: Option<u32>,
        tag: Option<u32>,
    },
    Collective {
        comm: CommId,
        number: u64,
    },
    Waits {
        comm: CommId,
        number: u64,
        /// The function that began the operation.
        begun_by: String,
        /// How many times the persistent request was started; 0 if it is not persistent.
        starts: u32,
    },
}

/// A communicator of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankComm {
    pub id: CommId,
    pub parent: CommId,
    pub created_by: String,
    pub created_number: u64,
    /// The rank in `MPI_COMM_WORLD` of its first member.
    pub first: u32,
    pub size: u32,
    /// The rank of the process in it.
    pub rank: u32,
    pub is_self: bool,
    /// The number of the last collective; 0 if there was none.
    pub last_number: u64,
    pub last_function: String,
}

impl MpiRank {
    pub fn comm(&self, id: CommId) -> Option<&RankComm> {
        self.comms.iter().find(|comm| comm.id == id)
    }
}
