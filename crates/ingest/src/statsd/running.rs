//! statsd as the agent starts and stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegel_metric::{Input, Millis, Reason};
use pegel_store::Store;
use pegel_supervisor::{CriticalThread, Supervisor};
use serde::Serialize;

use super::batch::Shared;
use super::door::Door;
use super::figures::Figures;
use super::net::{
    BindError, Bound, Drops, Listeners, Origins, Receivers, Sockets, Stop, StreamLimits, bind,
    default_threads, read_streams, read_unix_datagrams,
};
use super::settings::{Place, StatsdKeys, Threads};
use super::source::Published;
use super::table::{Origin, Table};
use crate::board::Board;
use crate::gate::Gate;
use crate::points::Points;
use crate::pulse::Source;

/// A connection that says nothing for this long is closed.
const SILENCE: Duration = Duration::from_secs(600);
/// When there are too many, the one that was silent longest makes room after this long.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 256;

/// Where to listen, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    pub udp: Vec<SocketAddr>,
    pub tcp: Vec<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub unix_stream: Option<PathBuf>,
    pub port_search: bool,
    /// The number of UDP sockets for each address, and of threads for all of them.
    pub threads: usize,
    pub receive_buffer: usize,
    pub connections: usize,
    /// Supervises the threads that read.
    pub supervisor: Supervisor,
    /// What becomes of the lines.
    pub keys: StatsdKeys,
}

impl Plan {
    /// What the configuration says; `socket` is the push socket, beside which the others are.
    pub fn new(keys: &StatsdKeys, socket: Option<&Path>, port_search: bool) -> Plan {
        let place = |place: &Place, name: &str| match place {
            Place::Off => None,
            Place::At(path) => Some(path.clone()),
            Place::Auto => Some(socket?.with_file_name(name)),
        };
        Plan {
            udp: keys.udp.iter().map(|address| address.socket()).collect(),
            tcp: keys.tcp.iter().map(|address| address.socket()).collect(),
            unix: place(&keys.unix, "statsd.sock"),
            unix_stream: place(&keys.unix_stream, "statsd-stream.sock"),
            port_search,
            threads: match keys.threads {
                Threads::Auto => default_threads(),
                Threads::Count(count) => count.get().min(64) as usize,
            },
            receive_buffer: usize::try_from(keys.receive_buffer.count()).unwrap_or(usize::MAX),
            connections: CONNECTIONS,
            supervisor: Supervisor::default(),
            keys: keys.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn nowhere() -> Plan {
        Plan {
            udp: Vec::new(),
            tcp: Vec::new(),
            unix: None,
            unix_stream: None,
            port_search: false,
            threads: 1,
            receive_buffer: 1 << 20,
            connections: 4,
            supervisor: Supervisor::default(),
            keys: StatsdKeys::default(),
        }
    }
}

/// The state of the statsd receivers.
#[derive(Debug, Clone, Serialize)]
pub struct StatsdStatus {
    /// Helper threads that read UDP sockets now, besides the first thread.
    pub helping_threads: usize,
    /// Failed calls on all sockets.
    pub socket_errors: u64,
    pub last_error: Option<String>,
}

/// The metrics themselves, however their lines come.
#[derive(Debug)]
pub struct Statsd {
    shared: Arc<Shared>,
    flush: Duration,
}

impl Statsd {
    pub fn new(keys: &StatsdKeys, gate: &Arc<Gate>) -> Statsd {
        let memory = usize::try_from(keys.memory.count()).unwrap_or(usize::MAX);
        let table = Table::new(Figures::new(keys), memory);
        Statsd {
            shared: Arc::new(Shared::new(table, gate.clone())),
            flush: keys.flush.duration(),
        }
    }

    /// Takes lines that came another way than over sockets of statsd's own. Says why, where any of it was dropped.
    pub fn take(&self, lines: &[u8], origin: &Origin) -> Result<(), Reason> {
        let mut batch = self.shared.batch();
        batch.take(lines, origin);
        batch.dropped_for().map_or(Ok(()), Err)
    }

    /// Returns the state of the receivers, for `/status`.
    pub fn status(&self) -> StatsdStatus {
        StatsdStatus {
            helping_threads: self.shared.helping.load(Ordering::Relaxed),
            socket_errors: self.shared.errors.count(),
            last_error: self.shared.errors.last(),
        }
    }

    /// What the pulse asks at each tick.
    pub fn source(
        &self,
        listening: &Listening,
        points: &Arc<Points>,
        store: &Store,
        now: Millis,
    ) -> Box<dyn Source> {
        let board = Board::new("statsd", store, now);
        let drops = listening.drops(&self.shared.gate);
        Box::new(Published::new(
            self.shared.clone(),
            drops,
            points.clone(),
            board,
            self.flush,
            now,
        ))
    }
}

/// Sockets that are bound, and threads that read them. Stopped when dropped.
#[derive(Debug)]
pub struct Listening {
    shared: Arc<Shared>,
    sockets: Sockets,
    door: Arc<dyn Door>,
    stop: Arc<Stop>,
    supervisor: Supervisor,
    threads: Vec<CriticalThread>,
    readers: usize,
    limits: StreamLimits,
}

impl Listening {
    /// Takes the addresses. Nothing is read before [`Listening::start`]: what comes meanwhile waits in the kernel.
    pub fn bind(statsd: &Statsd, plan: &Plan, door: Arc<dyn Door>) -> Result<Listening, BindError> {
        Ok(Listening {
            shared: statsd.shared.clone(),
            sockets: bind(plan, &*door)?,
            door,
            stop: Arc::new(Stop::new().map_err(BindError::Threads)?),
            supervisor: plan.supervisor.clone(),
            threads: Vec::new(),
            readers: plan.threads.max(1),
            limits: StreamLimits {
                connections: plan.connections,
                silence: SILENCE,
                patience: PATIENCE,
            },
        })
    }

    pub fn bound(&self) -> &Bound {
        &self.sockets.bound
    }

    fn drops(&self, gate: &Gate) -> Vec<Drops> {
        // Who sends over a UNIX socket waits: there the kernel drops nothing.
        let all = self.sockets.udp.iter();
        all.filter_map(|socket| {
            let sender = gate.sender(Input::Statsd, "kernel");
            Drops::new(socket, sender).ok()
        })
        .collect()
    }

    /// Starts the threads that read.
    pub fn start(&mut self) -> Result<(), BindError> {
        self.start_receivers()?;
        if let Some(socket) = &self.sockets.unix {
            let socket = socket.try_clone().map_err(BindError::Threads)?;
            let (shared, stop, origins) = self.for_thread();
            self.spawn("statsd-unix", move || {
                read_unix_datagrams(&socket, &shared, origins, &stop);
            })?;
        }
        let listeners = Listeners {
            tcp: std::mem::take(&mut self.sockets.tcp),
            unix: self.sockets.unix_stream.take(),
        };
        if listeners.tcp.is_empty() && listeners.unix.is_none() {
            return Ok(());
        }
        let (shared, stop, origins) = self.for_thread();
        let (door, limits) = (self.door.clone(), self.limits);
        self.spawn("statsd-streams", move || {
            read_streams(&listeners, limits, &shared, origins, &door, &stop);
        })
    }

    fn start_receivers(&mut self) -> Result<(), BindError> {
        let sockets = std::mem::take(&mut self.sockets.udp);
        if sockets.is_empty() {
            return Ok(());
        }
        let (shared, stop, origins) = self.for_thread();
        let receivers = Arc::new(Receivers::new(sockets, shared, stop));
        let first = receivers.clone();
        self.spawn("statsd", move || {
            if let Err(error) = first.lead(origins) {
                tracing::error!(%error, "statsd datagrams are no longer read");
            }
        })?;
        for number in 1..self.readers {
            let (helper, (_, _, origins)) = (receivers.clone(), self.for_thread());
            self.spawn(&format!("statsd-{number}"), move || helper.help(origins))?;
        }
        Ok(())
    }

    fn for_thread(&self) -> (Arc<Shared>, Arc<Stop>, Origins) {
        let origins = Origins::new(self.shared.gate.clone(), self.door.clone());
        (self.shared.clone(), self.stop.clone(), origins)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), BindError> {
        let thread = self.supervisor.thread(name).critical(|_| body());
        self.threads.push(thread.map_err(BindError::Threads)?);
        Ok(())
    }

    /// Reads what the kernel holds, then ends the threads.
    pub fn stop(&mut self) {
        self.threads.iter().for_each(CriticalThread::expect_end);
        self.stop.now();
        if let Some(socket) = &self.sockets.unix {
            // The thread that waits for it wakes up. What is queued can still be read.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Read);
        }
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop();
    }
}
