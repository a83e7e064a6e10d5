//! Questions that statsd passes to the agent: which process holds a port, which user owns a
//! connection, and which users may write.

use std::fmt;
use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportProtocol {
    Udp,
    Tcp,
}

impl fmt::Display for TransportProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportProtocol::Udp => "udp",
            TransportProtocol::Tcp => "tcp",
        })
    }
}

/// The owner of a connection over loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackPeer {
    Uid(u32),
    /// The kernel does not report the owner.
    Unknown,
}

/// Implemented by the agent, from other crates.
pub trait StatsdPeerPolicy: Send + Sync + fmt::Debug {
    /// Returns a description of the process that holds this address, for an error message.
    fn port_holder(&self, protocol: TransportProtocol, address: SocketAddr) -> Option<String>;

    /// Returns the owner of the other end of a TCP connection over loopback.
    fn peer_owner(&self, local: SocketAddr, peer: SocketAddr) -> LoopbackPeer;

    /// Returns whether programs of this user may write.
    fn allows_user(&self, uid: u32) -> bool;
}
