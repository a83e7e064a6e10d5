//! A connection to carbon. Every wait is bounded.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use super::settings::{GraphiteProtocol, GraphiteSettings};

/// The largest datagram: that of collectd, which fits into an Ethernet frame.
const DATAGRAM_BYTES_MAX: usize = 1428;

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    pub opened: Instant,
    timeout: Duration,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Connection {
    /// Tries all addresses of the host within the timeout.
    pub(super) fn open(settings: &GraphiteSettings) -> io::Result<Connection> {
        let timeout = settings.timeout.duration();
        let deadline = Instant::now() + timeout;
        let host = settings.host.trim_matches(['[', ']']);
        let mut last_error = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (host, settings.port).to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let socket = match settings.protocol {
                GraphiteProtocol::Tcp => {
                    TcpStream::connect_timeout(&address, left).map(Socket::Tcp)
                }
                GraphiteProtocol::Udp => connect_udp(address).map(Socket::Udp),
            };
            match socket {
                Ok(socket) => {
                    return Ok(Connection {
                        socket,
                        opened: Instant::now(),
                        timeout,
                    });
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Returns whether the server has closed the connection, or sent something, which carbon never
    /// does.
    pub(super) fn is_closed(&self) -> bool {
        let Socket::Tcp(stream) = &self.socket else {
            return false;
        };
        let would_block = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
        let mut byte = [0];
        let peeked = stream
            .set_nonblocking(true)
            .and_then(|()| stream.peek(&mut byte));
        let is_open = peeked.is_err_and(|error| would_block(&error));
        stream.set_nonblocking(false).is_err() || !is_open
    }

    /// Sends a whole batch, at most until `stop_at`.
    pub(super) fn send(&mut self, batch: &[u8], stop_at: Option<Instant>) -> io::Result<()> {
        let deadline = Instant::now() + self.timeout;
        let deadline = stop_at.map_or(deadline, |stop_at| deadline.min(stop_at));
        match &mut self.socket {
            Socket::Tcp(stream) => write_until(stream, batch, deadline),
            Socket::Udp(socket) => datagrams(batch).try_for_each(|datagram| {
                let sent = socket.send(datagram)?;
                if sent == datagram.len() {
                    Ok(())
                } else {
                    Err(ErrorKind::WriteZero.into())
                }
            }),
        }
    }
}

fn connect_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(local)?;
    socket.connect(address)?;
    Ok(socket)
}

fn write_until(stream: &mut TcpStream, mut rest: &[u8], deadline: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                "the server reads too slowly",
            ));
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Splits lines into datagrams. A line that is longer than a datagram is one on its own.
fn datagrams(batch: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = &rest[..rest.len().min(DATAGRAM_BYTES_MAX)];
        let is_end = |byte: &u8| *byte == b'\n';
        let end = match start.iter().rposition(is_end) {
            Some(position) => position + 1,
            None => rest
                .iter()
                .position(is_end)
                .map_or(rest.len(), |position| position + 1),
        };
        let (datagram, after) = rest.split_at(end);
        rest = after;
        Some(datagram)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_end_with_whole_lines() {
        let line = [&[b'x'; 99][..], b"\n"].concat();
        let long = [&[b'y'; 2000][..], b"\n"].concat();
        let batch = [line.repeat(20), long, line.clone()].concat();
        let sizes: Vec<usize> = datagrams(&batch).map(<[u8]>::len).collect();
        assert_eq!(sizes, [1400, 600, 2001, 100]);
        assert!(datagrams(&batch).all(|datagram| datagram.ends_with(b"\n")));
    }
}
