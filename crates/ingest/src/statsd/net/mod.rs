//! The sockets of statsd: receiving lines and identifying their senders.

mod bind;
mod datagram_receiver;
mod datagrams;
mod kernel_drops;
mod origin_cache;
mod socket_errors;
mod stop_signal;
mod streams;
mod udp_receivers;
mod unix_sockets;

pub use bind::{BoundAddresses, StatsdBindError};
pub(crate) use bind::{BoundSockets, bind};
pub(crate) use datagrams::read_unix_datagrams;
pub(crate) use kernel_drops::KernelDropCounter;
pub(crate) use origin_cache::OriginCache;
pub(crate) use socket_errors::SocketErrors;
pub(crate) use stop_signal::StopSignal;
pub(crate) use streams::{StreamLimits, StreamListeners, read_streams};
pub(crate) use udp_receivers::{UdpReceivers, default_threads};
