//! Applies datagrams to the table, and reads them from a UNIX socket.
//!
//! Used by the threads of UDP sockets and by the thread of the UNIX datagram socket. A truncated
//! datagram loses only its last, incomplete line, which is counted as dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use pegel_metric::DropReason;

use super::super::line_batch::{StatsdBatch, StatsdContext};
use super::datagram_receiver::DatagramReceiver;
use super::origin_cache::OriginCache;
use super::socket_errors::{Backoff, is_transient};
use super::stop_signal::StopSignal;

/// Reads a UNIX socket until `stop`, which also shuts the socket down: that wakes this thread. A
/// sender blocks when ten datagrams are unread, so they are read at once rather than in larger
/// batches.
pub(crate) fn read_unix_datagrams(
    socket: &OwnedFd,
    shared: &StatsdContext,
    mut origins: OriginCache,
    stop: &StopSignal,
) {
    let (mut receiver, mut backoff) = (DatagramReceiver::new(), Backoff::new());
    let mut take = |wait: bool| -> io::Result<usize> {
        let count = receiver.receive(socket.as_fd(), true, wait)?;
        apply(shared.batch(), &receiver, &mut origins);
        Ok(count)
    };
    while !stop.is_triggered() {
        match take(true) {
            Ok(_) => backoff.succeeded(),
            Err(error) if is_transient(&error) => {}
            Err(error) => {
                let what = "receive from the UNIX datagram socket";
                backoff.wait(&shared.errors, what, &error, stop);
            }
        }
    }
    while take(false).is_ok_and(|count| count > 0) {}
}

/// Applies the datagrams of one receive call to the table.
pub(super) fn apply(
    mut batch: StatsdBatch<'_>,
    receiver: &DatagramReceiver,
    origins: &mut OriginCache,
) {
    for datagram in receiver
        .datagrams()
        .filter(|datagram| !datagram.bytes.is_empty())
    {
        let (origin, may_write) = origins.origin_of_datagram(datagram.source);
        if !may_write {
            let lines = pegel_wire::statsd::StatsdLines::new(datagram.bytes).count() as u64;
            batch.count_dropped(DropReason::Denied, lines, origin);
        } else if datagram.is_truncated {
            // The last line is incomplete.
            let whole = memchr::memrchr(b'\n', datagram.bytes).map_or(0, |end| end + 1);
            batch.apply_lines(&datagram.bytes[..whole], origin);
            batch.count_dropped(DropReason::Malformed, 1, origin);
        } else {
            batch.apply_lines(datagram.bytes, origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::bind::tests::FixedPeerPolicy;
    use super::*;
    use crate::statsd::tests::shared;

    #[test]
    fn a_socket_whose_error_stays_is_left_alone_for_longer_and_longer() {
        let (shared, admission) = shared();
        let stop = Arc::new(StopSignal::new().expect("a descriptor"));
        let origins = OriginCache::new(admission, Arc::new(FixedPeerPolicy));
        let thread = {
            let (shared, stop) = (shared.clone(), stop.clone());
            // A regular file is never a socket: every call fails.
            let file = std::fs::File::open("/dev/null").expect("it is always there");
            let file = OwnedFd::from(file);
            std::thread::spawn(move || read_unix_datagrams(&file, &shared, origins, &stop))
        };
        std::thread::sleep(Duration::from_millis(300));
        stop.trigger();
        thread.join().expect("it ends after the stop signal");
        // 1 + 2 + 4 + … ms: at most nine pauses fit into 300 ms.
        let count = shared.errors.count();
        assert!((1..=10).contains(&count), "{count} errors");
        let last = shared.errors.last().expect("an error");
        assert!(last.starts_with("receive from the UNIX"), "{last}");
    }
}
