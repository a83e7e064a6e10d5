//! The users of this machine who may use the agent.
use std::net::SocketAddr;

use nix::unistd;
use pegel_config::UserRef;

use super::peer::PeerLookup;
use super::{AccessRights, GuardError};

/// The agent's user, root, and the users in `allow_users`. The guard and inputs that have no
/// requests to guard, such as statsd, apply the same rule.
#[derive(Debug)]
pub struct LocalUsers {
    pub(super) own_uid: u32,
    allowed: Vec<u32>,
    pub(super) peer_lookup: PeerLookup,
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
        self.peer_lookup.is_mapped_uid(uid) && self.rights_of(uid) > AccessRights::None
    }

    pub(super) fn rights_of(&self, uid: u32) -> AccessRights {
        if uid == 0 || uid == self.own_uid {
            AccessRights::Owner
        } else if self.allowed.contains(&uid) {
            AccessRights::User
        } else {
            AccessRights::None
        }
    }
}

pub(super) fn uid_of(user: &UserRef) -> Result<u32, GuardError> {
    let name = match user {
        UserRef::Uid(uid) => return Ok(*uid),
        UserRef::Name(name) => name,
    };
    match unistd::User::from_name(name) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) => Err(GuardError::UnknownUser { name: name.clone() }),
        Err(error) => Err(GuardError::Lookup {
            name: name.clone(),
            source: error.into(),
        }),
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
