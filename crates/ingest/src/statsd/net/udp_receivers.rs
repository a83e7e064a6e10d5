//! The threads that read UDP sockets: one while it keeps up, more while a socket stays full.
//!
//! The first thread waits for datagrams. After several full receive calls in a row it wakes a
//! second thread, which may wake a third; each sleeps again after its first call that is not full.
//! No socket is opened or closed for that, so nothing in a buffer is lost and no sender's datagrams
//! move to another socket.
//!
//! Datagrams of one socket must reach the table in order, or a gauge would show an old value and a
//! cumulative counter would count twice: a thread receives while it holds the socket's
//! `receive_lock` and releases it only once it holds the table's lock. So one thread can receive
//! while another updates the table, even for a single sender on a single socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, poll};

use super::super::line_batch::StatsdContext;
use super::datagram_receiver::{DATAGRAMS_PER_CALL, DatagramReceiver};
use super::datagrams::apply;
use super::origin_cache::OriginCache;
use super::socket_errors::{Backoff, is_transient};
use super::stop_signal::StopSignal;

/// After a call that returned fewer datagrams, the thread pauses until more have arrived: a wake-up
/// costs more than a datagram.
const FEW_DATAGRAMS: usize = DATAGRAMS_PER_CALL / 2;
/// The space of a small datagram in the receive buffer, headers included.
const SMALL_DATAGRAM: usize = 1280;
/// The most datagrams that arrive in a millisecond: what one core can send.
const PER_MILLISECOND: usize = 500;
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// A helper is woken after this many full calls in a row; sooner where the buffer is small.
const FULL_CALLS: usize = 8;

/// The longest time for reading what arrived before the stop: senders that never pause must not
/// delay it.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The UDP sockets and the state that their threads share.
#[derive(Debug)]
pub(crate) struct UdpReceivers {
    sockets: Vec<ReceiverSocket>,
    shared: Arc<StatsdContext>,
    stop: Arc<StopSignal>,
    helpers: Mutex<HelperState>,
    woken: Condvar,
}

#[derive(Debug)]
struct ReceiverSocket {
    descriptor: OwnedFd,
    /// Locked while datagrams are received, until the table is locked.
    receive_lock: Mutex<()>,
    pause: Duration,
    full_calls: usize,
}

#[derive(Debug, Default)]
struct HelperState {
    asleep: usize,
    /// The number of sleeping helpers to wake.
    wake_ups: usize,
    is_stopping: bool,
}

impl UdpReceivers {
    pub(crate) fn new(
        sockets: Vec<OwnedFd>,
        shared: Arc<StatsdContext>,
        stop: Arc<StopSignal>,
    ) -> UdpReceivers {
        UdpReceivers {
            sockets: sockets.into_iter().map(ReceiverSocket::new).collect(),
            shared,
            stop,
            helpers: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    /// Runs the first thread: reads until `stop`, then what arrived before it. After a call that
    /// returned few datagrams it pauses briefly, so that the next call returns many.
    pub(crate) fn run_first(&self, origins: OriginCache) -> io::Result<()> {
        let mut worker = ReceiveWorker::new(self, origins);
        let result = self.receive_until_stop(&mut worker);
        self.helpers().is_stopping = true;
        self.woken.notify_all();
        result
    }

    fn receive_until_stop(&self, worker: &mut ReceiveWorker<'_>) -> io::Result<()> {
        let sockets = self.sockets.iter().map(|socket| socket.descriptor.as_fd());
        let all: Vec<BorrowedFd<'_>> = sockets.chain([self.stop.as_fd()]).collect();
        let mut polled: Vec<PollFd<'_>> = all
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        loop {
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let is_ready = |at: &usize| !polled[*at].revents().is_empty();
            let ready: Vec<usize> = (0..self.sockets.len()).filter(is_ready).collect();
            if is_ready(&self.sockets.len()) {
                let all: Vec<usize> = (0..self.sockets.len()).collect();
                let deadline = Instant::now() + DRAIN_MAX;
                while worker.receive_all(&all) > 0 && Instant::now() < deadline {}
                return Ok(());
            }
            if worker.receive_all(&ready) < FEW_DATAGRAMS {
                let pauses = ready.iter().map(|&at| self.sockets[at].pause);
                std::thread::sleep(pauses.min().unwrap_or(PAUSE_MAX));
            }
        }
    }

    /// Runs a helper thread: when it is woken, it reads until a call is not full.
    pub(crate) fn run_helper(&self, origins: OriginCache) {
        let mut worker = ReceiveWorker::new(self, origins);
        let all: Vec<usize> = (0..self.sockets.len()).collect();
        while self.wait_to_be_woken() {
            self.shared.active_helpers.fetch_add(1, Ordering::Relaxed);
            while worker.receive_all(&all) == DATAGRAMS_PER_CALL {}
            self.shared.active_helpers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn wait_to_be_woken(&self) -> bool {
        let mut helpers = self.helpers();
        helpers.asleep += 1;
        while helpers.wake_ups == 0 && !helpers.is_stopping {
            self.woken.wait(&mut helpers);
        }
        helpers.asleep -= 1;
        helpers.wake_ups = helpers.wake_ups.saturating_sub(1);
        !helpers.is_stopping
    }

    fn wake_helper(&self) {
        let mut helpers = self.helpers();
        if helpers.asleep > helpers.wake_ups {
            helpers.wake_ups += 1;
            self.woken.notify_one();
        }
    }

    fn helpers(&self) -> MutexGuard<'_, HelperState> {
        self.helpers.lock()
    }
}

impl ReceiverSocket {
    fn new(descriptor: OwnedFd) -> ReceiverSocket {
        let bytes = rustix::net::sockopt::socket_recv_buffer_size(&descriptor).unwrap_or(0);
        // The number that certainly fits, with a safety factor of four.
        let datagrams = bytes / SMALL_DATAGRAM / 4;
        let pause = Duration::from_micros((datagrams * 1000 / PER_MILLISECOND) as u64);
        ReceiverSocket {
            descriptor,
            receive_lock: Mutex::new(()),
            pause: pause.min(PAUSE_MAX),
            full_calls: (datagrams / DATAGRAMS_PER_CALL).clamp(1, FULL_CALLS),
        }
    }
}

/// The state of one thread.
struct ReceiveWorker<'a> {
    group: &'a UdpReceivers,
    receiver: DatagramReceiver,
    origins: OriginCache,
    backoff: Backoff,
    /// Full calls in a row, for each socket: one that is nearly empty must not hide another that is
    /// full.
    full: Vec<usize>,
}

impl<'a> ReceiveWorker<'a> {
    fn new(group: &'a UdpReceivers, origins: OriginCache) -> ReceiveWorker<'a> {
        ReceiveWorker {
            group,
            receiver: DatagramReceiver::new(),
            origins,
            backoff: Backoff::new(),
            full: vec![0; group.sockets.len()],
        }
    }

    /// Makes one receive call for each of these sockets that no other thread receives from; if all
    /// are busy, waits for the first. Returns the most datagrams that a call returned.
    fn receive_all(&mut self, sockets: &[usize]) -> usize {
        let group = self.group;
        let (mut most, mut is_any_free) = (0, false);
        for &at in sockets {
            let Some(turn) = group.sockets[at].receive_lock.try_lock() else {
                continue;
            };
            is_any_free = true;
            most = most.max(self.receive_from(at, turn));
        }
        if !is_any_free && let Some(&first) = sockets.first() {
            let turn = group.sockets[first].receive_lock.lock();
            most = self.receive_from(first, turn);
        }
        most
    }

    /// Makes one receive call for one socket. Returns the number of datagrams.
    fn receive_from(&mut self, at: usize, turn: MutexGuard<'_, ()>) -> usize {
        let (shared, socket) = (&self.group.shared, &self.group.sockets[at]);
        let received = self
            .receiver
            .receive(socket.descriptor.as_fd(), false, false);
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                drop(turn);
                self.full[at] = 0;
                if !is_transient(&error) {
                    let (errors, stop) = (&shared.errors, &self.group.stop);
                    let what = "receive from a UDP socket";
                    self.backoff.wait(errors, what, &error, stop);
                }
                return 0;
            }
        };
        self.backoff.succeeded();
        let batch = shared.batch();
        drop(turn);
        apply(batch, &self.receiver, &mut self.origins);
        let full = &mut self.full[at];
        *full = if count == DATAGRAMS_PER_CALL {
            *full + 1
        } else {
            0
        };
        if *full >= socket.full_calls {
            *full = 0;
            self.group.wake_helper();
        }
        count
    }
}

/// Returns the number of threads and sockets for `auto`: a quarter of the cores, up to four.
pub(crate) fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(1, 4)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use pegel_metric::Input;

    use super::super::bind::tests::FixedPeerPolicy;
    use super::*;
    use crate::admission::Admission;
    use crate::statsd::table::{ChangedWriters, SeriesValueChange};
    use crate::statsd::tests::shared;

    /// Sockets with a buffer that never overflows here, and one sender for each.
    fn sockets(count: usize) -> (Vec<OwnedFd>, Vec<UdpSocket>) {
        let pairs = (0..count).map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.set_nonblocking(true).expect("a socket");
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            sender
                .connect(socket.local_addr().expect("bound"))
                .expect("an address");
            (OwnedFd::from(socket), sender)
        });
        pairs.unzip()
    }

    fn total(shared: &StatsdContext) -> Vec<f64> {
        let mut changes: Vec<SeriesValueChange> = Vec::new();
        while shared
            .table()
            .take_changes(ChangedWriters::Statsd, 1024, &mut changes)
        {}
        changes.iter().filter_map(|change| change.value).collect()
    }

    fn origins(admission: &Arc<Admission>) -> OriginCache {
        OriginCache::new(admission.clone(), Arc::new(FixedPeerPolicy))
    }

    #[test]
    fn several_threads_keep_the_order_of_a_socket_and_lose_nothing() {
        // A datagram that overtakes another would count in full: the sender seems to have
        // restarted.
        const ROUNDS: u32 = 200;
        const DATAGRAMS: u32 = 100;
        let (descriptors, senders) = sockets(1);
        let (shared, admission) = shared();
        let stop = Arc::new(StopSignal::new().expect("a descriptor"));
        let group = UdpReceivers::new(descriptors, shared.clone(), stop);
        for round in 0..ROUNDS {
            for number in 1..=DATAGRAMS {
                let line = format!("own:{}|C", round * DATAGRAMS + number);
                senders[0].send(line.as_bytes()).expect("sent");
            }
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut worker = ReceiveWorker::new(&group, origins(&admission));
                        while worker.receive_all(&[0]) > 0 {}
                    });
                }
            });
        }
        assert_eq!(total(&shared), [f64::from(ROUNDS * DATAGRAMS)]);
        let kept = admission.ledger().kept_total(Input::Statsd);
        assert_eq!(kept, u64::from(ROUNDS * DATAGRAMS));
    }

    #[test]
    fn help_comes_when_a_socket_stays_full_and_goes_when_it_is_read() {
        let (descriptors, senders) = sockets(2);
        let (shared, admission) = shared();
        let stop = Arc::new(StopSignal::new().expect("a descriptor"));
        let group = UdpReceivers::new(descriptors, shared.clone(), stop.clone());
        let needed = group.sockets[0].full_calls;
        std::thread::scope(|scope| {
            scope.spawn(|| group.run_helper(origins(&admission)));
            while group.helpers().asleep == 0 {
                std::thread::yield_now();
            }
            let mut worker = ReceiveWorker::new(&group, origins(&admission));
            let mut fill = |datagrams: usize| {
                for _ in 0..datagrams {
                    senders[0].send(b"c:1|c").expect("sent");
                }
                worker.receive_all(&[0]);
            };
            for _ in 1..needed {
                fill(DATAGRAMS_PER_CALL);
            }
            fill(1);
            assert_eq!(group.helpers().wake_ups, 0, "it kept up");
            for _ in 0..needed {
                fill(DATAGRAMS_PER_CALL);
            }
            // It reads until a call is not full, and sleeps again.
            let is_idle = || {
                let helpers = group.helpers();
                helpers.wake_ups == 0 && helpers.asleep == 1
            };
            while !is_idle() {
                std::thread::yield_now();
            }
            stop.trigger();
            group
                .run_first(origins(&admission))
                .expect("it ends after the stop signal");
        });
        let sent = (2 * needed - 1) * DATAGRAMS_PER_CALL + 1;
        assert_eq!(total(&shared), [sent as f64]);
    }
}
