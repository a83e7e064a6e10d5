//! What statsd must ask others: who holds a port, whose a connection is, and who may write.

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

/// Whose a connection over loopback is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackPeer {
    Uid(u32),
    /// The kernel does not say.
    Unknown,
}

/// The agent answers; other crates know.
pub trait StatsdPeerPolicy: Send + Sync + fmt::Debug {
    /// Who keeps this address busy, in words.
    fn port_holder(&self, protocol: TransportProtocol, address: SocketAddr) -> Option<String>;

    /// Whose the other end of a TCP connection over loopback is.
    fn peer_owner(&self, local: SocketAddr, peer: SocketAddr) -> LoopbackPeer;

    /// Whether programs of this user may write here.
    fn allows_user(&self, uid: u32) -> bool;
}
