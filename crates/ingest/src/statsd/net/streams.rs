//! The thread that reads stream connections: lines that end with a newline, in pieces of any size.
//!
//! One thread polls all listeners and connections. Memory per connection is bounded by the longest line; a
//! longer line is skipped and counted. Connections are limited in number, and idle ones are closed.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::DropReason;
use pegel_wire::statsd::LINE_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::line_batch::StatsdContext;
use super::super::peer_policy::{LoopbackPeer, StatsdPeerPolicy};
use super::super::table::LineOrigin;
use super::origin_cache::{OriginCache, SenderIdentity};
use super::socket_errors::{Backoff, is_transient};
use super::stop_signal::StopSignal;

/// The most bytes per read, so that one busy connection does not delay the others.
const READ_BYTES: usize = LINE_BYTES_MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLimits {
    pub connections: usize,
    /// A connection without data for this long is closed.
    pub idle_timeout: Duration,
    /// A connection without data for this long may be closed when there are too many.
    pub eviction_idle_time: Duration,
}

#[derive(Debug)]
enum StatsdStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
struct StatsdConnection {
    stream: StatsdStream,
    origin: LineOrigin,
    /// The beginning of a line whose end has not arrived.
    partial_line: Vec<u8>,
    /// The line is too long: everything up to its end is skipped.
    is_skipping: bool,
    last_read: Instant,
}

#[derive(Debug)]
pub(crate) struct StreamListeners {
    pub tcp: Vec<TcpListener>,
    pub unix: Option<UnixListener>,
}

/// Reads until `stop`.
pub(crate) fn read_streams(
    listeners: &StreamListeners,
    limits: StreamLimits,
    shared: &StatsdContext,
    origins: OriginCache,
    peer_policy: &Arc<dyn StatsdPeerPolicy>,
    stop: &Arc<StopSignal>,
) {
    let mut reader = StreamReader {
        limits,
        shared,
        origins,
        peer_policy,
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
                tracing::error!(%error, "statsd stream reader failed; connections are no longer read");
                return;
            }
        };
        // In reverse, so that indexes stay valid while connections are closed.
        for at in ready.into_iter().rev() {
            if !reader.read(at) {
                reader.close(at);
            }
        }
        if is_stopping {
            return;
        }
        reader.accept(listeners);
        reader.close_idle();
    }
}

struct StreamReader<'a> {
    limits: StreamLimits,
    shared: &'a StatsdContext,
    origins: OriginCache,
    peer_policy: &'a Arc<dyn StatsdPeerPolicy>,
    connections: Vec<StatsdConnection>,
    buffer: Vec<u8>,
    next_id: u64,
    backoff: Backoff,
    /// No connection is accepted before this time: the last attempt failed, usually for lack of descriptors.
    accept_after: Option<Instant>,
}

impl StreamReader<'_> {
    /// Returns whether to stop, and which connections are readable.
    fn wait(
        &self,
        listeners: &StreamListeners,
        stop: &StopSignal,
    ) -> io::Result<(bool, Vec<usize>)> {
        let streams = self.connections.iter().map(StatsdConnection::descriptor);
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
            .then(|| Duration::from_secs(1) + self.limits.idle_timeout / 10);
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

    /// Returns false when the connection is over.
    fn read(&mut self, at: usize) -> bool {
        let connection = &mut self.connections[at];
        let read = match &mut connection.stream {
            StatsdStream::Tcp(stream) => stream.read(&mut self.buffer),
            StatsdStream::Unix(stream) => stream.read(&mut self.buffer),
        };
        match read {
            Ok(0) => false,
            Ok(count) => {
                connection.last_read = Instant::now();
                connection.apply_bytes(&self.buffer[..count], self.shared);
                true
            }
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// Closes a connection. The last line needs no newline.
    fn close(&mut self, at: usize) {
        let connection = self.connections.swap_remove(at);
        if !connection.partial_line.is_empty() {
            self.shared
                .batch()
                .apply_lines(&connection.partial_line, &connection.origin);
        }
    }

    fn accept(&mut self, listeners: &StreamListeners) {
        if self.accept_after.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.accept_after = None;
        for listener in &listeners.tcp {
            while let Some((stream, peer)) = self.accepted(listener.accept()) {
                let who = match peer.ip().to_canonical() {
                    ip if ip.is_loopback() => match stream
                        .local_addr()
                        .map(|local| self.peer_policy.peer_owner(local, peer))
                    {
                        // A port that its user released may belong to another user by now, but not while our
                        // end is connected.
                        Ok(LoopbackPeer::Uid(uid)) if stream.peer_addr().is_ok() => {
                            SenderIdentity::User(uid)
                        }
                        _ => SenderIdentity::Unknown,
                    },
                    ip => SenderIdentity::Host(ip),
                };
                if stream.set_nonblocking(true).is_ok() {
                    self.add_connection(StatsdStream::Tcp(stream), who);
                }
            }
        }
        if let Some(listener) = &listeners.unix {
            while let Some((stream, _)) = self.accepted(listener.accept()) {
                let credentials = rustix::net::sockopt::socket_peercred(&stream);
                let who = credentials.map_or(SenderIdentity::Unknown, |peer| {
                    SenderIdentity::User(peer.uid.as_raw())
                });
                if stream.set_nonblocking(true).is_ok() {
                    self.add_connection(StatsdStream::Unix(stream), who);
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

    /// Adds a connection. It is closed and counted if its user may not write or there is no room.
    fn add_connection(&mut self, stream: StatsdStream, who: SenderIdentity) {
        self.next_id += 1;
        let (origin, may_write) = self.origins.get(who, self.next_id | 1 << 62);
        let origin = origin.clone();
        if !may_write {
            self.shared
                .batch()
                .count_dropped(DropReason::Denied, 1, &origin);
            return;
        }
        if self.connections.len() >= self.limits.connections {
            let silent = self
                .connections
                .iter()
                .enumerate()
                .min_by_key(|(_, known)| known.last_read);
            match silent
                .filter(|(_, known)| known.last_read.elapsed() >= self.limits.eviction_idle_time)
            {
                Some((at, _)) => self.close(at),
                None => {
                    self.shared
                        .batch()
                        .count_dropped(DropReason::QueueFull, 1, &origin);
                    return;
                }
            }
        }
        self.connections.push(StatsdConnection {
            stream,
            origin,
            partial_line: Vec::new(),
            is_skipping: false,
            last_read: Instant::now(),
        });
    }

    fn close_idle(&mut self) {
        for at in (0..self.connections.len()).rev() {
            if self.connections[at].last_read.elapsed() >= self.limits.idle_timeout {
                self.close(at);
            }
        }
    }
}

impl StatsdConnection {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.stream {
            StatsdStream::Tcp(stream) => stream.as_fd(),
            StatsdStream::Unix(stream) => stream.as_fd(),
        }
    }

    fn apply_bytes(&mut self, mut bytes: &[u8], shared: &StatsdContext) {
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
            if !self.partial_line.is_empty() {
                let first = memchr::memchr(b'\n', whole).map_or(0, |end| end + 1);
                self.partial_line.extend_from_slice(&whole[..first]);
                batch.apply_lines(&self.partial_line, &self.origin);
                self.partial_line.clear();
                whole = &whole[first..];
            }
            batch.apply_lines(whole, &self.origin);
        }
        self.partial_line.extend_from_slice(&bytes[whole..]);
        if self.partial_line.len() > LINE_BYTES_MAX {
            self.partial_line = Vec::new();
            self.is_skipping = true;
            batch.count_dropped(DropReason::Malformed, 1, &self.origin);
        } else if self.partial_line.is_empty() && self.partial_line.capacity() > 4096 {
            self.partial_line = Vec::new();
        }
    }
}
