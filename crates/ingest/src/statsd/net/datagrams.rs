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
/// The kernel's timers are no finer.
const NAP_MIN: Duration = Duration::from_micros(50);

/// A socket with datagrams, and whether they come with credentials.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    pub socket: OwnedFd,
    pub is_unix: bool,
}

/// Reads until `stop`. After a call that brought few, it naps shortly, so that the next one brings many.
pub(crate) fn read_datagrams(
    sockets: &[DatagramSocket],
    shared: &Shared,
    mut origins: Origins,
    stop: &Arc<Stop>,
) {
    let mut receiver = Receiver::new();
    let naps: Vec<Duration> = sockets.iter().map(nap).collect();
    let all = sockets.iter().map(|socket| socket.socket.as_fd());
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
            let mut take = || take(socket, &mut receiver, shared, &mut origins);
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
        if most < FEW && nap >= NAP_MIN {
            std::thread::sleep(nap);
        }
    }
}

/// One call for one socket; how many datagrams it brought.
fn take(
    socket: &DatagramSocket,
    receiver: &mut Receiver,
    shared: &Shared,
    origins: &mut Origins,
) -> usize {
    let count = match receiver.receive(socket.socket.as_fd(), socket.is_unix) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
        // Errors of single datagrams (a host that is unreachable) do not stay with the socket.
        Err(error) => {
            tracing::debug!(%error, "cannot read statsd datagrams");
            return 0;
        }
    };
    let mut batch = shared.batch();
    for datagram in receiver.datagrams() {
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
fn nap(socket: &DatagramSocket) -> Duration {
    let datagrams = match socket.is_unix {
        // Who sends over a UNIX socket waits when this many are unread: nothing is lost, but time is.
        true => std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
        false => {
            rustix::net::sockopt::socket_recv_buffer_size(&socket.socket).unwrap_or(0)
                / SMALL_DATAGRAM
        }
    };
    let micros = datagrams / 4 * 1000 / PER_MILLISECOND;
    Duration::from_micros(micros as u64).min(NAP_MAX)
}
