//! The server: HTTP on TCP and, with the same routes, on a UNIX socket, and the line protocols of
//! both.
//!
//! The agent calls it with the store and the inputs, which handle what clients send.
//! [`ServeSettings`] bounds every resource that a client can use: connections, the time and size of
//! a request's head, the time to produce a response, and the memory of all responses that are being
//! sent. The guard alone decides on access. Every refusal is counted by reason. A slow reader costs
//! one connection and nothing else; it never delays sampling.

mod agent_handles;
mod api_error;
mod bind;
mod body_memory;
mod budgeted_buffer;
mod check_files;
mod connection;
mod connection_limit;
mod content_negotiation;
mod finished_response;
#[doc(hidden)] // For fuzz/ only.
pub mod fuzzing;
mod grpc;
mod guard;
mod http2;
mod job_info;
mod job_query;
mod json_response;
mod line_protocol;
mod listen;
mod participants;
mod port_owner;
mod query_parameters;
mod query_slots;
mod query_threads;
mod refusals;
mod request_executor;
mod request_history;
mod request_progress;
mod routes;
mod sender_refusals;
mod server;
mod server_context;
mod settings;
pub mod socket;
mod time_parameters;
mod tls;
mod tree;

pub use agent_handles::{
    AgentHandles, ChargeBytes, NoSessions, ProcessesUnavailable, RemoteMetric, SessionCall,
    SessionCalls, SessionClient, SessionRefusal, StatusSource,
};
pub use bind::ServerBindError;
pub use check_files::check_files;
pub use guard::{Access, GuardError, LocalUsers, TokenError, TokenSource, is_sock_diag_available};
pub use job_info::JOB_INFO;
pub use pegel_credentials::TlsError;
pub use port_owner::{OwningProcess, PortOwner, tcp_port_owner, udp_port_owner};
pub use routes::InputRoute;
pub use server::{BoundServer, CredentialReloader, RunningServer};
pub use settings::{PromqlSettings, ServeLimits, ServeSettings, TlsSettings};
pub use tls::TlsFiles;
pub use tree::{NodeSeries, NodeSeriesNow};
