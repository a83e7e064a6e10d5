//! Identifies the client of a connection.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::sock_diag::SockDiag;
use pegel_config::UserInfo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerIdentity {
    /// A local user, as reported by the kernel.
    User(u32),
    /// A local client whose owner the kernel does not report.
    Unknown,
    /// Another machine. `certified`: it presented a certificate that the configured authority
    /// signed.
    Remote { address: IpAddr, certified: bool },
    /// A client of an address in `forwarded`: any user of the machine where the tunnel begins.
    Forwarded,
    /// A parent, which passes on the request of a client and the rights that the client has there.
    ThroughTree,
    /// A parent that needs data for a response of its own.
    Tree,
}

impl PeerIdentity {
    /// The name under which samples of this peer are counted.
    pub(crate) fn sender_name(&self) -> String {
        match self {
            PeerIdentity::User(uid) => format!("uid {uid}"),
            PeerIdentity::Unknown => "unknown".to_owned(),
            PeerIdentity::Remote { address, .. } => address.to_string(),
            PeerIdentity::Forwarded => "forwarded".to_owned(),
            PeerIdentity::ThroughTree | PeerIdentity::Tree => "tree".to_owned(),
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerIdentity::User(uid) => write!(f, "user {}", UserInfo::lookup(*uid)),
            PeerIdentity::Unknown => f.write_str("a local connection with unknown owner"),
            PeerIdentity::Remote { address, .. } => address.fmt(f),
            PeerIdentity::Forwarded => f.write_str("a client of a forwarded port"),
            PeerIdentity::ThroughTree => f.write_str("a client of the agent's parent"),
            PeerIdentity::Tree => f.write_str("the agent's parent"),
        }
    }
}

/// Identifies peers; called once per connection.
#[derive(Debug)]
pub(crate) struct PeerLookup {
    sock_diag: SockDiag,
    /// The uid that the kernel reports for every user without a mapping in this user namespace. It
    /// identifies no one.
    overflow_uid: Option<u32>,
}

impl PeerLookup {
    pub(super) fn new() -> PeerLookup {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        let overflow = overflow.and_then(|text| text.trim().parse().ok());
        PeerLookup {
            sock_diag: SockDiag::default(),
            overflow_uid: overflow.filter(|_| !covers_all_users(&map)),
        }
    }

    pub(super) fn finds_listener(&self, listener: SocketAddr) -> bool {
        self.sock_diag.finds_listener(listener)
    }

    /// The user of a UNIX socket's client, as of its connect().
    pub(super) fn peer_on_unix(&self, stream: &tokio::net::UnixStream) -> PeerIdentity {
        match stream.peer_cred() {
            Ok(credentials) => self.peer_of_uid(credentials.uid()),
            Err(_) => PeerIdentity::Unknown,
        }
    }

    pub(super) fn peer_on_tcp(&self, stream: &tokio::net::TcpStream) -> io::Result<PeerIdentity> {
        let (client, server) = (stream.peer_addr()?, stream.local_addr()?);
        if !is_loopback(client.ip()) || !is_loopback(server.ip()) {
            return Ok(PeerIdentity::Remote {
                address: client.ip().to_canonical(),
                certified: false,
            });
        }
        let owner = self.sock_diag.owner_of(client, server);
        // A client can reset its connection and leave its port to another user, whose socket the
        // query would then find. While our end is connected, no other socket can have that port.
        stream.peer_addr()?;
        Ok(owner.map_or(PeerIdentity::Unknown, |uid| self.peer_of_uid(uid)))
    }

    /// The owner of the client's end of a loopback connection, if the kernel reports it.
    pub(super) fn owner_of(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        let owner = self.sock_diag.owner_of(client, server);
        owner.filter(|uid| self.is_mapped_uid(*uid))
    }

    pub(super) fn is_mapped_uid(&self, uid: u32) -> bool {
        uid != u32::MAX && self.overflow_uid != Some(uid)
    }

    fn peer_of_uid(&self, uid: u32) -> PeerIdentity {
        if self.is_mapped_uid(uid) {
            PeerIdentity::User(uid)
        } else {
            PeerIdentity::Unknown
        }
    }
}

pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether a user namespace maps every uid, as the initial one does.
fn covers_all_users(uid_map: &str) -> bool {
    let counts = uid_map
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_for_unknown_users_is_nobody() {
        assert!(covers_all_users("         0          0 4294967295\n"));
        assert!(!covers_all_users("0 1000 1\n1 100000 65536\n"));
        assert!(!covers_all_users(""));
        let lookup = PeerLookup {
            sock_diag: SockDiag::default(),
            overflow_uid: Some(65534),
        };
        assert_eq!(lookup.peer_of_uid(65534), PeerIdentity::Unknown);
        assert_eq!(lookup.peer_of_uid(1000), PeerIdentity::User(1000));
        assert_eq!(lookup.peer_of_uid(u32::MAX), PeerIdentity::Unknown);
    }

    #[test]
    fn loopback_has_many_addresses() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("127.255.0.3", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("0.0.0.0", false),
            ("::", false),
        ] {
            assert_eq!(
                is_loopback(text.parse().expect("an address")),
                expected,
                "{text}"
            );
        }
    }
}
