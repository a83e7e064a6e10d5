//! The agent: connects all components, from the configuration to a running node and an orderly
//! stop.
//!
//! [`load_config`] reads file, environment and command line into a [`Config`]; [`AgentSettings`]
//! applies what depends on the machine; [`RunningAgent`] opens the store, binds the servers, starts
//! the sampler and connects them. It contains no logic of its own beyond that.

mod agent_settings;
mod agent_status;
mod allocator;
mod archive;
mod check_config;
mod config;
mod config_json;
mod config_sources;
mod descriptors;
mod endpoint_file;
mod graphite;
mod hangup;
mod history;
mod hosted_inputs;
pub mod human_text;
mod jobs;
mod log_output;
mod marks;
mod memory_limit;
mod otlp;
mod private_files;
mod probe_collectors;
mod pull_metrics;
mod remote_write;
mod remove_store;
mod rules;
mod running_agent;
mod sample_import;
mod sample_once;
mod service_notifier;
mod sessions;
mod signals;
mod snapshots;
mod statsd;
mod stop_condition;
mod store_dir;
mod store_metrics;
mod tree;

pub use agent_settings::AgentSettings;
pub use check_config::{check_config, config_warnings};
pub use config::{AgentConfig, Config, DragonConfig, LimitsConfig};
pub use config_sources::{ConfigArgument, EnvironmentLookup, LoadedConfig, load_config};
pub use log_output::LogOutput;
pub use pegel_collect::collectors::timex::is_synchronised;
pub use pegel_collect::{CollectorState, CollectorStatus};
pub use pegel_serve::socket::SYSTEM_SOCKET;
pub use pegel_serve::{PortOwner, is_sock_diag_available, tcp_port_owner, udp_port_owner};
pub use pegel_tree::ParentContact;
pub use probe_collectors::probe_collectors;
pub use running_agent::{AgentStartError, RunningAgent};
pub use sample_import::{SampleImport, SampleImportError};
pub use sample_once::{OnceSample, sample_once};
pub use signals::{StopSignals, on_stop_signal};
pub use snapshots::snapshot_options;
pub use stop_condition::{StopCondition, StopConditionError};
pub use store_dir::{FileSystemKind, file_system_kind};

/// Where clients look for an agent without a given path: the user's own sockets, then the system's.
pub use pegel_serve::socket::default_socket_paths as usual_sockets;
