//! The status of the running agent, for `/status` and for the service manager.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_archive::{ArchiveCounts, Archiver};
use pegel_collect::{CollectorState, Sampler};
use pegel_history::{HistoryStatus, PrometheusHistory};
use pegel_ingest::pull::{OnceValues, PullInputs};
use pegel_jobs::Jobs;
use pegel_metric::ProcessTable;
use pegel_mpi_state::MpiRank;
use pegel_rules::RuleEngine;
use pegel_serve::{ProcessesUnavailable, RemoteMetric, StatusSource};
use pegel_sink::graphite::{GraphiteCounts, GraphiteOutput};
use pegel_sink::otlp::{OtlpCounts, OtlpOutput};
use pegel_sink::remote_write::{RemoteWriteCounts, RemoteWriteOutput};
use pegel_snapshot::{CloudEvent, CloudProvider, OnceInputs, SnapshotWorker};
use pegel_supervisor::Supervisor;
use pegel_tree::{ParentContact, RunningTree, TreeFigures};
use serde_json::{Map, Value, json};

use crate::agent_settings::AgentSettings;
use crate::archive;
use crate::graphite::status_json;
use crate::history;
use crate::hosted_inputs::HostedInputs;
use crate::jobs::status_json_of_jobs;
use crate::log_output::LogOutput;
use crate::otlp;
use crate::remote_write;
use crate::rules::RuleSources;
use crate::service_notifier::ServiceNotifier;

/// A sampler that took no sample for this long, or for five times its rate, is stalled. A busy
/// machine alone does not cause that.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// How soon a withheld watchdog notification is reconsidered.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct AgentStatus {
    /// `None` only in tests.
    inputs: Option<HostedInputs>,
    sampler: Mutex<Option<Sampler>>,
    snapshot_worker: Mutex<Option<SnapshotWorker>>,
    /// The values of inputs that are read once, for the snapshot.
    once_inputs: OnceInputs,
    /// `None` until the inputs are created.
    pull: Mutex<Option<Arc<PullInputs>>>,
    /// `None` without rule files.
    rules: Mutex<Option<RuleEngine>>,
    rule_sources: Option<RuleSources>,
    graphite: Mutex<Vec<GraphiteOutput>>,
    otlp: Mutex<Vec<OtlpOutput>>,
    /// `None` without targets.
    remote_write: Mutex<Option<RemoteWriteOutput>>,
    /// `None` if no engine is configured.
    history: Mutex<Option<Arc<PrometheusHistory>>>,
    /// `None` without an archive.
    archive: Mutex<Option<Archiver>>,
    tree: Mutex<Option<RunningTree>>,
    /// `None` only in tests.
    jobs: Option<Jobs>,
    /// When the last sample was handed to the store.
    last_tick: Mutex<Option<Instant>>,
    rate: Duration,
    limits: Value,
    /// The bound addresses; null until the server is bound.
    addresses: Mutex<Value>,
    config_file: Option<PathBuf>,
    config_json: Value,
    log: Option<Arc<dyn LogOutput>>,
    supervisor: Supervisor,
}

impl AgentStatus {
    pub(crate) fn new(plan: &AgentSettings, inputs: HostedInputs, jobs: Jobs) -> AgentStatus {
        AgentStatus {
            jobs: Some(jobs),
            inputs: Some(inputs),
            rate: plan.collect.rate,
            limits: json!({
                "series": plan.store.limits.series,
                "memory_bytes": plan.store.limits.memory.count(),
                "disk_bytes": plan.store.keep.bytes_max(),
                "connections": plan.serve.limits.connections,
                "socket_connections": plan.serve.socket_connections_max,
                "statsd_connections": plan.statsd.connections,
                "lanes": plan.lanes.as_ref().map_or(0, |lanes| lanes.lanes_max),
                "open_files": plan.open_files.limit,
                "cgroup_memory_bytes": plan.memory_limit.map(|limit| limit.0),
            }),
            log: plan.log.clone(),
            config_file: plan.config_file.clone(),
            config_json: plan.config_json.clone(),
            supervisor: plan.store.supervisor.clone(),
            rule_sources: Some(plan.rules.clone()),
            once_inputs: plan.snapshot.once_inputs.clone(),
            ..AgentStatus::default()
        }
    }

    /// Sets the addresses on which clients reach this agent.
    pub(crate) fn set_addresses(&self, addresses: Value) {
        *self.addresses.lock() = addresses;
    }

    pub(crate) fn set_sampler(&self, sampler: Sampler) {
        *self.sampler.lock() = Some(sampler);
    }

    pub(crate) fn take_sampler(&self) -> Option<Sampler> {
        self.sampler.lock().take()
    }

    /// Starts the worker that takes snapshots of the machine. On failure the agent runs without
    /// one.
    pub(crate) fn start_snapshot_worker(&self, plan: &AgentSettings) {
        let started = SnapshotWorker::start(
            plan.snapshot.clone(),
            plan.store.dir.clone(),
            &self.supervisor,
        );
        let started = started.inspect_err(|error| {
            tracing::warn!(%error, "cannot start the snapshot thread");
        });
        *self.snapshot_worker.lock() = started.ok();
    }

    fn with_snapshot_worker<T>(&self, read: impl FnOnce(&SnapshotWorker) -> T) -> Option<T> {
        let worker = self.snapshot_worker.lock();
        worker.as_ref().map(read)
    }

    pub(crate) fn retake_snapshot(&self) {
        self.with_snapshot_worker(SnapshotWorker::retake);
    }

    pub(crate) fn set_pull(&self, inputs: Arc<PullInputs>) {
        *self.pull.lock() = Some(inputs);
    }

    pub(crate) fn pull(&self) -> Option<Arc<PullInputs>> {
        self.pull.lock().clone()
    }

    /// Ends the reading of inputs, for which running programs are killed, and the repetition of
    /// pushed groups.
    pub(crate) fn stop_inputs(&self) {
        if let Some(inputs) = &self.inputs {
            inputs.push_groups.stop();
        }
        if let Some(inputs) = self.pull() {
            inputs.stop();
        }
    }

    /// Adds the values of an input that is read once to the snapshot.
    pub(crate) fn record_once_input(&self, name: &str, values: OnceValues) {
        if self.once_inputs.record(name, values) {
            self.retake_snapshot();
        }
    }

    pub(crate) fn stop_snapshot_worker(&self) {
        let worker = self.snapshot_worker.lock().take();
        drop(worker);
    }

    pub(crate) fn set_rules(&self, engine: RuleEngine) {
        *self.rules.lock() = Some(engine);
    }

    pub(crate) fn with_rules<T>(&self, read: impl FnOnce(&RuleEngine) -> T) -> Option<T> {
        self.rules.lock().as_ref().map(read)
    }

    /// Reads the rule files again. Files with errors change nothing.
    pub(crate) fn reload_rules(&self) {
        let Some(sources) = self.rule_sources.as_ref().filter(|one| !one.is_empty()) else {
            return;
        };
        match sources.load() {
            Ok(groups) => {
                self.with_rules(|engine| engine.replace_rules(groups));
            }
            Err(error) => {
                tracing::error!(%error, "rule files have errors; keeping the rules in force");
            }
        }
    }

    /// Ends the evaluation of rules and the delivery of alerts.
    pub(crate) fn stop_rules(&self) {
        let engine = self.rules.lock().take();
        drop(engine);
    }

    pub(crate) fn set_history(&self, history: Option<Arc<PrometheusHistory>>) {
        *self.history.lock() = history;
    }

    pub(crate) fn history(&self) -> Option<HistoryStatus> {
        let history = self.history.lock().clone();
        history.map(|history| history.status())
    }

    pub(crate) fn set_graphite(&self, outputs: Vec<GraphiteOutput>) {
        *self.graphite.lock() = outputs;
    }

    pub(crate) fn graphite_counts(&self) -> Vec<GraphiteCounts> {
        self.graphite
            .lock()
            .iter()
            .map(GraphiteOutput::counts)
            .collect()
    }

    pub(crate) fn set_remote_write(&self, output: Option<RemoteWriteOutput>) {
        *self.remote_write.lock() = output;
    }

    pub(crate) fn remote_write_counts(&self) -> Vec<RemoteWriteCounts> {
        let output = self.remote_write.lock();
        output
            .as_ref()
            .map_or_else(Vec::new, RemoteWriteOutput::counts)
    }

    /// Sends what is left with remote write and ends the output.
    pub(crate) fn stop_remote_write(&self) {
        let output = self.remote_write.lock().take();
        drop(output);
    }

    /// Sends the newest values to Graphite and ends the outputs.
    pub(crate) fn stop_graphite(&self) {
        let outputs = std::mem::take(&mut *self.graphite.lock());
        drop(outputs);
    }

    pub(crate) fn set_otlp(&self, outputs: Vec<OtlpOutput>) {
        *self.otlp.lock() = outputs;
    }

    pub(crate) fn otlp_counts(&self) -> Vec<OtlpCounts> {
        self.otlp.lock().iter().map(OtlpOutput::counts).collect()
    }

    /// Sends the newest values to OTLP receivers and ends the outputs.
    pub(crate) fn stop_otlp(&self) {
        let outputs = std::mem::take(&mut *self.otlp.lock());
        drop(outputs);
    }
    pub(crate) fn set_archive(&self, archive: Option<Archiver>) {
        *self.archive.lock() = archive;
    }

    pub(crate) fn archive_counts(&self) -> Option<ArchiveCounts> {
        self.archive.lock().as_ref().map(Archiver::counts)
    }

    /// Ends the archive. What it did not store is stored after the next start.
    pub(crate) fn stop_archive(&self) {
        let archive = self.archive.lock().take();
        drop(archive);
    }

    pub(crate) fn set_tree(&self, tree: RunningTree) {
        *self.tree.lock() = Some(tree);
    }

    pub(crate) fn tree_figures(&self) -> Option<TreeFigures> {
        self.tree.lock().as_ref().map(RunningTree::figures)
    }

    /// Reads the certificates and the token of the tree again.
    pub(crate) fn reload_tree_credentials(&self) {
        // Without the lock, which the sampler takes: the files may be on a disk that hangs.
        let reload = self.tree.lock().as_ref().map(RunningTree::reload);
        if let Some(reload) = reload {
            reload.reload_now();
        }
    }

    /// Returns whether a parent is connected; `None` without parents.
    pub(crate) fn parent_contact(&self) -> Option<ParentContact> {
        let tree = self.tree.lock();
        tree.as_ref().and_then(RunningTree::parent_contact)
    }

    /// Sends the last tick to the parent and closes the connections of the tree.
    pub(crate) fn stop_tree(&self) {
        let tree = self.tree.lock().take();
        if let Some(mut tree) = tree {
            tree.stop();
        }
    }

    pub(crate) fn cloud_events(&self) -> Option<(CloudProvider, Vec<CloudEvent>)> {
        self.with_snapshot_worker(SnapshotWorker::events)?
    }

    pub(crate) fn record_tick(&self) {
        *self.last_tick.lock() = Some(Instant::now());
    }

    /// Why the agent is stalled although none of its threads ended: a thread is stuck, or no sample
    /// is taken.
    fn stalled(&self) -> Option<String> {
        let last = *self.last_tick.lock();
        // Without collectors there is nothing to wait for.
        let since = last.map_or(Duration::ZERO, |last| last.elapsed());
        let is_sampling = since < STALLED_AFTER.max(self.rate * 5);
        let sampler = || format!("sampler stalled: no sample for {} s", since.as_secs());
        self.supervisor
            .stuck()
            .or_else(|| (!is_sampling).then(sampler))
    }

    /// Notifies the service manager's watchdog, unless the agent is stalled. Never returns.
    pub(crate) async fn run_watchdog(&self, notify: Option<&ServiceNotifier>) -> Infallible {
        let Some((notify, interval)) =
            notify.and_then(|notify| Some((notify, notify.watchdog_interval()?)))
        else {
            return std::future::pending().await;
        };
        let mut withheld = false;
        loop {
            let stalled = self.stalled();
            match &stalled {
                None => notify.notify_watchdog(),
                Some(reason) if !withheld => {
                    tracing::error!(reason, "withholding the watchdog notification");
                }
                Some(_) => {}
            }
            withheld = stalled.is_some();
            let pause = if withheld { RECHECK_INTERVAL } else { interval };
            tokio::time::sleep(pause.min(interval)).await;
        }
    }
}

impl StatusSource for AgentStatus {
    fn collectors(&self) -> Value {
        let sampler = self.sampler.lock();
        let status = sampler.as_ref().map(Sampler::status).unwrap_or_default();
        serde_json::to_value(status).unwrap_or_default()
    }

    fn snapshot(&self) -> Option<Arc<str>> {
        self.with_snapshot_worker(SnapshotWorker::current)?
    }

    fn processes(&self) -> Result<Arc<ProcessTable>, ProcessesUnavailable> {
        let sampler = self.sampler.lock();
        let Some(sampler) = sampler.as_ref() else {
            return Err(ProcessesUnavailable::NotReady);
        };
        sampler.processes().ok_or_else(|| {
            let status = sampler.status();
            let collector = status.iter().find(|status| status.name == "top_processes");
            match collector.map(|status| status.state) {
                Some(CollectorState::Disabled) | None => ProcessesUnavailable::CollectorOff,
                Some(_) => ProcessesUnavailable::NotReady,
            }
        })
    }

    fn mpi_ranks(&self, uid: Option<u32>) -> Vec<MpiRank> {
        let inputs = self.inputs.as_ref();
        inputs.map_or_else(Vec::new, |inputs| inputs.mpi_ranks(uid))
    }

    fn config(&self) -> Value {
        self.config_json.clone()
    }

    fn rule_groups(&self) -> Value {
        // The JSON is built without the lock, which the sampler takes.
        let groups = self.with_rules(RuleEngine::groups).unwrap_or_default();
        groups.iter().map(|group| group.to_json()).collect()
    }

    fn remote_metrics(&self) -> Vec<RemoteMetric> {
        let inputs = self.inputs.as_ref();
        inputs.map_or_else(Vec::new, HostedInputs::remote_metrics)
    }

    fn degraded(&self) -> Option<String> {
        self.supervisor.fault().or_else(|| self.stalled())
    }

    fn degraded_input(&self) -> Option<String> {
        self.inputs.as_ref()?.ingest.journal_error()
    }

    fn extra_fields(&self) -> Map<String, Value> {
        let sampler = self.sampler.lock();
        let counts = sampler
            .as_ref()
            .map(Sampler::schedule_counts)
            .unwrap_or_default();
        let mut fields = Map::new();
        let of_inputs = self.inputs.iter().flat_map(HostedInputs::status_fields);
        fields.extend(of_inputs.map(|(key, value)| (key.to_owned(), value)));
        fields.insert("limits".to_owned(), self.limits.clone());
        fields.insert("addresses".to_owned(), self.addresses.lock().clone());
        fields.insert("config_file".to_owned(), json!(self.config_file));
        let sampling = json!({
            "late": counts.late,
            "missed": counts.missed,
            "clock_steps": counts.clock_steps,
        });
        fields.insert("sampling".to_owned(), sampling);
        fields.insert("threads".to_owned(), json!(self.supervisor.threads()));
        if let Some(status) = self.with_snapshot_worker(SnapshotWorker::status) {
            fields.insert("snapshot".to_owned(), json!(status));
        }
        if let Some(pull) = self.pull().filter(|inputs| !inputs.is_empty()) {
            fields.insert("pull".to_owned(), json!(pull.statuses()));
        }
        let graphite = self.graphite_counts();
        if !graphite.is_empty() {
            fields.insert("graphite".to_owned(), status_json(&graphite));
        }
        let otlp = self.otlp_counts();
        if !otlp.is_empty() {
            fields.insert("otlp_output".to_owned(), otlp::status_json(&otlp));
        }
        let remote_write = self.remote_write_counts();
        if !remote_write.is_empty() {
            let status = remote_write::status_json(&remote_write);
            fields.insert("remote_write_out".to_owned(), status);
        }
        if let Some(history) = self.history() {
            fields.insert("history".to_owned(), history::status_json(&history));
        }
        if let Some(counts) = self.archive_counts() {
            fields.insert("archive".to_owned(), archive::status_json(&counts));
        }
        if let Some(tree) = self.tree.lock().as_ref() {
            fields.insert("tree".to_owned(), tree.status_json());
        }
        if let Some(jobs) = &self.jobs {
            fields.insert("jobs".to_owned(), status_json_of_jobs(jobs));
        }
        if let Some(log) = &self.log {
            let log = json!({"place": log.destination(), "lost": log.lost()});
            fields.insert("log".to_owned(), log);
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_sampler_is_degraded_and_withholds_the_watchdog_notification() {
        let source = AgentStatus {
            rate: Duration::from_secs(1),
            ..AgentStatus::default()
        };
        assert_eq!(source.stalled(), None, "nothing is sampled at all");
        source.record_tick();
        assert_eq!(source.stalled(), None);
        let long_ago = Instant::now().checked_sub(STALLED_AFTER + Duration::from_secs(1));
        *source.last_tick.lock() = long_ago;
        let reason = source.stalled().expect("no sample for 11 s");
        assert!(reason.starts_with("sampler stalled"), "{reason}");
        assert_eq!(source.degraded(), Some(reason));
    }
}
