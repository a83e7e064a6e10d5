//! Taking addresses, with errors that say who is in the way.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::super::door::{Door, Protocol};
use super::super::running::Plan;
use super::unix::{self, UnixPath};

/// How many ports beyond the wanted one are tried where that is asked for.
const PORTS_TRIED: u16 = 100;

/// Why an address could not be taken. Nothing stays bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{protocol} {address} is taken{}; stop it, choose another address with --statsd, or use --port-search", by(.holder))]
    Busy {
        protocol: Protocol,
        address: SocketAddr,
        holder: Option<String>,
    },
    #[error("cannot take statsd lines on {protocol} {address}")]
    Io {
        protocol: Protocol,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot take statsd lines at {}: {problem}; remove it, or choose another path with statsd.unix", .path.display())]
    Path {
        path: PathBuf,
        problem: &'static str,
    },
    #[error("cannot take statsd lines at {}", .path.display())]
    PathIo {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the threads that read statsd lines")]
    Threads(#[source] io::Error),
}

fn by(holder: &Option<String>) -> String {
    holder
        .as_ref()
        .map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// Where lines are taken, in the order of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    pub udp: Vec<SocketAddr>,
    pub tcp: Vec<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub unix_stream: Option<PathBuf>,
}

/// Sockets that are ready, and nobody reads yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub bound: Bound,
    /// One per thread for each address.
    pub udp: Vec<OwnedFd>,
    pub unix: Option<OwnedFd>,
    pub tcp: Vec<TcpListener>,
    pub unix_stream: Option<UnixListener>,
    pub paths: Vec<UnixPath>,
}

pub(crate) fn bind(plan: &Plan, door: &dyn Door) -> Result<Sockets, BindError> {
    let threads = plan.threads.max(1);
    let mut sockets = Sockets {
        bound: Bound::default(),
        udp: Vec::new(),
        unix: None,
        tcp: Vec::new(),
        unix_stream: None,
        paths: Vec::new(),
    };
    for address in &plan.udp {
        let first = bind_udp(*address, plan.port_search, door)?;
        let local = first
            .local_addr()
            .map_err(io_error(Protocol::Udp, *address))?;
        sockets.bound.udp.push(local);
        let more = share(&first, local, threads - 1).map_err(io_error(Protocol::Udp, local))?;
        for socket in std::iter::once(OwnedFd::from(first)).chain(more) {
            enlarge(&socket, plan.receive_buffer);
            sockets.udp.push(socket);
        }
    }
    for address in &plan.tcp {
        let listener = bind_tcp(*address, plan.port_search, door)?;
        let local = listener
            .local_addr()
            .map_err(io_error(Protocol::Tcp, *address))?;
        sockets.bound.tcp.push(local);
        sockets.tcp.push(listener);
    }
    if let Some(path) = &plan.unix {
        let (socket, owned) = unix::datagram(path)?;
        enlarge(&socket, plan.receive_buffer);
        sockets.unix = Some(socket);
        sockets.bound.unix = Some(path.clone());
        sockets.paths.push(owned);
    }
    if let Some(path) = &plan.unix_stream {
        let (listener, owned) = unix::stream(path)?;
        sockets.unix_stream = Some(listener);
        sockets.bound.unix_stream = Some(path.clone());
        sockets.paths.push(owned);
    }
    Ok(sockets)
}

fn io_error(protocol: Protocol, address: SocketAddr) -> impl Fn(io::Error) -> BindError {
    move |source| BindError::Io {
        protocol,
        address,
        source,
    }
}

/// Without `SO_REUSEPORT`: a port that another agent reads must not be shared with it.
fn bind_udp(wanted: SocketAddr, search: bool, door: &dyn Door) -> Result<UdpSocket, BindError> {
    let socket = try_ports(wanted, search, Protocol::Udp, door, UdpSocket::bind)?;
    socket
        .set_nonblocking(true)
        .map_err(io_error(Protocol::Udp, wanted))?;
    Ok(socket)
}

fn bind_tcp(wanted: SocketAddr, search: bool, door: &dyn Door) -> Result<TcpListener, BindError> {
    let listener = try_ports(wanted, search, Protocol::Tcp, door, TcpListener::bind)?;
    listener
        .set_nonblocking(true)
        .map_err(io_error(Protocol::Tcp, wanted))?;
    Ok(listener)
}

fn try_ports<T>(
    wanted: SocketAddr,
    search: bool,
    protocol: Protocol,
    door: &dyn Door,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, BindError> {
    let last = match search && wanted.port() != 0 {
        true => wanted.port().saturating_add(PORTS_TRIED),
        false => wanted.port(),
    };
    for port in wanted.port()..=last {
        let address = SocketAddr::new(wanted.ip(), port);
        match bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other.map_err(io_error(protocol, address)),
        }
    }
    Err(BindError::Busy {
        protocol,
        address: wanted,
        holder: door.holder(protocol, wanted),
    })
}

/// More sockets on an address that is ours by now; the kernel deals senders out among them.
fn share(first: &UdpSocket, local: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    sockopt::set_socket_reuseport(first, true)?;
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    (0..count)
        .map(|_| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            rustix::net::bind(&socket, &local)?;
            Ok(socket)
        })
        .collect()
}

/// As large as wanted where we may, else as large as the system lets us.
fn enlarge(socket: &OwnedFd, bytes: usize) {
    // The kernel doubles what it is told, for its own books.
    let half = bytes / 2;
    if sockopt::set_socket_recv_buffer_size_force(socket, half).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, half);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::statsd::door::Peer;

    #[derive(Debug)]
    pub(in super::super) struct Told;

    impl Door for Told {
        fn holder(&self, protocol: Protocol, _: SocketAddr) -> Option<String> {
            Some(format!("the {protocol} of a test"))
        }
        fn owner(&self, _: SocketAddr, _: SocketAddr) -> Peer {
            Peer::Nobody
        }
        fn admits(&self, _: u32) -> bool {
            true
        }
    }

    fn plan(udp: SocketAddr) -> Plan {
        Plan {
            udp: vec![udp],
            ..Plan::nowhere()
        }
    }

    #[test]
    fn a_busy_port_names_its_holder_even_for_those_who_would_share_it() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("valid");
        let first = bind(
            &Plan {
                threads: 2,
                ..plan(any)
            },
            &Told,
        )
        .expect("a free port");
        let address = first.bound.udp[0];
        assert_eq!(first.udp.len(), 2);
        for threads in [1, 2] {
            let error = bind(
                &Plan {
                    threads,
                    ..plan(address)
                },
                &Told,
            )
            .expect_err("busy");
            let expected = format!("udp {address} is taken by the udp of a test; ");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let searched = Plan {
            port_search: true,
            ..plan(address)
        };
        if address.port() < u16::MAX - PORTS_TRIED {
            let next = bind(&searched, &Told)
                .expect("one of the next is free")
                .bound
                .udp[0];
            assert!(next.port() > address.port());
        }
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let error =
            bind(&plan("192.0.2.1:0".parse().expect("valid")), &Told).expect_err("not ours");
        assert!(matches!(error, BindError::Io { .. }), "{error}");
    }
}
