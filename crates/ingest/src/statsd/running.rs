//! statsd as the agent starts and stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use pegel_metric::{Input, Millis, Reason};
use pegel_store::Store;

use super::batch::Shared;
use super::door::Door;
use super::figures::Figures;
use super::net::{
    BindError, Bound, Drops, Listeners, Origins, Sockets, Stop, StreamLimits, bind, read_datagrams,
    read_streams,
};
use super::settings::{Place, StatsdKeys};
use super::source::Published;
use super::table::{Origin, Table};
use crate::board::Board;
use crate::gate::Gate;
use crate::pulse::Source;

/// Where to listen, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    pub udp: Vec<SocketAddr>,
    pub tcp: Vec<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub unix_stream: Option<PathBuf>,
    pub port_search: bool,
    pub threads: usize,
    pub receive_buffer: usize,
    pub connections: usize,
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
            threads: keys.threads.get().min(64) as usize,
            receive_buffer: usize::try_from(keys.receive_buffer.count()).unwrap_or(usize::MAX),
            connections: 256,
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
            keys: StatsdKeys::default(),
        }
    }
}

/// Bound, running, and stopped when dropped.
#[derive(Debug)]
pub struct Statsd {
    shared: Arc<Shared>,
    sockets: Option<Sockets>,
    bound: Bound,
    door: Arc<dyn Door>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    limits: StreamLimits,
    keys: StatsdKeys,
}

impl Statsd {
    /// Takes the addresses. Nothing is read before [`Statsd::start`]: what comes meanwhile waits in the kernel.
    pub fn bind(plan: &Plan, gate: &Arc<Gate>, door: Arc<dyn Door>) -> Result<Statsd, BindError> {
        let sockets = bind(plan, &*door)?;
        let memory = usize::try_from(plan.keys.memory.count()).unwrap_or(usize::MAX);
        let table = Table::new(Figures::new(&plan.keys), memory);
        Ok(Statsd {
            shared: Arc::new(Shared::new(table, gate.clone())),
            bound: sockets.bound.clone(),
            sockets: Some(sockets),
            door,
            stop: Arc::new(Stop::new().map_err(BindError::Threads)?),
            threads: Vec::new(),
            limits: StreamLimits {
                connections: plan.connections,
                silence: Duration::from_secs(600),
                patience: Duration::from_secs(10),
            },
            keys: plan.keys.clone(),
        })
    }

    /// What the pulse asks at each tick.
    pub fn source(&self, store: &Store, now: Millis) -> Result<Box<dyn Source>, BindError> {
        let mut drops = Vec::new();
        let datagrams = self.sockets.iter().flat_map(|sockets| &sockets.datagrams);
        for socket in datagrams.flatten().filter(|socket| !socket.is_unix) {
            let sender = self.shared.gate.sender(Input::Statsd, "kernel");
            drops.push(Drops::new(&socket.socket, sender).map_err(BindError::Threads)?);
        }
        let board = Board::new("statsd", store, now);
        let flush = self.keys.flush.duration();
        Ok(Box::new(Published::new(
            self.shared.clone(),
            drops,
            board,
            flush,
        )))
    }

    /// Starts the threads that read.
    pub fn start(&mut self) -> Result<(), BindError> {
        let Some(sockets) = self.sockets.as_mut() else {
            return Ok(());
        };
        let per_thread = std::mem::take(&mut sockets.datagrams);
        for datagrams in per_thread.into_iter().filter(|sockets| !sockets.is_empty()) {
            let (shared, stop, origins) = (self.shared.clone(), self.stop.clone(), self.origins());
            self.spawn("statsd", move || {
                read_datagrams(&datagrams, &shared, origins, &stop)
            })?;
        }
        let Some(sockets) = self.sockets.as_mut() else {
            return Ok(());
        };
        let listeners = Listeners {
            tcp: std::mem::take(&mut sockets.tcp),
            unix: sockets.unix_stream.take(),
        };
        if !listeners.tcp.is_empty() || listeners.unix.is_some() {
            let (shared, stop, origins) = (self.shared.clone(), self.stop.clone(), self.origins());
            let (door, limits) = (self.door.clone(), self.limits);
            self.spawn("statsd-streams", move || {
                read_streams(&listeners, limits, &shared, origins, &door, &stop);
            })?;
        }
        Ok(())
    }

    fn origins(&self) -> Origins {
        Origins::new(self.shared.gate.clone(), self.door.clone())
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), BindError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(body).map_err(BindError::Threads)?;
        self.threads.push(thread);
        Ok(())
    }

    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Takes lines that came another way, such as the push socket. Says why, where any of it was dropped.
    pub fn take(&self, lines: &[u8], origin: &Origin) -> Result<(), Reason> {
        let mut batch = self.shared.batch();
        batch.take(lines, origin);
        batch.dropped_for().map_or(Ok(()), Err)
    }

    /// Events and service checks that came so far.
    pub fn events(&self) -> (u64, u64) {
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.shared.events), read(&self.shared.checks))
    }

    /// Reads what the kernel holds, then ends the threads.
    pub fn stop(&mut self) {
        self.stop.now();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Statsd {
    fn drop(&mut self) {
        self.stop();
    }
}
