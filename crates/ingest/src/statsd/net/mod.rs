//! Sockets: where lines come from, and whose they are.

mod bind;
mod datagrams;
mod drops;
mod origins;
mod receive;
mod receivers;
mod socket_errors;
mod stop;
mod streams;
mod unix;

pub use bind::{BindError, Bound};
pub(crate) use bind::{Sockets, bind};
pub(crate) use datagrams::read_unix_datagrams;
pub(crate) use drops::Drops;
pub(crate) use origins::Origins;
pub(crate) use receivers::{Receivers, default_threads};
pub(crate) use socket_errors::SocketErrors;
pub(crate) use stop::Stop;
pub(crate) use streams::{Listeners, StreamLimits, read_streams};
