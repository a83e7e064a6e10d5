//! Wiring only: configuration → running node → orderly stop.
//!
//! [`load`] reads file, environment and command line into a [`Config`]; [`Plan`] settles what depends
//! on the machine; [`Node`] opens the store, binds the servers, starts the sampler and connects them.

mod check;
mod config;
mod descriptors;
mod endpoint;
mod hangup;
mod log_output;
mod memory;
mod memory_limit;
mod node;
mod notify;
mod once;
mod own;
mod place;
mod plan;
mod private_files;
mod remove;
mod shown;
mod signals;
mod snapshots;
mod source;
mod sources;
mod statsd;
mod survey;
mod until;
pub mod words;

pub use check::check;
pub use config::{Config, Dragon, Own};
pub use log_output::LogOutput;
pub use node::{Node, StartError};
pub use once::{Sample, sample_once};
pub use pegel_collect::collectors::timex::is_synchronised;
pub use pegel_collect::{CollectorStatus, State as CollectorState};
pub use pegel_serve::socket::SYSTEM_SOCKET;
pub use pegel_serve::{Holder, Owner, holder_of, sock_diag_answers, udp_holder_of};
pub use place::{FileSystem, file_system};
pub use plan::Plan;
pub use signals::{StopSignals, on_stop_signal};
pub use snapshots::snapshot_subject;
pub use sources::{Argument, Environment, Loaded, load};
pub use survey::survey;
pub use until::{Until, UntilError};

/// Where clients look for an agent that is given no path: the user's own places, then the system's.
pub use pegel_serve::socket::default_socket_paths as usual_sockets;
