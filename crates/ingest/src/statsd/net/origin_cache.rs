//! Maps a datagram or a connection to its sender, and remembers the result.
//!
//! Each receiving thread has its own cache, so that a known sender costs no lock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pegel_metric::Input;

use super::super::peer_policy::StatsdPeerPolicy;
use super::super::table::LineOrigin;
use super::datagram_receiver::DatagramSource;
use crate::admission::Admission;
use crate::senders::{Sender, UNKNOWN_SENDER};

/// The most senders that a thread caches; then the cache is cleared.
const CACHED_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SenderIdentity {
    Host(IpAddr),
    User(u32),
    Unknown,
}

impl SenderIdentity {
    /// Maps all loopback addresses to one sender: a program can send from any of the 2^24 addresses
    /// of 127/8.
    #[inline]
    fn host(ip: IpAddr) -> SenderIdentity {
        if ip.is_loopback() {
            SenderIdentity::Host(IpAddr::V4(Ipv4Addr::LOCALHOST))
        } else {
            SenderIdentity::Host(ip)
        }
    }
}

#[derive(Debug)]
pub(crate) struct OriginCache {
    admission: Arc<Admission>,
    peer_policy: Arc<dyn StatsdPeerPolicy>,
    cached: HashMap<SenderIdentity, (Arc<Sender>, bool)>,
    /// Consecutive datagrams mostly have the same origin.
    last: Option<(SenderIdentity, LineOrigin, bool)>,
}

impl OriginCache {
    pub(crate) fn new(
        admission: Arc<Admission>,
        peer_policy: Arc<dyn StatsdPeerPolicy>,
    ) -> OriginCache {
        OriginCache {
            admission,
            peer_policy,
            cached: HashMap::new(),
            last: None,
        }
    }

    /// Returns the sender of a datagram, and whether it may write.
    #[inline]
    pub(crate) fn origin_of_datagram(&mut self, from: DatagramSource) -> (&LineOrigin, bool) {
        let (who, id) = match from {
            DatagramSource::Inet(address) => {
                (SenderIdentity::host(address.ip()), socket_id(address))
            }
            DatagramSource::Unix { pid, uid } => {
                let id = u64::from(pid as u32) | LineOrigin::PROCESS;
                (SenderIdentity::User(uid), id)
            }
            DatagramSource::Unknown => (SenderIdentity::Unknown, 0),
        };
        self.get(who, id)
    }

    #[inline]
    pub(crate) fn get(&mut self, who: SenderIdentity, id: u64) -> (&LineOrigin, bool) {
        let is_last = self.last.as_ref().is_some_and(|(last, _, _)| *last == who);
        if !is_last {
            let (sender, may_write) = self.look_up(who);
            self.last = Some((who, LineOrigin { sender, id }, may_write));
        }
        let Some((_, origin, may_write)) = &mut self.last else {
            unreachable!("it was set above");
        };
        origin.id = id;
        (origin, *may_write)
    }

    fn look_up(&mut self, who: SenderIdentity) -> (Arc<Sender>, bool) {
        if let Some((sender, may_write)) = self.cached.get(&who) {
            return (sender.clone(), *may_write);
        }
        if self.cached.len() >= CACHED_MAX {
            self.cached.clear();
        }
        let (name, may_write) = match who {
            SenderIdentity::Host(ip) => (ip.to_string(), true),
            SenderIdentity::User(uid) => (format!("uid {uid}"), self.peer_policy.allows_user(uid)),
            SenderIdentity::Unknown => (UNKNOWN_SENDER.to_owned(), false),
        };
        let sender = self.admission.sender(Input::Statsd, &name);
        self.cached.insert(who, (sender.clone(), may_write));
        (sender, may_write)
    }
}

/// Returns an id that distinguishes sockets: address and port of an IPv4 socket fit, those of IPv6
/// are hashed.
fn socket_id(address: std::net::SocketAddr) -> u64 {
    let port = u64::from(address.port());
    match address.ip() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()) << 16 | port,
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            (bits as u64 ^ ((bits >> 64) as u64).rotate_left(21))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ port
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn all_of_loopback_is_one_sender_with_many_sockets() {
        let who = |address: &str| {
            let address: SocketAddr = address.parse().expect("valid");
            (SenderIdentity::host(address.ip()), socket_id(address))
        };
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.9.8.7:1", "[::1]:1"].map(who);
        assert!(all.iter().all(|(who, _)| *who == all[0].0), "{all:?}");
        let ids: std::collections::HashSet<u64> = all.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids.len(), all.len(), "cumulative counters do not mix");
        assert_ne!(who("192.0.2.1:1").0, who("192.0.2.2:1").0);
    }
}
