//! The nodes below this agent, as readers see them, and this agent as the nodes above see it.
//!
//! ```text
//! route ──► TreeAccess ──► ChosenNodes ──► NodeTree::fan_out   POST /tree/select to the children
//!                              │
//!            TreeSource: own store + nodes, with the label `host`
//!
//! a parent ──► LocalServer ──► router ──► /tree/select         answered from a TreeSource, too
//! ```
//!
//! Reading blocks: it runs on the query threads. Nodes that do not answer in time are left out and
//! recorded; every response of a parent lists them ([`NodeRecord`]).

mod aggregation;
mod annotations;
mod chosen_nodes;
mod host_label;
mod jobs;
mod mpi_ranks;
mod node_index;
mod node_record;
mod node_series;
mod promql_source;
mod request_tree;
mod select_plan;
mod selected_series;
mod text_list;
mod tree_server;
mod tree_source;

pub(crate) use aggregation::{AGGREGATE_TARGET, aggregate_nodes};
pub(crate) use annotations::{
    ANNOTATIONS_TARGET, NodeAnnotation, NodeAnnotations, all_annotations, annotations_below,
};
pub(crate) use chosen_nodes::{ChosenNodes, FanOutLimits, SELECT_TARGET};
pub(crate) use host_label::HOST;
pub(crate) use jobs::{JOBS_TARGET, JobRequest, NodeJob, NodeJobs, jobs_of_nodes};
pub(crate) use mpi_ranks::{MPI_TARGET, MpiRankList, MpiRequest, ranks_of_nodes};
pub(crate) use node_index::NodeChoice;
pub(crate) use node_record::{NODES_HEADER, NodeRecord, header_value as node_record_header};
pub use node_series::{NodeSeries, NodeSeriesNow};
pub(crate) use promql_source::PromqlSource;
pub(crate) use request_tree::{OwnSeriesOnly, RequestTree, TreeAccess, TreeDeadline};
pub(crate) use select_plan::{SelectPlan, SelectView};
pub(crate) use selected_series::{latest_columns, to_selected};
pub(crate) use text_list::{
    TEXTS_TARGET, TextKind, TextList, TextRequest, own_texts, texts_of_nodes,
};
pub(crate) use tree_server::{TreeServer, passed_headers, returned_headers};
pub(crate) use tree_source::{NodeLatest, TreeSource};
