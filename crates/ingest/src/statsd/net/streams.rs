//! The thread that reads stream connections: lines that end with a newline, in pieces of any size.
//!
//! One thread polls all listeners and connections. Memory per connection is bounded by the longest
//! line; a longer line is skipped and counted. Connections are limited in number, with a reserve
//! for the agent's user and root, and idle ones are closed. A connection of a web browser is
//! closed: a page of any site can make the browser send text to this port, and the browser's user
//! would be its sender.

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
    /// No line was complete so far.
    is_first_line: bool,
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
    /// No connection is accepted before this time: the last attempt failed, usually for lack of
    /// descriptors.
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
                connection.apply_bytes(&self.buffer[..count], self.shared)
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
                        // A port that its user released may belong to another user by now, but not
                        // while our end is connected.
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

    /// Returns the accepted connection, if any. After an error, further attempts pause, so that
    /// this thread does not spin.
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
        if !self.make_room(origin.sender.is_trusted()) {
            self.shared
                .batch()
                .count_dropped(DropReason::QueueFull, 1, &origin);
            return;
        }
        self.connections.push(StatsdConnection {
            stream,
            origin,
            partial_line: Vec::new(),
            is_skipping: false,
            is_first_line: true,
            last_read: Instant::now(),
        });
    }

    /// Returns whether there is room for one more connection. If there is none, closes the one that
    /// has been silent the longest. One in 16 is reserved for trusted senders, whose connections
    /// are not closed for others.
    fn make_room(&mut self, is_trusted: bool) -> bool {
        let all = self.limits.connections;
        let max = if is_trusted { all } else { all - all / 16 };
        let competing = |known: &&StatsdConnection| is_trusted || !known.origin.sender.is_trusted();
        let count = self.connections.iter().filter(competing).count();
        if count < max && self.connections.len() < all {
            return true;
        }
        let silent = { self.connections.iter().enumerate() }
            .filter(|(_, known)| competing(known))
            .min_by_key(|(_, known)| known.last_read);
        match silent {
            Some((at, known)) if known.last_read.elapsed() >= self.limits.eviction_idle_time => {
                self.close(at);
                true
            }
            _ => false,
        }
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

    /// Returns whether the first line, which these bytes continue, is one that a web browser sends.
    fn is_browser(&mut self, bytes: &[u8]) -> bool {
        if !self.is_first_line {
            return false;
        }
        let end = memchr::memchr(b'\n', bytes);
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        let is_too_long = self.partial_line.len() + bytes.len() > LINE_BYTES_MAX;
        self.is_first_line = end.is_none() && !is_too_long;
        let first = self.partial_line.first().or(bytes.first());
        if self.is_first_line {
            return first == Some(&TLS_HANDSHAKE);
        }
        let line = [self.partial_line.as_slice(), bytes].concat();
        first == Some(&TLS_HANDSHAKE) || is_http_request(&line, is_too_long)
    }

    /// Returns false if the connection must be closed.
    fn apply_bytes(&mut self, mut bytes: &[u8], shared: &StatsdContext) -> bool {
        if self.is_browser(bytes) {
            self.partial_line.clear();
            shared
                .batch()
                .count_dropped(DropReason::Malformed, 1, &self.origin);
            return false;
        }
        if self.is_skipping {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return true;
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
        true
    }
}

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// Returns whether a line is the first one of an HTTP request. Of a line that is too long only the
/// method is checked.
fn is_http_request(line: &[u8], is_too_long: bool) -> bool {
    let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let has_method = (3..=7).contains(&method.len()) && method.iter().all(u8::is_ascii_uppercase);
    let line = line.trim_ascii_end();
    let has_version = [b" HTTP/1.0", b" HTTP/1.1"]
        .iter()
        .any(|end| line.ends_with(*end));
    has_method && (is_too_long || has_version)
}

#[cfg(test)]
mod tests {
    use super::super::bind::tests::FixedPeerPolicy;
    use super::*;
    use crate::statsd::tests::shared;

    fn connection(
        origins: &mut OriginCache,
        who: SenderIdentity,
    ) -> (StatsdConnection, UnixStream) {
        let (stream, client) = UnixStream::pair().expect("a pair");
        let connection = StatsdConnection {
            stream: StatsdStream::Unix(stream),
            origin: origins.get(who, 1).0.clone(),
            partial_line: Vec::new(),
            is_skipping: false,
            is_first_line: true,
            last_read: Instant::now(),
        };
        (connection, client)
    }

    #[test]
    fn a_web_browser_cannot_write() {
        let (shared, admission) = shared();
        let mut origins = OriginCache::new(admission, Arc::new(FixedPeerPolicy));
        let head = "Host: localhost\r\n\r\nforged:666|c\n";
        let long = format!(
            "POST /{} HTTP/1.1\r\n{head}",
            "x".repeat(2 * LINE_BYTES_MAX)
        );
        for (text, closes) in [
            (format!("POST / HTTP/1.1\r\n{head}"), true),
            (format!("GET /a:1|c HTTP/1.0\n{head}"), true),
            (long, true),
            (format!("\x16\x03\x01\n{head}"), true),
            ("GET /index:1|c\n".to_owned(), false),
            ("visits:1|c\nPOST / HTTP/1.1\r\n".to_owned(), false),
        ] {
            for chunk in [1, 1000, usize::MAX] {
                let (mut connection, _client) = connection(&mut origins, SenderIdentity::User(0));
                let mut chunks = text.as_bytes().chunks(chunk.min(text.len()));
                let stays_open = chunks.all(|bytes| connection.apply_bytes(bytes, &shared));
                assert_eq!(!stays_open, closes, "{text:.40} in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn a_part_of_the_connections_is_reserved_for_trusted_senders() {
        let (shared, admission) = shared();
        let peer_policy: Arc<dyn StatsdPeerPolicy> = Arc::new(FixedPeerPolicy);
        let mut reader = StreamReader {
            limits: StreamLimits {
                connections: 32,
                idle_timeout: Duration::from_secs(60),
                eviction_idle_time: Duration::from_secs(60),
            },
            shared: &shared,
            origins: OriginCache::new(admission, peer_policy.clone()),
            peer_policy: &peer_policy,
            connections: Vec::new(),
            buffer: vec![0; READ_BYTES],
            next_id: 0,
            backoff: Backoff::new(),
            accept_after: None,
        };
        let guest = SenderIdentity::Host([192, 0, 2, 1].into());
        let owner = SenderIdentity::User(0);
        let mut clients = Vec::new();
        let mut connect = |reader: &mut StreamReader<'_>, who| {
            let (stream, client) = UnixStream::pair().expect("a pair");
            clients.push(client);
            reader.add_connection(StatsdStream::Unix(stream), who);
            reader.connections.len()
        };
        for _ in 0..40 {
            connect(&mut reader, guest);
        }
        assert_eq!(reader.connections.len(), 30);
        assert_eq!(connect(&mut reader, owner), 31);
        assert_eq!(connect(&mut reader, owner), 32);
        assert_eq!(connect(&mut reader, owner), 32, "none of them is silent");
        reader.limits.eviction_idle_time = Duration::ZERO;
        connect(&mut reader, guest);
        let trusted = |reader: &StreamReader<'_>| {
            let all = reader.connections.iter();
            all.filter(|known| known.origin.sender.is_trusted()).count()
        };
        assert_eq!(trusted(&reader), 2, "a guest takes the place of a guest");
        connect(&mut reader, owner);
        assert_eq!(trusted(&reader), 3);
    }
}
