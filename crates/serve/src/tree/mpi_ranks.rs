//! MPI processes of all nodes: each node sends its own, a parent also those below it.

use pegel_mpi_state::MpiRank;
use pegel_store::QueryError;
use serde::{Deserialize, Serialize};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};

/// The request for MPI processes; only through the tree.
pub(crate) const MPI_TARGET: &str = "/tree/mpi";

/// A request as it is sent to nodes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MpiRequest {
    /// Only these nodes; none: all nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// The response of a node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MpiRankList {
    pub ranks: Vec<MpiRank>,
    /// Nodes below that did not answer.
    #[serde(default)]
    pub late: Vec<String>,
}

/// Adds the processes of the chosen nodes below this agent to its own. Blocks.
pub(crate) fn ranks_of_nodes(
    mut ranks: Vec<MpiRank>,
    nodes: &ChosenNodes,
    limits: &FanOutLimits,
) -> Result<Vec<MpiRank>, QueryError> {
    let any = |_: &str| true;
    let answers = nodes.ask(&any, limits, |names| {
        let request = MpiRequest {
            nodes: names.to_vec(),
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        (MPI_TARGET.to_owned(), body.into())
    })?;
    for answer in answers {
        let Ok(list) = serde_json::from_slice::<MpiRankList>(&answer.body) else {
            tracing::warn!(child = answer.child, "malformed MPI processes of a node");
            nodes.miss_child(&answer.child, &any);
            continue;
        };
        nodes.miss(&answer.child, list.late.iter().map(String::as_str), &any);
        for mut rank in list.ranks {
            let node = std::mem::take(&mut rank.node);
            if let Some(node) = nodes.checked_host(&answer, node, &any) {
                rank.node = node;
                ranks.push(rank);
            }
        }
    }
    Ok(ranks)
}
