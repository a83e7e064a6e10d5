//! Where the ranks of MPI programs are, and which of them the others wait for: pure functions.
//!
//! `ingest` fills in [`MpiRank`]s from lanes, the server collects those of all nodes of a tree, and
//! [`analyse`] compares them: the ranks of one start of a program form an [`MpiJob`], with one
//! [`StuckFinding`] for each operation in which ranks have been waiting for long. The texts are
//! those that `pegel stuck` and the page show.
//!
//! Ids and numbers of communicators agree between ranks: see `pegel_lane::mpi_state`. Everything
//! here comes from programs, and may be wrong or hostile: no input makes the analysis fail, and its
//! time is linear in the number of ranks times communicators.

mod comm_names;
mod finding;
mod grouping;
mod job;
mod late;
mod position;
mod rank;
mod text;

pub use finding::StuckFinding;
pub use job::{JobRank, MpiJob, analyse};
pub use late::{LateRank, late_rank};
pub use rank::{CommId, MpiRank, RankComm, RankOperation, RankPhase, RankThread};

#[cfg(test)]
mod tests;
