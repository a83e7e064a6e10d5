//! What statsd must ask others: who holds a port, whose a connection is, and who may write.

use std::fmt;
use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        })
    }
}

/// Whose a connection over loopback is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Uid(u32),
    /// The kernel does not say.
    Nobody,
}

/// The agent answers; other crates know.
pub trait Door: Send + Sync + fmt::Debug {
    /// Who keeps this address busy, in words.
    fn holder(&self, protocol: Protocol, address: SocketAddr) -> Option<String>;

    /// Whose the other end of a TCP connection over loopback is.
    fn owner(&self, local: SocketAddr, peer: SocketAddr) -> Peer;

    /// Whether programs of this user may write here.
    fn admits(&self, uid: u32) -> bool;
}
