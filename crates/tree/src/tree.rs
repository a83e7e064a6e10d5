//! [`Tree`], the tree of one agent: settings are checked and the address is bound first, so that
//! errors are found before anything runs; then threads and tasks are started.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pegel_metric::{Clock, Millis};
use pegel_store::Store;
use pegel_supervisor::{CriticalThread, RestartedThread, Supervisor};
use pegel_tree_protocol::{LocalServer, NodeTree};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::child::{ParentContact, Uplink, UplinkItem, UplinkState};
use crate::context::TreeContext;
use crate::credentials::{TreeCredentials, TreeStartError};
use crate::figures::{TreeCounts, TreeFigures};
use crate::instance_id::{INSTANCE_FILE, load_instance_id};
use crate::local_users::LocalUserPolicy;
use crate::parent::{Parent, accept_children, run_backfill};
use crate::problems::Problems;
use crate::settings::TreeSettings;
use crate::tick_thread::{TickThread, TreeStop};

/// With a second one, each tick of a child would wake both. Responses are merged and samples are
/// read on other threads.
const WORKER_THREADS: usize = 1;
/// Connections that the kernel keeps until they are accepted: all children may come at once.
const BACKLOG: i32 = 1024;
/// How long tasks may take to end.
const STOP_TIME: Duration = Duration::from_secs(2);
/// How often the files of the credentials are checked for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// The parameters of a tree.
pub struct TreeOptions {
    pub settings: TreeSettings,
    pub node: String,
    pub version: String,
    /// The agent's directory, for its identity and for what is to be computed again.
    pub dir: PathBuf,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
    /// The start of the agent.
    pub started: Millis,
    pub sample_interval: Duration,
    /// Decides about children over loopback if there is neither a token nor `client_ca`.
    pub local_users: Arc<dyn LocalUserPolicy>,
    /// `limits.series` of the store: reduced series may have a part of it.
    pub series_max: usize,
}

impl fmt::Debug for TreeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeOptions")
            .field("settings", &self.settings)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The tree of an agent, before it runs.
pub struct Tree {
    context: Arc<TreeContext>,
    supervisor: Supervisor,
    listener: Option<TcpListener>,
    parent: Option<Arc<Parent>>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").finish_non_exhaustive()
    }
}

impl Tree {
    /// Checks the settings and credentials, and binds the address for children.
    pub fn bind(options: TreeOptions) -> Result<Tree, TreeStartError> {
        let settings = options.settings;
        let reloadable = TreeCredentials::reloadable(&settings)?;
        if let Err(fault) = pegel_tree_protocol::check_node_name("node", &options.node) {
            let message = format!("the name of this node cannot be used in a tree: {fault}");
            return Err(TreeStartError::Settings(message));
        }
        let instance =
            load_instance_id(&options.dir).map_err(|source| TreeStartError::Instance {
                path: options.dir.join(INSTANCE_FILE),
                source,
            })?;
        let accept = settings.accept.clone();
        let context = Arc::new(TreeContext {
            settings,
            reloadable,
            node: options.node,
            version: options.version,
            instance,
            dir: options.dir,
            store: options.store,
            clock: options.clock,
            started: options.started,
            sample_interval: options.sample_interval,
            local_users: options.local_users,
            series_max: options.series_max,
            counts: Arc::new(TreeCounts::default()),
            problems: Mutex::new(Problems::default()),
            path: RwLock::default(),
        });
        let mut tree = Tree {
            context: context.clone(),
            supervisor: options.supervisor,
            listener: None,
            parent: None,
        };
        if let Some(accept) = accept {
            let failed = |source| TreeStartError::Bind {
                address: accept.to_string(),
                source,
            };
            let listener = TcpListener::bind(accept.socket()).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
            let address = listener.local_addr().map_err(failed)?;
            tree.listener = Some(listener);
            tree.parent = Some(Arc::new(Parent::new(context, address)));
        }
        Ok(tree)
    }

    /// Returns the address for children.
    pub fn accept_address(&self) -> Option<SocketAddr> {
        self.parent.as_ref().map(|parent| parent.accept_address)
    }

    /// Returns the nodes below this agent; `None` if it does not accept children.
    pub fn node_tree(&self) -> Option<Arc<dyn NodeTree>> {
        let parent = self.parent.clone()?;
        Some(parent)
    }

    /// Starts the threads. `local` answers requests of parents.
    pub fn start(self, local: Arc<dyn LocalServer>) -> io::Result<RunningTree> {
        let (stop_tasks, stopped) = watch::channel(false);
        let stop_ticks = Arc::new(TreeStop::default());
        let has_parents = !self.context.settings.parents.is_empty();
        let (uplink, items) = match has_parents {
            true => {
                let (uplink, items) = UplinkState::new(&self.context);
                (Some(uplink), Some(items))
            }
            false => (None, None),
        };
        if let (Some(parent), Some(uplink)) = (&self.parent, &uplink) {
            let _ = parent.uplink.set(uplink.clone());
        }
        if let Some(parent) = &self.parent {
            parent.restore();
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name("tree")
            .enable_all()
            .build()?;
        let mut tasks = TreeTasks {
            context: self.context.clone(),
            supervisor: self.supervisor.clone(),
            listener: None,
            parent: self.parent.clone(),
            uplink: None,
            stopped,
        };
        if let Some(listener) = self.listener {
            let _entered = runtime.enter();
            tasks.listener = Some(tokio::net::TcpListener::from_std(listener)?);
        }
        if let (Some(state), Some(items)) = (&uplink, items) {
            let uplink = Uplink {
                context: self.context.clone(),
                parent: self.parent.clone(),
                local,
                state: state.clone(),
            };
            tasks.uplink = Some((Arc::new(uplink), items));
        }
        let thread = self.supervisor.thread("tree");
        let tasks = thread.critical(move |_| tasks.run(runtime))?;
        let thread = self.supervisor.thread("tree-ticks");
        let (context, parent) = (self.context.clone(), self.parent.clone());
        let (state, signal) = (uplink.clone(), stop_ticks.clone());
        let ticks = thread.restarted(move || {
            TickThread::new(
                context.clone(),
                parent.clone(),
                state.clone(),
                signal.clone(),
            )
            .run();
        })?;
        Ok(RunningTree {
            context: self.context,
            parent: self.parent,
            uplink,
            stop_tasks,
            stop_ticks,
            tasks: Some(tasks),
            ticks: Some(ticks),
        })
    }
}

/// What the runtime of a tree runs.
struct TreeTasks {
    context: Arc<TreeContext>,
    supervisor: Supervisor,
    listener: Option<tokio::net::TcpListener>,
    parent: Option<Arc<Parent>>,
    uplink: Option<(Arc<Uplink>, mpsc::Receiver<UplinkItem>)>,
    stopped: watch::Receiver<bool>,
}

impl TreeTasks {
    fn run(mut self, runtime: Runtime) {
        runtime.block_on(async {
            let mut background = Vec::new();
            if self.context.reloadable.has_files() {
                let reload = reload_credentials(self.context.clone());
                background.push(self.spawn("tree-reload", reload));
            }
            if let (Some(parent), Some(listener)) = (&self.parent, self.listener.take()) {
                let accept = accept_children(parent.clone(), listener);
                background.push(self.spawn("tree-accept", accept));
                background.push(self.spawn("tree-backfill", run_backfill(parent.clone())));
            }
            let uplink = self.uplink.take();
            let uplink = uplink.map(|(uplink, items)| {
                self.spawn("tree-uplink", uplink.run(items, self.stopped.clone()))
            });
            // An error means that the sender is gone, which is the same.
            let _ = self.stopped.wait_for(|stopped| *stopped).await;
            if let Some(uplink) = uplink {
                let _ = tokio::time::timeout(STOP_TIME, uplink).await;
            }
            if let Some(parent) = &self.parent {
                parent.close_children();
            }
            background.iter().for_each(JoinHandle::abort);
            if let Some(parent) = &self.parent {
                parent.save_backfill();
            }
        });
        runtime.shutdown_timeout(STOP_TIME);
    }

    /// Starts a task that ends only after the tree was asked to stop; any other end is reported as
    /// a failure of the agent.
    fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (supervisor, stopped) = (self.supervisor.clone(), self.stopped.clone());
        let is_stopping = move || *stopped.borrow();
        tokio::spawn(async move { supervisor.task(name, task, is_stopping).await })
    }
}

/// Reads certificates and token again when their files change, until the task is dropped. New
/// connections use them; those that exist stay.
async fn reload_credentials(context: Arc<TreeContext>) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let context = context.clone();
        // A hanging file system blocks only a blocking thread.
        let _ = tokio::task::spawn_blocking(move || context.reloadable.refresh(false)).await;
    }
}

/// The tree of an agent while it runs. Dropping it stops it.
pub struct RunningTree {
    context: Arc<TreeContext>,
    parent: Option<Arc<Parent>>,
    uplink: Option<Arc<UplinkState>>,
    stop_tasks: watch::Sender<bool>,
    stop_ticks: Arc<TreeStop>,
    tasks: Option<CriticalThread>,
    ticks: Option<RestartedThread>,
}

/// Reloads the credentials of a tree. It is a handle of its own, so that no lock of the tree is
/// held meanwhile.
pub struct TreeCredentialReloader(Arc<TreeContext>);

impl TreeCredentialReloader {
    /// Reads certificates and token again now. If that fails, the old ones stay in force and the
    /// error is logged. Blocks.
    pub fn reload_now(&self) {
        self.0.reloadable.refresh(true);
    }
}

impl fmt::Debug for TreeCredentialReloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeCredentialReloader")
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RunningTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTree").finish_non_exhaustive()
    }
}

impl RunningTree {
    /// Describes the tree for `/status`.
    pub fn status_json(&self) -> Value {
        let figures = self.figures();
        let nodes: serde_json::Map<String, Value> = { figures.below.nodes.iter() }
            .map(|(state, count)| ((*state).to_owned(), json!(count)))
            .collect();
        json!({
            "node": self.context.node,
            "accepts": self.parent.as_ref().map(|parent| parent.accept_address.to_string()),
            "parents": self.uplink.as_ref().map_or_else(|| json!([]), |uplink| uplink.to_json()),
            "children": figures.below.children,
            "nodes": nodes,
            "ticks_sent": figures.ticks_sent,
            "ticks_skipped": figures.ticks_skipped,
            "ticks_received": figures.ticks_received,
            "ticks_late": figures.ticks_late,
            "dirty_ticks": figures.dirty_ticks,
            "backfilled_ticks": figures.backfilled_ticks,
            "reduced_series": figures.below.reduced_series,
        })
    }

    pub fn reload(&self) -> TreeCredentialReloader {
        TreeCredentialReloader(self.context.clone())
    }

    /// Returns whether a parent is connected; `None` without parents.
    pub fn parent_contact(&self) -> Option<ParentContact> {
        self.uplink.as_ref().map(|uplink| uplink.contact())
    }

    /// Returns the figures for the agent's own metrics.
    pub fn figures(&self) -> TreeFigures {
        let counts = &self.context.counts;
        let mut figures = TreeFigures {
            refused: self.context.problems.lock().by_reason(),
            is_attached: self
                .uplink
                .as_ref()
                .is_some_and(|uplink| uplink.is_attached()),
            ticks_sent: counts.ticks_sent.get(),
            ticks_skipped: counts.ticks_skipped.get(),
            ticks_received: counts.ticks_received.get(),
            ticks_late: counts.ticks_late.get(),
            ticks_closed: counts.ticks_closed.get(),
            backfilled_ticks: counts.backfilled_ticks.get(),
            requests_sent: counts.requests_sent.get(),
            requests_received: counts.requests_received.get(),
            received_bytes: counts.received_bytes.get(),
            sent_bytes: counts.sent_bytes.get(),
            refused_series: counts.refused_series.get(),
            ..TreeFigures::default()
        };
        let Some(parent) = &self.parent else {
            return figures;
        };
        figures.below = parent.node_figures();
        figures.dirty_ticks = parent.dirty_count() as u64;
        figures
    }

    /// Sends the last tick, closes all streams and ends the threads.
    pub fn stop(&mut self) {
        self.stop_ticks.stop();
        if let Some(ticks) = self.ticks.take() {
            ticks.join();
        }
        let Some(tasks) = self.tasks.take() else {
            return;
        };
        tasks.expect_end();
        let _ = self.stop_tasks.send(true);
        tasks.join();
    }
}

impl Drop for RunningTree {
    fn drop(&mut self) {
        self.stop();
    }
}
