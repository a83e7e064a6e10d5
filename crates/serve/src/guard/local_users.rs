//! Local users who may write, for inputs without HTTP requests.
use std::net::SocketAddr;

use pegel_config::UserRef;

use super::peer::PeerLookup;
use super::{GuardError, uid_of};

/// The users of this machine who may write, for inputs that have no requests to guard, such as
/// statsd.
#[derive(Debug)]
pub struct LocalUsers {
    own_uid: u32,
    allowed: Vec<u32>,
    peer_lookup: PeerLookup,
}

impl LocalUsers {
    pub fn new(allow_users: &[UserRef]) -> Result<LocalUsers, GuardError> {
        Ok(LocalUsers {
            own_uid: rustix::process::geteuid().as_raw(),
            allowed: allow_users.iter().map(uid_of).collect::<Result<_, _>>()?,
            peer_lookup: PeerLookup::new(),
        })
    }

    /// The owner of the client's end of a loopback connection. Valid only if our end is still
    /// connected afterwards: once released, the port may belong to another user.
    pub fn owner_of(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        self.peer_lookup.owner_of(client, server)
    }

    /// The uids of all admitted users.
    pub fn uids(&self) -> Vec<u32> {
        let mut uids = vec![self.own_uid, 0];
        uids.extend(&self.allowed);
        uids
    }

    /// Whether this is the agent's user, root, or a user in `allow_users`.
    pub fn admits(&self, uid: u32) -> bool {
        let is_mapped = self.peer_lookup.is_mapped_uid(uid);
        is_mapped && (uid == 0 || uid == self.own_uid || self.allowed.contains(&uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_are_named_may_write() {
        let own = rustix::process::geteuid().as_raw();
        let users = LocalUsers::new(&[UserRef::Uid(4242)]).expect("a number needs no lookup");
        assert!(users.admits(own) && users.admits(0) && users.admits(4242));
        assert!(!users.admits(own ^ 4711) && !users.admits(u32::MAX));
    }
}
