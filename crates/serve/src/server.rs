//! The server: binds all addresses, serves, and stops. The agent binds before it starts other
//! services, so that a busy address is an early error, and clients that connect meanwhile wait in
//! the backlog. The accept tasks are supervised: one that ends while the server runs is a failure
//! of the agent.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use pegel_query::QueryEngine;
use pegel_query::promql::{NodeLabels, StoreSource};
use pegel_store::Store;
use pegel_tree_protocol::LocalServer;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent_handles::AgentHandles;
use pegel_config::ListenAddress;

use crate::bind::{ServerBindError, bind_tcp, check_exposure};
use crate::body_memory::BodyMemory;
use crate::connection_limit::ConnectionLimit;
use crate::guard::{Guard, is_loopback};
use crate::job_info::JobInfo;
use crate::listen::{self, accept_all};
use crate::participants::Participants;
use crate::refusals::RefusalCounters;
use crate::request_executor::RequestExecutor;
use crate::routes::router;
use crate::sender_refusals::SenderRefusals;
use crate::server_context::{ConnectionLimits, ServerContext, ShutdownStage};
use crate::settings::ServeSettings;
use crate::socket::{OwnedSocket, bind_socket};
use crate::tree::{NodeSeries, TreeServer};

/// The shortest interval at which programs are sampled, however fast the node is.
const PROGRAM_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How long connections get to close after the shutdown dropped them.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// A server that has bound its addresses and does not serve yet.
#[derive(Debug)]
pub struct BoundServer {
    settings: ServeSettings,
    app: AgentHandles,
    refusals: Arc<RefusalCounters>,
    guard: Arc<Guard>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<TcpListener>,
    forwarded: Vec<TcpListener>,
    forwarded_addresses: Vec<SocketAddr>,
    socket: Option<(UnixListener, OwnedSocket)>,
}

impl BoundServer {
    /// Binds all addresses, or none. Clients that connect from now on wait until the server is
    /// started.
    pub fn bind(
        settings: ServeSettings,
        app: AgentHandles,
    ) -> Result<BoundServer, ServerBindError> {
        check_exposure(&settings)?;
        let refusals = Arc::new(RefusalCounters::default());
        let guard = Guard::new(&settings, &app.node, refusals.clone())?;
        let (listeners, addresses) = bind_all(&settings.listen, settings.port_search)?;
        let (forwarded, forwarded_addresses) = bind_all(&settings.forwarded, settings.port_search)?;
        let is_shared = !settings.allow_users.is_empty();
        let socket = settings.socket.as_deref();
        let socket = socket
            .map(|path| bind_socket(path, is_shared))
            .transpose()?;
        if let Some(listener) = addresses.iter().find(|address| is_loopback(address.ip())) {
            guard.check_kernel(*listener);
        }
        Ok(BoundServer {
            settings,
            app,
            refusals,
            guard: Arc::new(guard),
            addresses,
            listeners,
            forwarded,
            forwarded_addresses,
            socket,
        })
    }

    /// The addresses actually bound, in the order of the settings.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn socket_path(&self) -> Option<&Path> {
        self.socket.as_ref().map(|(_, owned)| owned.path())
    }

    /// The number of refusals so far, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.refusals.all()
    }

    /// The labels of this node's series in PromQL.
    fn node_labels(&self) -> NodeLabels {
        let settings = &self.settings.promql;
        let port = self.addresses.first().map_or(0, SocketAddr::port);
        let default = || format!("{}:{port}", self.app.node);
        NodeLabels {
            job: settings.job.clone(),
            instance: settings.instance.clone().unwrap_or_else(default),
        }
    }

    /// The series of the store, as PromQL sees them, without the filters of readers.
    pub fn promql_source(&self) -> StoreSource {
        self.promql_source_over(&self.app.store)
    }

    fn promql_source_over(&self, store: &Store) -> StoreSource {
        let source = StoreSource::new(
            store.clone(),
            self.node_labels(),
            self.app.rate.max(PROGRAM_INTERVAL_MIN),
        )
        .with_annotations(self.app.annotations.clone())
        .with_intervals(Arc::new(JobInfo(self.app.jobs.clone())));
        match &self.app.history {
            Some(history) => source.with_history(history.clone()),
            None => source,
        }
    }

    /// Serves on the runtime until stopped.
    pub fn start(self, handle: &Handle) -> std::io::Result<RunningServer> {
        let (stage, watcher) = watch::channel(ShutdownStage::Serving);
        let limits = ConnectionLimits {
            tcp: ConnectionLimit::new(self.settings.limits.connections.get() as usize),
            socket: ConnectionLimit::new(self.settings.socket_connections_max),
        };
        // Every answer passes the filters of readers.
        let store = self.app.store.for_readers();
        let mut engine = QueryEngine::new(
            store.clone(),
            self.app.annotations.clone(),
            &self.app.node,
            self.settings.dragon_compat,
        );
        engine.limits.bytes_max = self.settings.query_bytes_max;
        let context = Arc::new(ServerContext {
            promql: self.promql_source_over(&store),
            promql_limits: self.settings.promql_limits(),
            router: router(&self.guard, &self.app.input_routes),
            guard: self.guard.clone(),
            engine,
            agent: AgentHandles { store, ..self.app },
            participants: Participants::default(),
            executor: RequestExecutor::new(&self.settings, self.refusals.clone())?,
            body_memory: BodyMemory::new(&self.settings),
            settings: self.settings,
            refusals: self.refusals.clone(),
            sender_refusals: SenderRefusals::default(),
            connection_limits: limits.clone(),
            stage: watcher,
            name_collisions: AtomicUsize::new(0),
            foreign_hosts: AtomicU64::new(0),
        });
        let _entered = handle.enter();
        let mut accepting = Vec::new();
        let forwarded = self.forwarded.into_iter().map(|listener| (listener, true));
        let listeners = self.listeners.into_iter().map(|listener| (listener, false));
        for (listener, is_forwarded) in listeners.chain(forwarded) {
            let is_tls = self.guard.tls().is_some() && !is_loopback(listener.local_addr()?.ip());
            let listener = listen::TcpAcceptor {
                listener: tokio::net::TcpListener::from_std(listener)?,
                is_tls,
                is_forwarded,
            };
            let task = accept_all(listener, limits.tcp.clone(), context.clone());
            accepting.push(supervise("accept-tcp", task, &context));
        }
        let mut socket = None;
        if let Some((listener, owned)) = self.socket {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let task = accept_all(listener, limits.socket.clone(), context.clone());
            accepting.push(supervise("accept-socket", task, &context));
            socket = Some(owned);
        }
        let reload = CredentialReloader(self.guard);
        if reload.0.has_reloadable_files() {
            let task = reload.clone().reload_on_change(context.clone());
            accepting.push(supervise("reload", task, &context));
        }
        Ok(RunningServer {
            stage,
            accept_tasks: accepting,
            connection_limits: limits,
            refusals: self.refusals,
            addresses: self.addresses,
            forwarded_addresses: self.forwarded_addresses,
            socket,
            reload,
            context,
        })
    }
}

/// Binds all addresses of a list; also returns what they were bound to.
fn bind_all(
    list: &[ListenAddress],
    port_search: bool,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), ServerBindError> {
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for address in list {
        let listener = bind_tcp(address, port_search)?;
        let bound = listener.local_addr();
        addresses.push(bound.map_err(|source| ServerBindError::Io {
            address: address.socket(),
            source,
        })?);
        listeners.push(listener);
    }
    Ok((listeners, addresses))
}

/// Runs a task that ends only when the server stops; any other end is reported as a failure of the
/// agent. Must be called inside the runtime.
fn supervise(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
    context: &ServerContext,
) -> JoinHandle<()> {
    let supervisor = context.agent.store.supervisor().clone();
    let stage = context.stage.clone();
    let is_stopping = move || *stage.borrow() > ShutdownStage::Serving;
    tokio::spawn(async move { supervisor.task(name, task, is_stopping).await })
}

/// Reloads the token and the certificates.
#[derive(Debug, Clone)]
pub struct CredentialReloader(Arc<Guard>);

impl CredentialReloader {
    /// Reloads the files whether they changed or not. If a file cannot be read, the old content
    /// stays in force and the error is logged. Blocks while the files are read.
    pub fn reload_now(&self) {
        self.0.refresh(true);
    }

    /// Reloads the files when they change, until the server stops.
    async fn reload_on_change(self, context: Arc<ServerContext>) {
        let mut stage = context.stage.clone();
        let pause = || tokio::time::sleep(context.settings.reload_time);
        while listen::unless_stopped(pause(), &mut stage).await.is_some() {
            let guard = self.0.clone();
            // A hanging file system blocks only a blocking thread.
            let _ = tokio::task::spawn_blocking(move || guard.refresh(false)).await;
        }
    }
}

/// A running server. If dropped without [`RunningServer::stop`], it drops its connections at once.
#[derive(Debug)]
pub struct RunningServer {
    stage: watch::Sender<ShutdownStage>,
    accept_tasks: Vec<JoinHandle<()>>,
    connection_limits: ConnectionLimits,
    refusals: Arc<RefusalCounters>,
    addresses: Vec<SocketAddr>,
    forwarded_addresses: Vec<SocketAddr>,
    socket: Option<OwnedSocket>,
    reload: CredentialReloader,
    context: Arc<ServerContext>,
}

impl RunningServer {
    pub fn reload(&self) -> CredentialReloader {
        self.reload.clone()
    }

    /// The series of this agent and all nodes below it, for rules; `None` without a tree. `own` has
    /// those of this agent.
    pub fn node_series(&self, own: StoreSource, runtime: Handle) -> Option<NodeSeries> {
        NodeSeries::new(&self.context, own, runtime)
    }

    /// The server, for requests that come through the tree.
    pub fn local_server(&self) -> Arc<dyn LocalServer> {
        Arc::new(TreeServer(self.context.clone()))
    }

    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses for the ends of tunnels.
    pub fn forwarded_addresses(&self) -> &[SocketAddr] {
        &self.forwarded_addresses
    }

    pub fn socket_path(&self) -> Option<&Path> {
        self.socket.as_ref().map(OwnedSocket::path)
    }

    /// The number of refusals so far, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.refusals.all()
    }

    /// Stops accepting, ends streams, lets requests finish within `grace`, drops the rest, and
    /// removes the socket.
    pub async fn stop(mut self, grace: Duration) {
        self.stage.send_replace(ShutdownStage::Stopping);
        for accepting in std::mem::take(&mut self.accept_tasks) {
            let _ = accepting.await;
        }
        let ConnectionLimits { tcp, socket } = self.connection_limits.clone();
        let empty = async || {
            tcp.wait_until_idle().await;
            socket.wait_until_idle().await;
        };
        if timeout(grace, empty()).await.is_err() {
            self.stage.send_replace(ShutdownStage::Ended);
            let _ = timeout(CLOSE_TIME, empty()).await;
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stage.send_replace(ShutdownStage::Ended);
    }
}
