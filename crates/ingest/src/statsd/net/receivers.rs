//! The threads that read UDP sockets: one as long as it keeps up, more while a socket stays full.
//!
//! The first thread waits for datagrams. When several calls in a row came back full, it calls a second one for help, which
//! may call a third; each goes back to sleep as soon as a call is not full. No socket is opened or closed for that, so
//! that nothing in a buffer is lost and no sender's datagrams move to another socket.
//!
//! Datagrams of one socket reach the table in the order in which they came, or a gauge would show an old value and a
//! cumulative counter count twice: a thread receives while it has the socket's turn, and keeps the turn until it has the
//! table. So one thread receives while another one adds up, also where a single sender fills a single socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::super::batch::Shared;
use super::datagrams::apply;
use super::origins::Origins;
use super::receive::{BATCH, Receiver};
use super::stop::Stop;
use super::trouble::{Backoff, is_passing};

/// After a call that brought fewer than this, more are let gather: waking up costs more than a datagram.
const FEW: usize = BATCH / 2;
/// What a datagram takes of the receive buffer, its headers included, where it is small.
const SMALL_DATAGRAM: usize = 1280;
/// More datagrams than this come in no millisecond: what one core can send.
const PER_MILLISECOND: usize = 500;
const NAP_MAX: Duration = Duration::from_millis(1);
/// After this many full calls in a row help is called for; sooner where the buffer is small.
const FULL_CALLS: usize = 8;

/// How long what came before the end is read: senders that never pause must not keep the agent from ending.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The UDP sockets and all that their threads share.
#[derive(Debug)]
pub(crate) struct Receivers {
    sockets: Vec<Socket>,
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    helpers: Mutex<Helpers>,
    call: Condvar,
}

#[derive(Debug)]
struct Socket {
    descriptor: OwnedFd,
    /// Held while datagrams are received, until the table is held.
    turn: Mutex<()>,
    nap: Duration,
    full_calls: usize,
}

#[derive(Debug, Default)]
struct Helpers {
    asleep: usize,
    /// How many of those that are asleep shall wake up.
    called: usize,
    is_over: bool,
}

impl Receivers {
    pub fn new(sockets: Vec<OwnedFd>, shared: Arc<Shared>, stop: Arc<Stop>) -> Receivers {
        Receivers {
            sockets: sockets.into_iter().map(Socket::new).collect(),
            shared,
            stop,
            helpers: Mutex::default(),
            call: Condvar::new(),
        }
    }

    /// Reads until `stop`, and then what came before it. After a call that brought few it naps shortly, so that the
    /// next one brings many.
    pub fn lead(&self, origins: Origins) -> io::Result<()> {
        let mut worker = Worker::new(self, origins);
        let result = self.lead_until_stop(&mut worker);
        self.helpers().is_over = true;
        self.call.notify_all();
        result
    }

    fn lead_until_stop(&self, worker: &mut Worker<'_>) -> io::Result<()> {
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
                while worker.round(&all) > 0 && Instant::now() < deadline {}
                return Ok(());
            }
            if worker.round(&ready) < FEW {
                let naps = ready.iter().map(|&at| self.sockets[at].nap);
                std::thread::sleep(naps.min().unwrap_or(NAP_MAX));
            }
        }
    }

    /// Reads when it is called, as long as calls come back full.
    pub fn help(&self, origins: Origins) {
        let mut worker = Worker::new(self, origins);
        let all: Vec<usize> = (0..self.sockets.len()).collect();
        while self.wait_for_call() {
            self.shared.helping.fetch_add(1, Ordering::Relaxed);
            while worker.round(&all) == BATCH {}
            self.shared.helping.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn wait_for_call(&self) -> bool {
        let mut helpers = self.helpers();
        helpers.asleep += 1;
        while helpers.called == 0 && !helpers.is_over {
            let waited = self.call.wait(helpers);
            helpers = waited.unwrap_or_else(PoisonError::into_inner);
        }
        helpers.asleep -= 1;
        helpers.called = helpers.called.saturating_sub(1);
        !helpers.is_over
    }

    fn call_one(&self) {
        let mut helpers = self.helpers();
        if helpers.asleep > helpers.called {
            helpers.called += 1;
            self.call.notify_one();
        }
    }

    fn helpers(&self) -> MutexGuard<'_, Helpers> {
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket {
    fn new(descriptor: OwnedFd) -> Socket {
        let bytes = rustix::net::sockopt::socket_recv_buffer_size(&descriptor).unwrap_or(0);
        // What surely fits, with a margin of four.
        let datagrams = bytes / SMALL_DATAGRAM / 4;
        let nap = Duration::from_micros((datagrams * 1000 / PER_MILLISECOND) as u64);
        Socket {
            descriptor,
            turn: Mutex::new(()),
            nap: nap.min(NAP_MAX),
            full_calls: (datagrams / BATCH).clamp(1, FULL_CALLS),
        }
    }
}

/// What one thread has for itself.
struct Worker<'a> {
    group: &'a Receivers,
    receiver: Receiver,
    origins: Origins,
    backoff: Backoff,
    /// Full calls in a row.
    full: usize,
}

impl<'a> Worker<'a> {
    fn new(group: &'a Receivers, origins: Origins) -> Worker<'a> {
        Worker {
            group,
            receiver: Receiver::new(),
            origins,
            backoff: Backoff::new(),
            full: 0,
        }
    }

    /// One call for each of these sockets that no other thread receives from; where there is none, the first one in its
    /// turn. Returns the most datagrams that a call brought.
    fn round(&mut self, sockets: &[usize]) -> usize {
        let group = self.group;
        let (mut most, mut is_any_free) = (0, false);
        for &at in sockets {
            let turn = match group.sockets[at].turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            is_any_free = true;
            most = most.max(self.take(&group.sockets[at], turn));
        }
        if let (false, Some(&first)) = (is_any_free, sockets.first()) {
            let turn = group.sockets[first].turn.lock();
            let turn = turn.unwrap_or_else(PoisonError::into_inner);
            most = self.take(&group.sockets[first], turn);
        }
        most
    }

    /// One call for one socket.
    fn take(&mut self, socket: &Socket, turn: MutexGuard<'_, ()>) -> usize {
        let shared = &self.group.shared;
        let received = self
            .receiver
            .receive(socket.descriptor.as_fd(), false, false);
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                drop(turn);
                self.full = 0;
                if !is_passing(&error) {
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
        self.full = if count == BATCH { self.full + 1 } else { 0 };
        if self.full >= socket.full_calls {
            self.full = 0;
            self.group.call_one();
        }
        count
    }
}

/// How many threads and sockets are used where the configuration leaves it open: a quarter of the cores, up to four.
pub(crate) fn automatic() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(1, 4)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use pegel_metric::Input;

    use super::super::bind::tests::Told;
    use super::*;
    use crate::gate::Gate;
    use crate::statsd::table::Change;
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

    fn total(shared: &Shared) -> Vec<f64> {
        let mut changes: Vec<Change> = Vec::new();
        while shared.table().take_changes(1024, &mut changes) {}
        changes.iter().filter_map(|change| change.value).collect()
    }

    fn origins(gate: &Arc<Gate>) -> Origins {
        Origins::new(gate.clone(), Arc::new(Told))
    }

    #[test]
    fn several_threads_keep_the_order_of_a_socket_and_lose_nothing() {
        // Any datagram that overtakes another one would count in full: the sender seems to have started anew.
        const ROUNDS: u32 = 200;
        const DATAGRAMS: u32 = 100;
        let (descriptors, senders) = sockets(1);
        let (shared, gate) = shared();
        let stop = Arc::new(Stop::new().expect("a descriptor"));
        let group = Receivers::new(descriptors, shared.clone(), stop);
        for round in 0..ROUNDS {
            for number in 1..=DATAGRAMS {
                let line = format!("own:{}|C", round * DATAGRAMS + number);
                senders[0].send(line.as_bytes()).expect("sent");
            }
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut worker = Worker::new(&group, origins(&gate));
                        while worker.round(&[0]) > 0 {}
                    });
                }
            });
        }
        assert_eq!(total(&shared), [f64::from(ROUNDS * DATAGRAMS)]);
        let kept = gate.ledger().kept_total(Input::Statsd);
        assert_eq!(kept, u64::from(ROUNDS * DATAGRAMS));
    }

    #[test]
    fn help_comes_when_a_socket_stays_full_and_goes_when_it_is_read() {
        let (descriptors, senders) = sockets(2);
        let (shared, gate) = shared();
        let stop = Arc::new(Stop::new().expect("a descriptor"));
        let group = Receivers::new(descriptors, shared.clone(), stop.clone());
        let needed = group.sockets[0].full_calls;
        std::thread::scope(|scope| {
            scope.spawn(|| group.help(origins(&gate)));
            while group.helpers().asleep == 0 {
                std::thread::yield_now();
            }
            let mut worker = Worker::new(&group, origins(&gate));
            let mut fill = |datagrams: usize| {
                for _ in 0..datagrams {
                    senders[0].send(b"c:1|c").expect("sent");
                }
                worker.round(&[0]);
            };
            for _ in 1..needed {
                fill(BATCH);
            }
            fill(1);
            assert_eq!(group.helpers().called, 0, "it kept up");
            for _ in 0..needed {
                fill(BATCH);
            }
            // It reads until a call is not full, and sleeps again.
            let is_idle = || {
                let helpers = group.helpers();
                helpers.called == 0 && helpers.asleep == 1
            };
            while !is_idle() {
                std::thread::yield_now();
            }
            stop.now();
            group.lead(origins(&gate)).expect("told to stop");
        });
        let sent = (2 * needed - 1) * BATCH + 1;
        assert_eq!(total(&shared), [sent as f64]);
    }
}
