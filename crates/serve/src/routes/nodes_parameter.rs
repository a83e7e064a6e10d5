//! The parameter `nodes`: of which nodes a parent returns values, and whether each of them.

use crate::api_error::ApiError;
use crate::query_parameters::QueryParameters;
use crate::tree::NodeChoice;

/// The value of `nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodesParameter {
    /// Not given.
    Absent,
    /// `each`: every series of every node.
    Each,
    /// Every series of some nodes.
    Named(NodeChoice),
}

impl NodesParameter {
    pub(super) fn parse(parameters: &QueryParameters) -> Result<NodesParameter, ApiError> {
        match parameters.single("nodes")? {
            None => Ok(NodesParameter::Absent),
            Some("each") => Ok(NodesParameter::Each),
            Some(list) => {
                let names = list.split(',').map(str::trim);
                let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
                Ok(NodesParameter::Named(NodeChoice::named(names)))
            }
        }
    }

    /// Returns the nodes that are read.
    pub(super) fn choice(&self) -> NodeChoice {
        match self {
            NodesParameter::Absent | NodesParameter::Each => NodeChoice::All,
            NodesParameter::Named(choice) => choice.clone(),
        }
    }

    /// Checks the names on an agent without a tree: only its own name is known.
    pub(super) fn check_single(&self, node: &str) -> Result<(), ApiError> {
        let NodesParameter::Named(NodeChoice::Named(names)) = self else {
            return Ok(());
        };
        match names.iter().find(|name| *name != node) {
            None => Ok(()),
            Some(name) => Err(ApiError::unknown_node(name)),
        }
    }
}
