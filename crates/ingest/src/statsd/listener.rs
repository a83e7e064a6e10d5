//! The statsd input, as the agent starts and stops it.
//!
//! [`StatsdInput`] holds the table; [`StatsdListener`] binds the sockets and runs the threads that
//! read them. All addresses are bound before anything is read, so that a start that fails takes no
//! lines. On stop, everything that the kernel still holds is read before the threads end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pegel_metric::{Input, Millis};
use pegel_store::Store;
use pegel_supervisor::{CriticalThread, Supervisor};
use pegel_wire::statsd::StatsdEvent;
use serde::Serialize;

use super::line_batch::StatsdContext;
use super::line_counts::LineRefusal;
use super::net::{
    BoundAddresses, BoundSockets, KernelDropCounter, OriginCache, StatsdBindError, StopSignal,
    StreamLimits, StreamListeners, UdpReceivers, bind, default_threads, read_streams,
    read_unix_datagrams,
};
use super::peer_policy::StatsdPeerPolicy;
use super::settings::{ReceiverThreads, StatsdSettings, StatsdSocketPath};
use super::source::StatsdSource;
use super::statistics::StatisticSettings;
use super::table::{LineOrigin, StatsdTable};
use crate::admission::Admission;
use crate::current_values::CurrentValues;
use crate::marks::{IncomingMark, MarkRefusal, MarkStore};
use crate::point_writer::PointWriter;
use crate::program_sampler::ValueSource;

/// When there are too many connections, the one that was idle longest is closed if it was idle for
/// this long.
const EVICTION_IDLE_TIME: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 256;

/// The addresses to listen on, and how.
#[derive(Debug, Clone)]
pub struct StatsdListenOptions {
    pub keys: StatsdSettings,
    /// The UNIX sockets, with their default paths resolved.
    pub unix: Option<PathBuf>,
    pub unix_stream: Option<PathBuf>,
    pub port_search: bool,
    /// The number of UDP sockets for each address, and of threads for all of them.
    pub threads: usize,
    pub connections: usize,
    /// Supervises the receiving threads.
    pub supervisor: Supervisor,
}

impl StatsdListenOptions {
    /// Takes the options from the configuration; `socket` is the push socket, next to which the
    /// statsd sockets lie.
    pub fn new(
        keys: &StatsdSettings,
        socket: Option<&Path>,
        port_search: bool,
    ) -> StatsdListenOptions {
        let place = |place: &StatsdSocketPath, name: &str| match place {
            StatsdSocketPath::Off => None,
            StatsdSocketPath::Path(path) => Some(path.clone()),
            StatsdSocketPath::Auto => Some(socket?.with_file_name(name)),
        };
        StatsdListenOptions {
            unix: place(&keys.unix, "statsd.sock"),
            unix_stream: place(&keys.unix_stream, "statsd-stream.sock"),
            port_search,
            threads: match keys.threads {
                ReceiverThreads::Auto => default_threads(),
                ReceiverThreads::Count(count) => count.get().min(64) as usize,
            },
            connections: CONNECTIONS_MAX,
            supervisor: Supervisor::default(),
            keys: keys.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn without_sockets() -> StatsdListenOptions {
        use pegel_config::ByteSize;

        let keys = StatsdSettings {
            udp: Vec::new(),
            tcp: Vec::new(),
            receive_buffer: ByteSize::mebibytes(1),
            ..StatsdSettings::default()
        };
        StatsdListenOptions {
            threads: 1,
            connections: 4,
            ..StatsdListenOptions::new(&keys, None, false)
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

/// The metrics of statsd, independent of how their lines arrive.
#[derive(Debug)]
pub struct StatsdInput {
    shared: Arc<StatsdContext>,
    flush: Duration,
}

impl StatsdInput {
    pub fn new(keys: &StatsdSettings, admission: &Arc<Admission>) -> StatsdInput {
        let table = StatsdTable::new(StatisticSettings::new(keys), keys.memory.as_usize());
        StatsdInput {
            shared: Arc::new(StatsdContext::new(table, admission.clone())),
            flush: keys.flush.duration(),
        }
    }

    /// Accepts events as marks and phases, which `store` keeps. Without it they are dropped.
    pub fn set_mark_store(&self, store: Arc<dyn MarkStore>) {
        self.shared.marks.set_store(store);
    }

    /// Stores an event that did not arrive over statsd's own sockets. Waits for the disk.
    pub(crate) fn store_mark(
        &self,
        event: &StatsdEvent<'_>,
        origin: &LineOrigin,
    ) -> Result<(), MarkRefusal> {
        let mark = IncomingMark::from_event(event, origin.pid());
        let shared = &self.shared;
        shared
            .marks
            .store_now(&origin.sender, mark, &shared.admission)
    }

    /// Applies lines that did not arrive over statsd's own sockets. Returns the first reason if any
    /// value was dropped.
    pub fn apply_lines(&self, lines: &[u8], origin: &LineOrigin) -> Result<(), LineRefusal> {
        let mut batch = self.shared.batch();
        batch.apply_lines(lines, origin);
        batch.refusal().map_or(Ok(()), Err)
    }

    /// Returns the state of the receivers, for `/status`.
    pub fn status(&self) -> StatsdStatus {
        StatsdStatus {
            helping_threads: self.shared.active_helpers.load(Ordering::Relaxed),
            socket_errors: self.shared.errors.count(),
            last_error: self.shared.errors.last(),
        }
    }

    /// Returns the source that the program sampler updates at each tick.
    pub fn source(
        &self,
        listening: &StatsdListener,
        points: &Arc<PointWriter>,
        store: &Store,
        now: Millis,
    ) -> Box<dyn ValueSource> {
        let values = CurrentValues::new("statsd", store, now);
        let drops = listening.kernel_drop_counters(&self.shared.admission);
        Box::new(StatsdSource::new(
            self.shared.clone(),
            drops,
            points.clone(),
            values,
            self.flush,
            now,
        ))
    }
}

/// Bound sockets and the threads that read them. Stops when dropped.
#[derive(Debug)]
pub struct StatsdListener {
    shared: Arc<StatsdContext>,
    sockets: BoundSockets,
    peer_policy: Arc<dyn StatsdPeerPolicy>,
    stop: Arc<StopSignal>,
    supervisor: Supervisor,
    threads: Vec<CriticalThread>,
    /// Stores the marks that the other threads receive.
    mark_thread: Option<CriticalThread>,
    readers: usize,
    limits: StreamLimits,
}

impl StatsdListener {
    /// Binds the addresses. Nothing is read before [`StatsdListener::start`]: until then, datagrams
    /// wait in the kernel.
    pub fn bind(
        statsd: &StatsdInput,
        plan: &StatsdListenOptions,
        peer_policy: Arc<dyn StatsdPeerPolicy>,
    ) -> Result<StatsdListener, StatsdBindError> {
        Ok(StatsdListener {
            shared: statsd.shared.clone(),
            sockets: bind(plan, &*peer_policy)?,
            peer_policy,
            stop: Arc::new(StopSignal::new().map_err(StatsdBindError::Threads)?),
            supervisor: plan.supervisor.clone(),
            threads: Vec::new(),
            mark_thread: None,
            readers: plan.threads.max(1),
            limits: StreamLimits {
                connections: plan.connections,
                idle_timeout: plan.keys.connection_timeout.duration(),
                eviction_idle_time: EVICTION_IDLE_TIME,
            },
        })
    }

    pub fn bound_addresses(&self) -> &BoundAddresses {
        &self.sockets.bound
    }

    fn kernel_drop_counters(&self, admission: &Admission) -> Vec<KernelDropCounter> {
        // A sender over a UNIX socket blocks: the kernel drops nothing there.
        let all = self.sockets.udp.iter();
        all.filter_map(|socket| {
            let sender = admission.sender(Input::Statsd, "kernel");
            KernelDropCounter::new(socket, sender).ok()
        })
        .collect()
    }

    /// Starts the receiving threads.
    pub fn start(&mut self) -> Result<(), StatsdBindError> {
        if self.shared.marks.has_store() {
            let shared = self.shared.clone();
            let thread = self.supervisor.thread("marks");
            let thread = thread.critical(move |_| shared.marks.run(&shared.admission));
            self.mark_thread = Some(thread.map_err(StatsdBindError::Threads)?);
        }
        self.start_receivers()?;
        if let Some(socket) = &self.sockets.unix {
            let socket = socket.try_clone().map_err(StatsdBindError::Threads)?;
            let (shared, stop, origins) = self.for_thread();
            self.spawn("statsd-unix", move || {
                read_unix_datagrams(&socket, &shared, origins, &stop);
            })?;
        }
        let listeners = StreamListeners {
            tcp: std::mem::take(&mut self.sockets.tcp),
            unix: self.sockets.unix_stream.take(),
        };
        if listeners.tcp.is_empty() && listeners.unix.is_none() {
            return Ok(());
        }
        let (shared, stop, origins) = self.for_thread();
        let (peer_policy, limits) = (self.peer_policy.clone(), self.limits);
        self.spawn("statsd-streams", move || {
            read_streams(&listeners, limits, &shared, origins, &peer_policy, &stop);
        })
    }

    fn start_receivers(&mut self) -> Result<(), StatsdBindError> {
        let sockets = std::mem::take(&mut self.sockets.udp);
        if sockets.is_empty() {
            return Ok(());
        }
        let (shared, stop, origins) = self.for_thread();
        let receivers = Arc::new(UdpReceivers::new(sockets, shared, stop));
        let first = receivers.clone();
        self.spawn("statsd", move || {
            if let Err(error) = first.run_first(origins) {
                tracing::error!(%error, "statsd receiver failed; datagrams are no longer read");
            }
        })?;
        for number in 1..self.readers {
            let (helper, (_, _, origins)) = (receivers.clone(), self.for_thread());
            self.spawn(&format!("statsd-{number}"), move || {
                helper.run_helper(origins)
            })?;
        }
        Ok(())
    }

    fn for_thread(&self) -> (Arc<StatsdContext>, Arc<StopSignal>, OriginCache) {
        let origins = OriginCache::new(self.shared.admission.clone(), self.peer_policy.clone());
        (self.shared.clone(), self.stop.clone(), origins)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StatsdBindError> {
        let thread = self.supervisor.thread(name).critical(|_| body());
        self.threads.push(thread.map_err(StatsdBindError::Threads)?);
        Ok(())
    }

    /// Reads what the kernel still holds, then ends the threads.
    pub fn stop(&mut self) {
        self.threads.iter().for_each(CriticalThread::expect_end);
        self.stop.trigger();
        if let Some(socket) = &self.sockets.unix {
            // Wakes the thread that waits on the socket. Queued datagrams can still be read.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Read);
        }
        for thread in self.threads.drain(..) {
            thread.join();
        }
        // Last: it stores what the others received.
        let mark_thread = self.mark_thread.take();
        mark_thread.iter().for_each(CriticalThread::expect_end);
        self.shared.marks.stop();
        if let Some(thread) = mark_thread {
            thread.join();
        }
    }
}

impl Drop for StatsdListener {
    fn drop(&mut self) {
        self.stop();
    }
}
