//! Queries the owner of the other end of a loopback connection from the kernel
//! (`NETLINK_SOCK_DIAG`, the source of `ss -e`), which any user may do.
//!
//! Requests and responses are encoded here in the kernel's layout (`struct inet_diag_req_v2`,
//! `struct inet_diag_msg`): native byte order, except for ports and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The kernel responds synchronously; this bounds the wait if it does not.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// Up to and including the inode; attributes may follow.
const RESPONSE_BYTES: usize = HEADER_BYTES + 72;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

const ESTABLISHED: u8 = 1;
const FIN_WAIT_1: u8 = 4;
const FIN_WAIT_2: u8 = 5;
const LISTEN: u8 = 10;

/// A client of the kernel's socket diagnostics.
#[derive(Debug, Default)]
pub(super) struct SockDiag {
    /// Kept between queries, so that they also work when no descriptor is left.
    idle_socket: Mutex<Option<OwnedFd>>,
}

impl SockDiag {
    /// The user who owns the client's end of a connection from `client` to `server` on this
    /// machine.
    ///
    /// `None` if the socket no longer exists, if its program has closed it (its inode is 0, and the
    /// kernel would report root as the owner), or if the kernel does not respond.
    pub(super) fn owner_of(&self, client: SocketAddr, server: SocketAddr) -> Option<u32> {
        let found = self.query(client, server)?;
        // A socket that is still connecting may have taken over a port whose previous connection is
        // still open on our side. The FIN_WAIT states mean that the client has closed its direction
        // only.
        let is_connected = matches!(found.state, ESTABLISHED | FIN_WAIT_1 | FIN_WAIT_2);
        let is_same = found.source == canonical(client) && found.destination == canonical(server);
        (is_connected && is_same && found.inode != 0).then_some(found.uid)
    }

    /// Whether the kernel supports such queries: looks up a socket that is known to listen.
    pub(super) fn finds_listener(&self, listener: SocketAddr) -> bool {
        let unspecified = match listener {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        self.query(listener, unspecified)
            .is_some_and(|found| found.state == LISTEN && found.source == canonical(listener))
    }

    /// Runs one query at a time per socket. After a failure the socket is closed, so that a late
    /// response is never taken for that of another query.
    fn query(&self, source: SocketAddr, destination: SocketAddr) -> Option<SocketInfo> {
        let request = encode(canonical(source), canonical(destination))?;
        let idle = || self.idle_socket.lock();
        let kept = idle().take();
        let answer = kept
            .map_or_else(open, Ok)
            .and_then(|socket| Ok((send_and_receive(&socket, &request)?, socket)));
        match answer {
            Ok((answer, socket)) => {
                *idle() = Some(socket);
                decode(&answer)
            }
            Err(error) => {
                tracing::debug!(%error, "cannot query the owner of a connection from the kernel");
                None
            }
        }
    }
}

/// Maps IPv4-mapped IPv6 addresses to IPv4; the two ends of a connection may use different forms.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[derive(Debug, PartialEq, Eq)]
struct SocketInfo {
    state: u8,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    uid: u32,
    inode: u32,
}

fn open() -> Result<OwnedFd, Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(RESPONSE_TIMEOUT))?;
    set_socket_timeout(&socket, Timeout::Send, Some(RESPONSE_TIMEOUT))?;
    Ok(socket)
}

fn send_and_receive(socket: &OwnedFd, request: &[u8]) -> Result<Vec<u8>, Errno> {
    rustix::net::send(socket, request, SendFlags::empty())?;
    let mut buffer = [0; 1024];
    let (bytes, _, sender) = rustix::net::recvfrom(socket, &mut buffer, RecvFlags::empty())?;
    let sender = sender.and_then(|sender| netlink::SocketAddrNetlink::try_from(sender).ok());
    match sender {
        // Port 0 is the kernel.
        Some(sender) if sender.pid() == 0 => Ok(buffer[..bytes].to_vec()),
        _ => Err(Errno::BADMSG),
    }
}

/// Encodes a request; `None` for addresses of different families, which no connection has.
fn encode(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Option<[u8; REQUEST_BYTES]> {
    let family = match (source.0, destination.0) {
        (IpAddr::V4(_), IpAddr::V4(_)) => AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => AF_INET6,
        _ => return None,
    };
    let mut out = [0; REQUEST_BYTES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    // struct nlmsghdr: length, type, flags; sequence and port stay 0.
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    // struct inet_diag_req_v2: family, protocol, no extensions, all states.
    put(16, &[family, IPPROTO_TCP]);
    put(20, &u32::MAX.to_ne_bytes());
    // struct inet_diag_sockid: ports and addresses as on the wire, any interface, no cookie.
    put(24, &source.1.to_be_bytes());
    put(26, &destination.1.to_be_bytes());
    put(28, &octets(source.0));
    put(44, &octets(destination.0));
    put(64, &[0xff; 8]);
    Some(out)
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Decodes a response; `None` for an error message or a truncated response.
fn decode(answer: &[u8]) -> Option<SocketInfo> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || answer.len() < RESPONSE_BYTES {
        return None;
    }
    let message = &answer[HEADER_BYTES..];
    let word = |at: usize| {
        Some(u32::from_ne_bytes(
            message.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let port = |at: usize| {
        Some(u16::from_be_bytes(
            message.get(at..at + 2)?.try_into().ok()?,
        ))
    };
    let ip = |at: usize| {
        let octets: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        match message[0] {
            AF_INET => {
                let [a, b, c, d, ..] = octets;
                Some(IpAddr::from([a, b, c, d]))
            }
            AF_INET6 => Some(IpAddr::from(octets).to_canonical()),
            _ => None,
        }
    };
    Some(SocketInfo {
        state: message[1],
        source: (ip(8)?, port(4)?),
        destination: (ip(24)?, port(6)?),
        uid: word(64)?,
        inode: word(68)?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A client and the server's end of its connection.
    fn connect(listen: &str, to: IpAddr) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let client = TcpStream::connect((to, port)).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        (client, server)
    }

    fn owner_seen_by(server: &TcpStream) -> Option<u32> {
        SockDiag::default().owner_of(
            server.peer_addr().expect("connected"),
            server.local_addr().expect("bound"),
        )
    }

    #[test]
    fn our_own_connections_are_ours_in_both_families() {
        let four = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        for (listen, to) in [
            ("127.0.0.1:0", four),
            ("127.0.0.1:0", mapped),
            ("0.0.0.0:0", four),
            ("[::1]:0", six),
            ("[::]:0", four),
            ("[::]:0", mapped),
        ] {
            let (_client, server) = connect(listen, to);
            assert_eq!(owner_seen_by(&server), Some(own_uid()), "{to} to {listen}");
        }
    }

    #[test]
    fn a_client_that_sent_its_last_byte_is_still_its_owners() {
        let (client, server) = connect("127.0.0.1:0", IpAddr::V4(Ipv4Addr::LOCALHOST));
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
        assert_eq!(owner_seen_by(&server), Some(own_uid()));
    }

    #[test]
    fn a_client_that_is_gone_is_nobody() {
        let (client, server) = connect("127.0.0.1:0", IpAddr::V4(Ipv4Addr::LOCALHOST));
        drop(client);
        // Its socket is in FIN_WAIT_2 with inode 0 and uid 0.
        assert_eq!(owner_seen_by(&server), None);
    }

    #[test]
    fn a_listener_on_the_clients_port_is_not_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let listening = listener.local_addr().expect("bound");
        // No such connection exists: the kernel falls back to the listener.
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let sock_diag = SockDiag::default();
        assert!(
            sock_diag
                .query(listening, server)
                .is_some_and(|found| found.state == LISTEN)
        );
        assert_eq!(sock_diag.owner_of(listening, server), None);
        assert!(sock_diag.finds_listener(listening));
        drop(listener);
        assert!(!sock_diag.finds_listener(listening));
    }

    #[test]
    fn only_a_whole_answer_of_the_right_kind_counts() {
        let source = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 40_000);
        let destination = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 1337);
        let mut answer = vec![0; RESPONSE_BYTES];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[16] = AF_INET;
        answer[17] = ESTABLISHED;
        let question = encode(source, destination).expect("one family");
        answer[20..68].copy_from_slice(&question[24..72]);
        answer[80..84].copy_from_slice(&1001u32.to_ne_bytes());
        answer[84..88].copy_from_slice(&77u32.to_ne_bytes());
        let expected = SocketInfo {
            state: ESTABLISHED,
            source,
            destination,
            uid: 1001,
            inode: 77,
        };
        assert_eq!(decode(&answer), Some(expected));
        for bytes in 0..RESPONSE_BYTES {
            assert_eq!(decode(&answer[..bytes]), None, "cut after {bytes}");
        }
        answer[4] = 2;
        assert_eq!(decode(&answer), None, "an error message");
        assert!(encode(source, (IpAddr::V6(Ipv6Addr::LOCALHOST), 1)).is_none());
    }
}
