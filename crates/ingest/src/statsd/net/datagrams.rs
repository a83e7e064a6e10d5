//! The thread that reads datagrams.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::Reason;
use rustix::event::{PollFd, PollFlags, poll};

use super::super::batch::Shared;
use super::origins::Origins;
use super::receive::{BATCH, Receiver};
use super::stop::Stop;

/// After a call that brought fewer than this, more are let gather: waking up costs more than a datagram.
const FEW: usize = BATCH / 2;
/// What a datagram takes of the receive buffer, its headers included, where it is small.
const SMALL_DATAGRAM: usize = 1280;
/// More datagrams than this come in no millisecond: what one core can send.
const PER_MILLISECOND: usize = 500;
const NAP_MAX: Duration = Duration::from_millis(1);

/// Which socket, and whether to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Udp,
    UnixWaiting,
    UnixAtOnce,
}

/// Reads UDP sockets until `stop`. After a call that brought few, it naps shortly, so that the next one brings many.
pub(crate) fn read_datagrams(
    sockets: &[OwnedFd],
    shared: &Shared,
    mut origins: Origins,
    stop: &Arc<Stop>,
) {
    let mut receiver = Receiver::new();
    let naps: Vec<Duration> = sockets.iter().map(nap).collect();
    let all = sockets.iter().map(AsFd::as_fd);
    let all: Vec<BorrowedFd<'_>> = all.chain([stop.as_fd()]).collect();
    let mut polled: Vec<PollFd<'_>> = all
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    loop {
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::error!(%error, "statsd datagrams are no longer read");
                return;
            }
        }
        let is_stopping = !polled[sockets.len()].revents().is_empty();
        let (mut most, mut nap) = (0, NAP_MAX);
        for (at, socket) in sockets.iter().enumerate() {
            if polled[at].revents().is_empty() {
                continue;
            }
            let mut take = || take(socket, How::Udp, &mut receiver, shared, &mut origins);
            let mut count = take();
            // What came before the end is read to the end.
            while is_stopping && count > 0 {
                count = take();
            }
            most = most.max(count);
            nap = nap.min(naps[at]);
        }
        if is_stopping {
            return;
        }
        if most < FEW {
            std::thread::sleep(nap);
        }
    }
}

/// Reads a UNIX socket until `stop`, which also shuts the socket down: that wakes this thread. Who sends waits
/// when ten datagrams are unread, so that they must not be let gather.
pub(crate) fn read_unix_datagrams(
    socket: &OwnedFd,
    shared: &Shared,
    mut origins: Origins,
    stop: &Stop,
) {
    let mut receiver = Receiver::new();
    while !stop.is_now() {
        take(
            socket,
            How::UnixWaiting,
            &mut receiver,
            shared,
            &mut origins,
        );
    }
    while take(socket, How::UnixAtOnce, &mut receiver, shared, &mut origins) > 0 {}
}

/// One call for one socket; how many datagrams it brought.
fn take(
    socket: &OwnedFd,
    how: How,
    receiver: &mut Receiver,
    shared: &Shared,
    origins: &mut Origins,
) -> usize {
    let (is_unix, wait) = (how != How::Udp, how == How::UnixWaiting);
    let count = match receiver.receive(socket.as_fd(), is_unix, wait) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
        // Errors of single datagrams (a host that is unreachable) do not stay with the socket.
        Err(error) => {
            tracing::debug!(%error, "cannot read statsd datagrams");
            return 0;
        }
    };
    let mut batch = shared.batch();
    for datagram in receiver
        .datagrams()
        .filter(|datagram| !datagram.bytes.is_empty())
    {
        let (origin, may_write) = origins.of(datagram.from);
        if !may_write {
            let lines = pegel_wire::statsd::Lines::new(datagram.bytes).count() as u64;
            batch.drop(Reason::Denied, lines, origin);
        } else if datagram.is_cut {
            // The last line is not whole.
            let whole = memchr::memrchr(b'\n', datagram.bytes).map_or(0, |end| end + 1);
            batch.take(&datagram.bytes[..whole], origin);
            batch.drop(Reason::Malformed, 1, origin);
        } else {
            batch.take(datagram.bytes, origin);
        }
    }
    count
}

/// As long as the socket surely holds what comes meanwhile, with a margin of four.
fn nap(socket: &OwnedFd) -> Duration {
    let bytes = rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap_or(0);
    let datagrams = bytes / SMALL_DATAGRAM / 4;
    let micros = datagrams * 1000 / PER_MILLISECOND;
    Duration::from_micros(micros as u64).min(NAP_MAX)
}
