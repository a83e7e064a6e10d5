//! Binds the addresses of statsd, with errors that name the process that holds an address.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use pegel_config::ListenAddress;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::super::listener::StatsdListenOptions;
use super::super::peer_policy::{StatsdPeerPolicy, TransportProtocol};
use super::unix_sockets::{self, SocketFile};

/// The number of ports tried after the configured one with `--port-search`.
const PORTS_TRIED: u16 = 100;

/// The error when an address cannot be bound. Nothing stays bound.
#[derive(Debug, thiserror::Error)]
pub enum StatsdBindError {
    #[error("{protocol} {address} is already in use{}; stop the process that uses it, choose another address with --statsd, or use --port-search", format_holder(.holder))]
    Busy {
        protocol: TransportProtocol,
        address: SocketAddr,
        holder: Option<String>,
    },
    #[error("cannot receive statsd lines on {protocol} {address}")]
    Io {
        protocol: TransportProtocol,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot receive statsd lines at {}: {problem}; remove it, or choose another path with statsd.unix", .path.display())]
    Path {
        path: PathBuf,
        problem: &'static str,
    },
    #[error("cannot receive statsd lines at {}", .path.display())]
    PathIo {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the threads that read statsd lines")]
    Threads(#[source] io::Error),
}

fn format_holder(holder: &Option<String>) -> String {
    holder
        .as_ref()
        .map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// The bound addresses, in the order of the configuration.
#[derive(Debug, Clone, Default)]
pub struct BoundAddresses {
    pub udp: Vec<SocketAddr>,
    pub tcp: Vec<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub unix_stream: Option<PathBuf>,
}

/// Bound sockets that are not read yet.
#[derive(Debug)]
pub(crate) struct BoundSockets {
    pub bound: BoundAddresses,
    /// One per thread for each address.
    pub udp: Vec<OwnedFd>,
    pub unix: Option<OwnedFd>,
    pub tcp: Vec<TcpListener>,
    pub unix_stream: Option<UnixListener>,
    pub paths: Vec<SocketFile>,
}

pub(crate) fn bind(
    plan: &StatsdListenOptions,
    peer_policy: &dyn StatsdPeerPolicy,
) -> Result<BoundSockets, StatsdBindError> {
    let threads = plan.threads.max(1);
    let receive_buffer = plan.keys.receive_buffer.as_usize();
    let mut sockets = BoundSockets {
        bound: BoundAddresses::default(),
        udp: Vec::new(),
        unix: None,
        tcp: Vec::new(),
        unix_stream: None,
        paths: Vec::new(),
    };
    for address in plan.keys.udp.iter().map(ListenAddress::socket) {
        // Without `SO_REUSEPORT`: a port that another agent reads must not be shared with it.
        let first = try_ports(plan, address, TransportProtocol::Udp, peer_policy, |at| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })?;
        let local = first
            .local_addr()
            .map_err(io_error(TransportProtocol::Udp, address))?;
        sockets.bound.udp.push(local);
        let more = bind_shared(&first, local, threads - 1)
            .map_err(io_error(TransportProtocol::Udp, local))?;
        for socket in std::iter::once(OwnedFd::from(first)).chain(more) {
            set_receive_buffer(&socket, receive_buffer);
            sockets.udp.push(socket);
        }
    }
    for address in plan.keys.tcp.iter().map(ListenAddress::socket) {
        let listener = try_ports(plan, address, TransportProtocol::Tcp, peer_policy, |at| {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?;
        let local = listener
            .local_addr()
            .map_err(io_error(TransportProtocol::Tcp, address))?;
        sockets.bound.tcp.push(local);
        sockets.tcp.push(listener);
    }
    if let Some(path) = &plan.unix {
        let (socket, owned) = unix_sockets::bind_datagram(path)?;
        set_receive_buffer(&socket, receive_buffer);
        sockets.unix = Some(socket);
        sockets.bound.unix = Some(path.clone());
        sockets.paths.push(owned);
    }
    if let Some(path) = &plan.unix_stream {
        let (listener, owned) = unix_sockets::bind_stream(path)?;
        sockets.unix_stream = Some(listener);
        sockets.bound.unix_stream = Some(path.clone());
        sockets.paths.push(owned);
    }
    Ok(sockets)
}

fn io_error(
    protocol: TransportProtocol,
    address: SocketAddr,
) -> impl Fn(io::Error) -> StatsdBindError {
    move |source| StatsdBindError::Io {
        protocol,
        address,
        source,
    }
}

/// Binds the address or, with `--port-search`, the next port that is free.
fn try_ports<T>(
    plan: &StatsdListenOptions,
    wanted: SocketAddr,
    protocol: TransportProtocol,
    peer_policy: &dyn StatsdPeerPolicy,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, StatsdBindError> {
    let last = if plan.port_search && wanted.port() != 0 {
        wanted.port().saturating_add(PORTS_TRIED)
    } else {
        wanted.port()
    };
    for port in wanted.port()..=last {
        let address = SocketAddr::new(wanted.ip(), port);
        match bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other.map_err(io_error(protocol, address)),
        }
    }
    Err(StatsdBindError::Busy {
        protocol,
        address: wanted,
        holder: peer_policy.port_holder(protocol, wanted),
    })
}

/// Opens more sockets on an address that is already bound here; the kernel distributes senders
/// among them.
fn bind_shared(first: &UdpSocket, local: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
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

/// Sets the configured size if permitted, else the largest size that the system allows.
fn set_receive_buffer(socket: &OwnedFd, bytes: usize) {
    // The kernel doubles the value, for its own bookkeeping.
    let half = bytes / 2;
    if sockopt::set_socket_recv_buffer_size_force(socket, half).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, half);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::statsd::peer_policy::LoopbackPeer;

    #[derive(Debug)]
    pub(in super::super) struct FixedPeerPolicy;

    impl StatsdPeerPolicy for FixedPeerPolicy {
        fn port_holder(&self, protocol: TransportProtocol, _: SocketAddr) -> Option<String> {
            Some(format!("the {protocol} of a test"))
        }
        fn peer_owner(&self, _: SocketAddr, _: SocketAddr) -> LoopbackPeer {
            LoopbackPeer::Unknown
        }
        fn allows_user(&self, _: u32) -> bool {
            true
        }
    }

    fn plan(udp: SocketAddr) -> StatsdListenOptions {
        let mut plan = StatsdListenOptions::without_sockets();
        plan.keys.udp = vec![udp.into()];
        plan
    }

    #[test]
    fn a_busy_port_names_its_holder_even_for_those_who_would_share_it() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("valid");
        let first = bind(
            &StatsdListenOptions {
                threads: 2,
                ..plan(any)
            },
            &FixedPeerPolicy,
        )
        .expect("a free port");
        let address = first.bound.udp[0];
        assert_eq!(first.udp.len(), 2);
        for threads in [1, 2] {
            let error = bind(
                &StatsdListenOptions {
                    threads,
                    ..plan(address)
                },
                &FixedPeerPolicy,
            )
            .expect_err("busy");
            let expected = format!("udp {address} is already in use by the udp of a test; ");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        let searched = StatsdListenOptions {
            port_search: true,
            ..plan(address)
        };
        if address.port() < u16::MAX - PORTS_TRIED {
            let next = bind(&searched, &FixedPeerPolicy)
                .expect("one of the next is free")
                .bound
                .udp[0];
            assert!(next.port() > address.port());
        }
    }

    #[test]
    fn an_address_of_another_machine_is_an_error() {
        let error = bind(
            &plan("192.0.2.1:0".parse().expect("valid")),
            &FixedPeerPolicy,
        )
        .expect_err("not ours");
        assert!(matches!(error, StatsdBindError::Io { .. }), "{error}");
    }
}
