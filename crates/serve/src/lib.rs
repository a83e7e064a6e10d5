//! Serving what the store holds: HTTP on TCP and, with the same routes, on a UNIX socket.
//!
//! Everything a client can do is bounded by [`Settings`]: connections, the time for a request's
//! head, its size, the time for an answer, the memory that answers take while they are read.
//! Who may ask for what is decided in one place, the guard. What is refused is counted by reason.
//! A slow reader costs one connection and nothing else.

mod answers;
mod app;
mod bind;
mod bodies;
mod check;
mod config;
mod connection;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod holder;
mod limited;
mod lines;
mod listen;
mod moment;
mod negotiate;
mod owner;
mod parameters;
mod query_threads;
mod refusals;
mod routes;
mod seats;
mod server;
mod settings;
mod slots;
pub mod socket;
mod tls;
mod watched;
mod writes;

pub use app::{App, StatusSource};
pub use bind::BindError;
pub use check::check;
pub use config::{Places, Tls};
pub use guard::{GuardError, LocalUsers, TokenError, TokenSource, sock_diag_answers};
pub use holder::{Holder, Process, holder_of, udp_holder_of};
pub use owner::Owner;
pub use pegel_run::{DESCRIPTORS_PER_PROGRAM, PROGRAMS_MAX};
pub use server::{Reload, Running, Server};
pub use settings::Settings;
pub use tls::{TlsError, TlsFiles};
