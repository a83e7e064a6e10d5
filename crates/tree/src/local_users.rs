//! The users of this machine who may attach without a token or a certificate.

use std::fmt;
use std::net::SocketAddr;

/// What the kernel and the configuration say about users. Implemented by the agent, with the rule
/// that its server applies to loopback.
pub trait LocalUserPolicy: Send + Sync + fmt::Debug {
    /// Returns the owner of the client's end of a connection over loopback, if the kernel reports
    /// it. Valid only if our end is still connected afterwards.
    fn owner_of(&self, client: SocketAddr, server: SocketAddr) -> Option<u32>;

    /// Returns whether this is the agent's user, root, or a user in `allow_users`.
    fn admits(&self, uid: u32) -> bool;
}
