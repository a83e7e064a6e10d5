//! What `pegel job` needs to know before it starts anything: the nodes of the allocation, the
//! launcher of the site, the network between the nodes, the place of every node in the tree, and
//! the file that tells the agents all of it. Nothing here starts a process or keeps state, except
//! that `flux` is asked for its hosts.

mod allocation;
mod host_list;
mod job_file;
mod launcher;
mod login_host;
mod network;
mod tree_shape;

pub use allocation::{Allocation, AllocationError, AllocationRequest, Site, own_node};
pub use host_list::{HostListError, NODES_MAX, expand_host_list, parse_host_file};
pub use job_file::{JOB_FILE_BYTES_MAX, JobFile, JobFileError, SecretText};
pub use launcher::{
    AgentInvocation, LaunchCommand, Launcher, LauncherError, LauncherKind, MpiFlavour, shell_quoted,
};
pub use login_host::{Tunnel, login_host};
pub use network::{LinkAddress, NetworkError, choose_address, parse_links};
pub use tree_shape::{ParentOfNode, is_parent, parent_of};
