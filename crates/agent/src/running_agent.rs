//! The running agent: opens the store, binds the servers, starts the sampler, and stops all of them
//! in order. The command line calls [`RunningAgent::start`], then [`RunningAgent::wait`], then
//! [`RunningAgent::stop`]. A start is all or nothing; a stop writes every accepted sample to the
//! store's log.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use pegel_collect::{Sampler, SelfMetrics};
use pegel_config::ConfigError;
use pegel_history::PrometheusHistory;
use pegel_ingest::Ingest;
use pegel_ingest::lanes::LanesStatus;
use pegel_ingest::otlp::OtlpWriter;
use pegel_ingest::pull::{OnceSink, PullInputs};
use pegel_ingest::push_groups::PushGroups;
use pegel_ingest::statsd::{self, BoundAddresses, StatsdInput, StatsdListener};
use pegel_jobs::{JobWorker, Jobs};
use pegel_metric::{Millis, Selector, quantity};
use pegel_query::{Annotations, HistoryReader};
use pegel_run::CountingService;
use pegel_serve::{
    AgentHandles, BoundServer, GuardError, LocalUsers, RunningServer, ServerBindError,
};
use pegel_store::{Store, StoreOpenError};
use pegel_supervisor::Supervisor;
use pegel_tree::{ParentContact, Tree};
use serde_json::json;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::agent_settings::AgentSettings;
use crate::agent_status::AgentStatus;
use crate::allocator::limit_allocator;
use crate::archive::{ArchiveMetrics, archive_progress, start_archive};
use crate::descriptors::{self, OpenFiles};
use crate::endpoint_file::{self, EndpointFile};
use crate::graphite::{GraphiteMetrics, start_graphite};
use crate::hangup::HangupSignals;
use crate::history::HistoryMetrics;
use crate::hosted_inputs::HostedInputs;
use crate::jobs::{JobMetrics, start_jobs};
use crate::log_output::{LogMetrics, LogOutput};
use crate::marks::{AnnotationMarks, MarkMetrics};
use crate::memory_limit::MEMORY_MIN;
use crate::otlp::{OtlpMetrics, start_otlp};
use crate::pull_metrics::PullMetrics;
use crate::remote_write::{RemoteWriteMetrics, start_remote_write};
use crate::rules::{RuleMetrics, start_rules};
use crate::service_notifier::ServiceNotifier;
use crate::sessions::{AgentSessions, SessionMetrics};
use crate::signals::StopSignals;
use crate::snapshots::CloudMetrics;
use crate::statsd::AgentPeerPolicy;
use crate::stop_condition::StopCondition;
use crate::store_metrics::StoreMetrics;
use crate::tree::{TreeMetrics, bind_tree};
use crate::{human_text, private_files, remove_store, store_dir};

/// How long the start waits for the first sample to become readable. A store that cannot be written
/// keeps samples in memory, so this only bounds the wait on a stalled machine.
const FIRST_SAMPLE_TIME: Duration = Duration::from_secs(5);
/// How long requests may take to finish when the agent stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum AgentStartError {
    #[error("cannot use the directory {path}")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(transparent)]
    Bind(#[from] ServerBindError),
    #[error(transparent)]
    Sampler(#[from] pegel_collect::SamplerStartError),
    #[error(transparent)]
    Settings(#[from] pegel_collect::CollectSettingsError),
    #[error(transparent)]
    Ingest(#[from] pegel_ingest::IngestStartError),
    #[error(transparent)]
    Statsd(#[from] statsd::StatsdBindError),
    #[error("allow_users, operators")]
    Users(#[from] GuardError),
    #[error(
        "the limit on open files is {limit}, and the agent requires at least {required} with the configured inputs and outputs; raise it with `ulimit -n` or LimitNOFILE"
    )]
    OpenFiles { limit: usize, required: usize },
    #[error("the cgroup limits memory to {}, and the agent requires at least {}", quantity::bytes(*.0), quantity::bytes(MEMORY_MIN))]
    Memory(u64),
    #[error("cannot start the server threads")]
    Runtime(#[source] io::Error),
    #[error("{0}")]
    Rules(#[from] ConfigError),
    #[error(transparent)]
    Tree(#[from] pegel_tree::TreeStartError),
}

/// A running agent, until [`RunningAgent::stop`].
#[derive(Debug)]
pub struct RunningAgent {
    store: Store,
    ingest: Arc<Ingest>,
    statsd: StatsdListener,
    status: Arc<AgentStatus>,
    sessions: Arc<AgentSessions>,
    job_worker: Option<JobWorker>,
    /// Notified when a client of the job requests a stop.
    stop_requested: Arc<tokio::sync::Notify>,
    server: Option<RunningServer>,
    endpoint: Option<EndpointFile>,
    signals: Option<StopSignals>,
    hangups: Option<HangupSignals>,
    log: Option<Arc<dyn LogOutput>>,
    notify: Option<ServiceNotifier>,
    announcement: Vec<String>,
    accept: Option<SocketAddr>,
    remove_store: Option<PathBuf>,
    supervisor: Supervisor,
    /// Declared last, so that everything that runs on it is dropped first.
    runtime: Runtime,
}

impl RunningAgent {
    /// Starts all components, or none: on error, no address and no directory stays in use.
    pub fn start(mut plan: AgentSettings) -> Result<RunningAgent, AgentStartError> {
        limit_allocator();
        let OpenFiles { limit, required } = plan.open_files;
        if limit < required {
            return Err(AgentStartError::OpenFiles { limit, required });
        }
        if let Some(limit) = plan.memory_limit.filter(|limit| limit.0 < MEMORY_MIN) {
            return Err(AgentStartError::Memory(limit.0));
        }
        let rule_groups = plan.rules.load()?;
        descriptors::raise_limit(limit);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(AgentStartError::Runtime)?;
        let (signals, hangups) = {
            let _context = runtime.enter();
            let signals = StopSignals::new().map_err(AgentStartError::Runtime)?;
            (
                signals,
                HangupSignals::new().map_err(AgentStartError::Runtime)?,
            )
        };
        let started = plan.store.clock.utc();
        let store = open_store(&plan)?;
        let dir = plan.store.dir.clone();
        // The store's lock is held: an existing file was left by an agent that was killed.
        EndpointFile::remove_stale(&dir);

        let finished = Arc::new(tokio::sync::Notify::new());
        let ingest = Arc::new(start_ingest(&plan, &store)?);
        let metrics = Arc::new(StatsdInput::new(&plan.statsd.keys, ingest.admission()));
        let counting_service =
            CountingService::new(store.supervisor()).with_programs_max(plan.programs_max);
        let otlp = OtlpWriter::new(
            ingest.admission().clone(),
            store.clone(),
            plan.otlp_input.clone(),
        );
        let inputs = HostedInputs {
            ingest: ingest.clone(),
            otlp: Arc::new(otlp),
            statsd: metrics.clone(),
            push_groups: PushGroups::open(ingest.clone(), &dir, store.supervisor().clone()),
            counting_service: Arc::new(counting_service),
        };
        let retention = Millis::try_from(plan.store.keep.disk.duration().as_millis());
        let annotations = Annotations::open_or_empty(&dir);
        let annotations = Arc::new(annotations.with_retention(retention.unwrap_or(Millis::MAX)));
        metrics.set_mark_store(Arc::new(AnnotationMarks {
            annotations: annotations.clone(),
            clock: plan.store.clock.clone(),
        }));
        let jobs = Jobs::open(&dir, &plan.jobs);
        let status = Arc::new(AgentStatus::new(&plan, inputs.clone(), jobs.clone()));
        let pull = new_pull_inputs(&plan, &ingest, &status);
        status.set_pull(pull.clone());
        let version = env!("CARGO_PKG_VERSION");
        let sessions = Arc::new(AgentSessions::default());
        let tree = bind_tree(&plan, &store, version, started)?;
        let history = PrometheusHistory::new(&plan.history).map(Arc::new);
        status.set_history(history.clone());
        let app = AgentHandles {
            store: store.clone(),
            history: history.map(|history| history as Arc<dyn HistoryReader>),
            tree: tree.as_ref().and_then(Tree::node_tree),
            input_routes: inputs.routes(&pull),
            socket_lines: Arc::new(inputs.socket_lines()),
            telnet_lines: Arc::new(inputs.telnet_lines(version)),
            refresh_programs: inputs.refresh_programs(),
            charge_bytes: inputs.charge_bytes(),
            annotations: annotations.clone(),
            jobs: jobs.clone(),
            request_stop: plan.ends_with_job.then(|| stop_request(&finished)),
            participants_done: plan.ends_with_participants.then(|| stop_request(&finished)),
            stop_supervised: plan.is_supervised.then(|| stop_request(&finished)),
            sessions: sessions.clone(),
            clock: plan.store.clock.clone(),
            node: plan.node.clone(),
            version: version.to_owned(),
            started,
            level: plan.level,
            rate: plan.collect.rate,
            status_source: status.clone(),
        };
        let server = BoundServer::bind(plan.serve.clone(), app)?;
        // After the push socket: its directory exists and its lock is held.
        let statsd = start_statsd(&plan, &metrics, &ingest, &store)?;
        let sampler = start_sampler(&plan, &store, &status, &annotations, &sessions, &jobs)?;
        let (active, extra_samples) = (sampler.active_count(), sampler.extra_samples());
        status.set_sampler(sampler);
        sessions.start(&plan, &store, &status, &ingest, extra_samples);
        // Before the first request: `/status` always lists every Graphite server.
        let outputs = start_graphite(&plan, &store).map_err(AgentStartError::Runtime)?;
        status.set_graphite(outputs);
        let outputs = start_otlp(&plan, &store, version).map_err(AgentStartError::Runtime)?;
        status.set_otlp(outputs);
        status.set_archive(start_archive(&plan, &store).map_err(AgentStartError::Runtime)?);
        let promql_source = server.promql_source();
        let output = start_remote_write(&plan, &store, &promql_source);
        status.set_remote_write(output.map_err(AgentStartError::Runtime)?);
        let running = server
            .start(runtime.handle())
            .map_err(AgentStartError::Runtime)?;

        let accept = tree.as_ref().and_then(Tree::accept_address);
        if let Some(tree) = tree {
            let tree = tree.start(running.local_server());
            status.set_tree(tree.map_err(AgentStartError::Runtime)?);
        }
        let (http, socket) = (running.http_addresses(), running.socket_path());
        let mut endpoint = EndpointFile::new(
            &dir,
            &plan.node,
            (http, running.forwarded_addresses()),
            socket,
            statsd.bound_addresses(),
            accept,
        )
        .map_err(AgentStartError::Runtime)?;
        // Degraded states do not prevent a start; a read-only disk is one of them.
        if let Err(error) = endpoint.write() {
            tracing::warn!(%error, "cannot write endpoint.json; retrying");
        }
        status.set_addresses(json!({
            "url": page_url(&plan, http),
            "http": http,
            "socket": socket,
            "statsd": endpoint_file::StatsdEndpoints::from(statsd.bound_addresses()),
        }));
        let mut announcement = startup_lines(&plan, http, socket, statsd.bound_addresses(), active);
        announcement.extend(engine_lines(&plan));
        announcement.extend(tree_lines(&plan, accept));
        announcement.extend(ingest.lanes_status().iter().flat_map(LanesStatus::remarks));
        let remove_store = plan.remove_store.then_some(dir);
        let notify = plan.notify.take();
        if let Some(notify) = &notify {
            notify.ready(&announcement.join("; "));
        }
        // Last: they must not delay the first sample.
        status.start_snapshot_worker(&plan);
        let job_worker = start_jobs(&plan, &jobs, &store, &ingest);
        let job_worker = job_worker.map_err(AgentStartError::Runtime)?;
        if !plan.rules.is_empty() {
            let url = page_url(&plan, http);
            let nodes = running.node_series(promql_source.clone(), runtime.handle().clone());
            let rules = start_rules(&plan, rule_groups, promql_source, nodes, &store, url);
            status.set_rules(rules.map_err(AgentStartError::Runtime)?);
        }
        let started = pull.start(store.supervisor());
        started.map_err(AgentStartError::Runtime)?;
        let signals = Some(signals);
        let running = Some(running);
        Ok(RunningAgent {
            store,
            ingest,
            statsd,
            status,
            sessions,
            job_worker,
            stop_requested: finished,
            server: running,
            endpoint: Some(endpoint),
            signals,
            hangups: Some(hangups),
            log: plan.log,
            notify,
            announcement,
            accept,
            remove_store,
            supervisor: plan.store.supervisor,
            runtime,
        })
    }

    /// The lines to print for the user who started the agent.
    pub fn announcement(&self) -> &[String] {
        &self.announcement
    }

    /// The HTTP addresses, in the order of the configuration.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.server
            .as_ref()
            .map_or(&[], RunningServer::http_addresses)
    }

    /// The addresses for the ends of tunnels.
    pub fn forwarded_addresses(&self) -> &[SocketAddr] {
        let server = self.server.as_ref();
        server.map_or(&[], RunningServer::forwarded_addresses)
    }

    pub fn socket_path(&self) -> Option<&Path> {
        self.server.as_ref().and_then(RunningServer::socket_path)
    }

    /// The address for children of the tree.
    pub fn accept_address(&self) -> Option<SocketAddr> {
        self.accept
    }

    /// Returns a function that tells whether a parent is connected; it can be called on any thread.
    pub fn parent_contact(&self) -> impl Fn() -> Option<ParentContact> + Send + use<> {
        let status = self.status.clone();
        move || status.parent_contact()
    }

    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Returns when a signal requests a stop, or when the watched process or the terminal is gone.
    /// The signals are returned: the next one can abort the stop. The unexpected end of a critical
    /// thread is an error; the caller should still stop the agent.
    pub fn wait(&mut self, until: Option<StopCondition>) -> io::Result<StopSignals> {
        let mut signals = self
            .signals
            .take()
            .ok_or_else(|| io::Error::other("wait() was called twice"))?;
        let source = self.status.clone();
        let finished = self.stop_requested.clone();
        let reload = self.server.as_ref().map(RunningServer::reload);
        let hangups = self.hangups.take().zip(reload);
        let log = self.log.clone();
        let for_hangup = self.status.clone();
        let notify = self.notify.as_ref();
        let endpoint = &mut self.endpoint;
        let supervisor = &self.supervisor;
        self.runtime.block_on(async {
            let hung_up = async {
                match hangups {
                    Some((hangups, reload)) => {
                        let reload_all = move || {
                            log.iter().for_each(|log| log.reopen());
                            reload.reload_now();
                            for_hangup.retake_snapshot();
                            for_hangup.reload_rules();
                            for_hangup.reload_tree_credentials();
                        };
                        hangups.run_until_terminal_closes(reload_all).await
                    }
                    None => pending().await,
                }
            };
            let endpoint_written = async {
                match endpoint {
                    Some(endpoint) => endpoint.retry_until_written().await,
                    None => pending().await,
                }
            };
            let condition_met = async {
                match until {
                    Some(until) => until.wait_async().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = hung_up => Ok(()),
                () = signals.next() => Ok(()),
                () = finished.notified() => Ok(()),
                never = source.run_watchdog(notify) => match never {},
                never = endpoint_written => match never {},
                failure = supervisor.failed() => Err(io::Error::other(failure)),
                result = condition_met => result,
            }
        })?;
        Ok(signals)
    }

    /// Takes a last sample, lets requests finish, and writes everything out. After a failure, stops
    /// what still works; acknowledged samples are in the log and are synced.
    pub fn stop(mut self) {
        let failure = self.supervisor.failure();
        if let Some(notify) = &self.notify {
            let status = failure.as_ref().map(ToString::to_string);
            notify.stopping(status.as_deref().unwrap_or("flushing the store"));
        }
        drop(self.endpoint.take());
        // Before the sampler: a record ends with a last sample.
        self.sessions.stop();
        drop(self.job_worker.take());
        if let Some(mut sampler) = self.status.take_sampler() {
            sampler.stop();
        }
        self.status.stop_inputs();
        self.status.stop_snapshot_worker();
        self.status.stop_rules();
        self.status.stop_graphite();
        self.status.stop_otlp();
        self.status.stop_remote_write();
        self.status.stop_archive();
        self.status.stop_tree();
        if let Some(running) = self.server.take() {
            self.runtime.block_on(running.stop(STOP_GRACE));
        }
        self.statsd.stop();
        self.ingest.stop();
        self.store.close();
        if let Some(dir) = &self.remove_store
            && failure.is_none()
            && let Err(error) = remove_store::remove_store(dir)
        {
            tracing::warn!(dir = %dir.display(), %error, "cannot remove the store");
        }
        tracing::info!("stopped");
        self.runtime.shutdown_timeout(STOP_GRACE);
    }
}

/// The callback by which a job stops the agent that it started.
fn stop_request(finished: &Arc<tokio::sync::Notify>) -> Arc<dyn Fn() + Send + Sync> {
    let finished = finished.clone();
    Arc::new(move || finished.notify_one())
}

pub(crate) fn open_store(plan: &AgentSettings) -> Result<Store, AgentStartError> {
    let dir = &plan.store.dir;
    store_dir::prepare_store_dir(dir).map_err(|source| AgentStartError::Dir {
        path: dir.clone(),
        source,
    })?;
    private_files::restrict_to_owner(dir);
    let mut options = plan.store.clone();
    options.archive = archive_progress(plan);
    Ok(Store::open(options)?)
}

fn start_ingest(plan: &AgentSettings, store: &Store) -> Result<Ingest, AgentStartError> {
    let clock = plan.store.clock.clone();
    let lanes = plan.lanes.as_ref();
    let ingest = Ingest::start(
        plan.admission.clone(),
        lanes,
        store,
        clock,
        plan.collect.rate,
    )?;
    Ok(ingest)
}

/// Creates the sources that the agent reads by itself, without reading them.
fn new_pull_inputs(
    plan: &AgentSettings,
    ingest: &Arc<Ingest>,
    status: &Arc<AgentStatus>,
) -> Arc<PullInputs> {
    let status = Arc::downgrade(status);
    let record_once: OnceSink = Arc::new(move |name, values| {
        if let Some(status) = status.upgrade() {
            status.record_once_input(name, values);
        }
    });
    Arc::new(PullInputs::new(&plan.pull, ingest, record_once))
}

/// Binds the addresses of statsd and starts reading them. From now on, each tick of ingest includes
/// statsd.
fn start_statsd(
    plan: &AgentSettings,
    statsd: &StatsdInput,
    ingest: &Ingest,
    store: &Store,
) -> Result<StatsdListener, AgentStartError> {
    let users = LocalUsers::new(&plan.serve.admitted_users())?;
    let mut listening =
        StatsdListener::bind(statsd, &plan.statsd, Arc::new(AgentPeerPolicy { users }))?;
    ingest.add_source(statsd.source(&listening, ingest.point_writer(), store, ingest.now()));
    listening.start()?;
    Ok(listening)
}

/// Starts the sampler. When this returns, the first sample can be read.
fn start_sampler(
    plan: &AgentSettings,
    store: &Store,
    source: &Arc<AgentStatus>,
    annotations: &Arc<Annotations>,
    sessions: &Arc<AgentSessions>,
    jobs: &Jobs,
) -> Result<Sampler, AgentStartError> {
    // The newest time of the first pass, whose groups may have different times.
    let first = Arc::new(AtomicI64::new(Millis::MIN));
    let (sink_store, sink_first) = (store.clone(), first.clone());
    let sink_source = source.clone();
    let mut own: Vec<Arc<dyn SelfMetrics>> = vec![
        StoreMetrics::new(store),
        CloudMetrics::new(source),
        MarkMetrics::new(annotations),
        SessionMetrics::new(sessions),
        JobMetrics::new(jobs),
    ];
    if let Some(log) = &plan.log {
        own.push(LogMetrics::new(log));
    }
    if !plan.rules.is_empty() {
        own.push(RuleMetrics::new(source));
    }
    if !plan.pull.is_empty() {
        own.push(PullMetrics::new(source));
    }
    if plan.tree.is_configured() {
        own.push(TreeMetrics::new(source));
    }
    if !plan.graphite.is_empty() {
        own.push(GraphiteMetrics::new(source));
    }
    if !plan.otlp.is_empty() {
        own.push(OtlpMetrics::new(source));
    }
    if !plan.remote_write.is_empty() {
        own.push(RemoteWriteMetrics::new(source));
    }
    if plan.history.url.is_some() {
        own.push(HistoryMetrics::new(source));
    }
    if plan.archive.is_configured() {
        own.push(ArchiveMetrics::new(source));
    }
    let sampler = Sampler::start(
        &plan.collect,
        plan.host.clone(),
        plan.level,
        own,
        store.ledger().clone(),
        plan.store.clock.clone(),
        Box::new(move |tick| {
            sink_source.record_tick();
            sink_first.fetch_max(tick.time, Ordering::Relaxed);
            sink_store.tick(tick);
        }),
    )?;
    let first = first.load(Ordering::Relaxed);
    // Without collectors there is nothing to wait for.
    if first != Millis::MIN {
        wait_until_readable(store, first);
    }
    Ok(sampler)
}

pub(crate) fn wait_until_readable(store: &Store, time: Millis) {
    let deadline = Instant::now() + FIRST_SAMPLE_TIME;
    while Instant::now() < deadline {
        let mut is_there = false;
        store.latest(&Selector::all(), 0, &mut |_, latest| {
            is_there |= latest.last_sampled >= time
        });
        if is_there {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    tracing::warn!("the first sample is not readable after 5 s");
}

/// Returns the URL of the page: the first HTTP address.
fn page_url(plan: &AgentSettings, http: &[SocketAddr]) -> Option<String> {
    let first = http.first()?;
    let is_tls = plan.serve.tls.files().is_some() && !first.ip().to_canonical().is_loopback();
    let scheme = if is_tls { "https" } else { "http" };
    Some(format!("{scheme}://{first}"))
}

/// Describes the place of the agent in a tree.
fn tree_lines(plan: &AgentSettings, accept: Option<SocketAddr>) -> Vec<String> {
    let accept = accept.map(|address| format!("tree: accepts agents on {address}"));
    let parents: Vec<String> = plan.tree.parents.iter().map(ToString::to_string).collect();
    let parents =
        (!parents.is_empty()).then(|| format!("tree: reports to {}", parents.join(", then ")));
    accept.into_iter().chain(parents).collect()
}

/// Names the systems that get samples or that queries read: a mistake in their URLs shows only when
/// they are used.
fn engine_lines(plan: &AgentSettings) -> Vec<String> {
    let targets = plan.remote_write.iter();
    let urls = targets.filter_map(|target| target.0.url.as_ref().map(ToString::to_string));
    let urls: Vec<String> = urls.collect();
    let history = plan.history.url.as_ref().map(|url| url.to_string());
    let archive = plan.archive.to.as_ref().map(|place| place.to_string());
    let lines = [
        ("remote write", (!urls.is_empty()).then(|| urls.join(", "))),
        ("history", history),
        ("archive", archive),
    ];
    let lines = lines.into_iter();
    lines
        .filter_map(|(name, text)| text.map(|text| format!("{name}: {text}")))
        .collect()
}

/// Describes the agent in short lines, the URL of the page first.
fn startup_lines(
    plan: &AgentSettings,
    http: &[SocketAddr],
    socket: Option<&Path>,
    statsd: &BoundAddresses,
    active: usize,
) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(page_url(plan, http).map(|url| format!("page and API: {url}")));
    if let [_, others @ ..] = http
        && !others.is_empty()
    {
        let others: Vec<String> = others.iter().map(SocketAddr::to_string).collect();
        lines.push(format!("OpenTSDB for Grafana: {}", others.join(", ")));
    }
    let udp = statsd.udp.iter().map(|address| format!("udp {address}"));
    let tcp = statsd.tcp.iter().map(|address| format!("tcp {address}"));
    let addresses: Vec<String> = udp.chain(tcp).collect();
    if !addresses.is_empty() {
        lines.push(format!("statsd: {}", addresses.join(", ")));
    }
    lines.extend(socket.map(|socket| format!("socket: {}", socket.display())));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    lines.push(format!(
        "store: {} ({} or {})",
        human_text::format_path(&plan.store.dir, home.as_deref()),
        human_text::format_duration(plan.store.keep.disk.duration()),
        quantity::bytes(plan.store.keep.bytes_max()),
    ));
    lines.push(format!(
        "{active} collectors at level {}, every {} s",
        plan.level,
        plan.collect.rate.as_secs_f64(),
    ));
    lines.extend(plan.remarks.iter().cloned());
    lines
}
