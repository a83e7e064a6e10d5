//! The tree of agents. A child keeps one gRPC stream to its parent: it sends the values of its
//! series at each tick and answers the parent's requests. A parent reduces the values of all nodes
//! below it, writes the results to its store, and passes requests down.
//!
//! Nothing of it runs unless `tree.accept` or `tree.parents` is set. Peers are not trusted: every
//! message is checked, every queue is bounded, and a child that misbehaves loses only its own
//! stream.

mod certificate_name;
pub mod certificates;
mod child;
mod context;
mod credentials;
mod figures;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod instance_id;
mod local_users;
mod messages;
mod overview;
mod parent;
mod problems;
mod settings;
mod tick_reader;
mod tick_thread;
mod transport;
mod tree;

pub use child::ParentContact;
pub use credentials::TreeStartError;
pub use figures::{NodeFigures, TreeFigures};
pub use local_users::LocalUserPolicy;
pub use settings::{
    CHILDREN_MAX, CertificateFingerprint, DEFAULT_PORT, ParentAddress, TreeSettings,
};
pub use tick_reader::{SelectPartialsError, select_partials};
pub use tree::{RunningTree, Tree, TreeCredentialReloader, TreeOptions};
