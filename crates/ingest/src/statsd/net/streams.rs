//! The thread that reads connections: lines that end with a newline, in pieces of any size.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::Reason;
use pegel_wire::statsd::LINE_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::batch::Shared;
use super::super::door::{Door, Peer};
use super::super::table::Origin;
use super::origins::{Origins, Who};
use super::socket_errors::{Backoff, is_transient};
use super::stop::Stop;

/// What one read takes at most, so that one busy connection does not keep the others waiting.
const READ_BYTES: usize = LINE_BYTES_MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimits {
    pub connections: usize,
    /// Who says nothing for this long is hung up on.
    pub silence: Duration,
    /// Who says nothing for this long makes room when there are too many.
    pub patience: Duration,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    origin: Origin,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// The line is too long: everything up to its end is passed over.
    is_skipping: bool,
    heard: Instant,
}

#[derive(Debug)]
pub(crate) struct Listeners {
    pub tcp: Vec<TcpListener>,
    pub unix: Option<UnixListener>,
}

/// Reads until `stop`.
pub(crate) fn read_streams(
    listeners: &Listeners,
    limits: StreamLimits,
    shared: &Shared,
    origins: Origins,
    door: &Arc<dyn Door>,
    stop: &Arc<Stop>,
) {
    let mut reader = Reader {
        limits,
        shared,
        origins,
        door,
        connections: Vec::new(),
        buffer: vec![0; READ_BYTES],
        next_id: 0,
        backoff: Backoff::new(),
        accept_after: None,
    };
    loop {
        let (is_stopping, ready) = match reader.wait(listeners, stop) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "statsd connections are no longer read");
                return;
            }
        };
        // From the back, so that places stay valid while some are closed.
        for at in ready.into_iter().rev() {
            if !reader.read(at) {
                reader.close(at);
            }
        }
        if is_stopping {
            return;
        }
        reader.accept(listeners);
        reader.hang_up_on_the_silent();
    }
}

struct Reader<'a> {
    limits: StreamLimits,
    shared: &'a Shared,
    origins: Origins,
    door: &'a Arc<dyn Door>,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    next_id: u64,
    backoff: Backoff,
    /// No connection is accepted before this time: the last attempt failed, usually for lack of descriptors.
    accept_after: Option<Instant>,
}

impl Reader<'_> {
    /// Whether to stop, and which connections have something.
    fn wait(&self, listeners: &Listeners, stop: &Stop) -> io::Result<(bool, Vec<usize>)> {
        let streams = self.connections.iter().map(Connection::descriptor);
        let tcp = listeners.tcp.iter().map(AsFd::as_fd);
        let unix = listeners.unix.iter().map(AsFd::as_fd);
        let accepts = self.accept_after.is_none();
        let all: Vec<BorrowedFd<'_>> = streams
            .chain([stop.as_fd()])
            .chain(tcp.chain(unix).filter(|_| accepts))
            .collect();
        let mut polled: Vec<PollFd<'_>> = all
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let silence = (!self.connections.is_empty())
            .then(|| Duration::from_secs(1) + self.limits.silence / 10);
        let accept = self
            .accept_after
            .map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = silence.into_iter().chain(accept).min();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let count = self.connections.len();
        let ready = (0..count)
            .filter(|at| !polled[*at].revents().is_empty())
            .collect();
        Ok((!polled[count].revents().is_empty(), ready))
    }

    /// False when the connection is over.
    fn read(&mut self, at: usize) -> bool {
        let connection = &mut self.connections[at];
        let read = match &mut connection.stream {
            Stream::Tcp(stream) => stream.read(&mut self.buffer),
            Stream::Unix(stream) => stream.read(&mut self.buffer),
        };
        match read {
            Ok(0) => false,
            Ok(count) => {
                connection.heard = Instant::now();
                connection.take(&self.buffer[..count], self.shared);
                true
            }
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// The last line needs no newline.
    fn close(&mut self, at: usize) {
        let connection = self.connections.swap_remove(at);
        if !connection.rest.is_empty() {
            self.shared
                .batch()
                .take(&connection.rest, &connection.origin);
        }
    }

    fn accept(&mut self, listeners: &Listeners) {
        if self.accept_after.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.accept_after = None;
        for listener in &listeners.tcp {
            while let Some((stream, peer)) = self.accepted(listener.accept()) {
                let who = match peer.ip().to_canonical() {
                    ip if ip.is_loopback() => match stream
                        .local_addr()
                        .map(|local| self.door.owner(local, peer))
                    {
                        // A port that its user let go may be another's by now, but not while our end is connected.
                        Ok(Peer::Uid(uid)) if stream.peer_addr().is_ok() => Who::User(uid),
                        _ => Who::Unknown,
                    },
                    ip => Who::Host(ip),
                };
                if stream.set_nonblocking(true).is_ok() {
                    self.welcome(Stream::Tcp(stream), who);
                }
            }
        }
        if let Some(listener) = &listeners.unix {
            while let Some((stream, _)) = self.accepted(listener.accept()) {
                let credentials = rustix::net::sockopt::socket_peercred(&stream);
                let who = credentials.map_or(Who::Unknown, |peer| Who::User(peer.uid.as_raw()));
                if stream.set_nonblocking(true).is_ok() {
                    self.welcome(Stream::Unix(stream), who);
                }
            }
        }
    }

    /// Returns the accepted connection, if any. After an error, further attempts pause, so that this thread does not spin.
    fn accepted<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(connection) => {
                self.backoff.succeeded();
                Some(connection)
            }
            Err(error) if is_transient(&error) => None,
            Err(error) => {
                let what = "accept a connection";
                let wait = self.backoff.failed(&self.shared.errors, what, &error);
                self.accept_after = Some(Instant::now() + wait);
                None
            }
        }
    }

    /// Who may not write, or finds no room, is hung up on and counted.
    fn welcome(&mut self, stream: Stream, who: Who) {
        self.next_id += 1;
        let (origin, may_write) = self.origins.get(who, self.next_id | 1 << 62);
        let origin = origin.clone();
        if !may_write {
            self.shared.batch().drop(Reason::Denied, 1, &origin);
            return;
        }
        if self.connections.len() >= self.limits.connections {
            let silent = self
                .connections
                .iter()
                .enumerate()
                .min_by_key(|(_, known)| known.heard);
            match silent.filter(|(_, known)| known.heard.elapsed() >= self.limits.patience) {
                Some((at, _)) => self.close(at),
                None => {
                    self.shared.batch().drop(Reason::QueueFull, 1, &origin);
                    return;
                }
            }
        }
        self.connections.push(Connection {
            stream,
            origin,
            rest: Vec::new(),
            is_skipping: false,
            heard: Instant::now(),
        });
    }

    fn hang_up_on_the_silent(&mut self) {
        for at in (0..self.connections.len()).rev() {
            if self.connections[at].heard.elapsed() >= self.limits.silence {
                self.close(at);
            }
        }
    }
}

impl Connection {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn take(&mut self, mut bytes: &[u8], shared: &Shared) {
        if self.is_skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return;
            };
            bytes = &bytes[end + 1..];
            self.is_skipping = false;
        }
        let mut batch = shared.batch();
        let whole = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        if whole > 0 {
            let mut whole = &bytes[..whole];
            if !self.rest.is_empty() {
                let first = memchr::memchr(b'\n', whole).map_or(0, |end| end + 1);
                self.rest.extend_from_slice(&whole[..first]);
                batch.take(&self.rest, &self.origin);
                self.rest.clear();
                whole = &whole[first..];
            }
            batch.take(whole, &self.origin);
        }
        self.rest.extend_from_slice(&bytes[whole..]);
        if self.rest.len() > LINE_BYTES_MAX {
            self.rest = Vec::new();
            self.is_skipping = true;
            batch.drop(Reason::Malformed, 1, &self.origin);
        } else if self.rest.is_empty() && self.rest.capacity() > 4096 {
            self.rest = Vec::new();
        }
    }
}
