//! Turns the configuration into the settings of all components: applies the defaults that depend on
//! the machine, and the meaning of Dragon's keys. The agent and the commands that inspect it build
//! [`AgentSettings`] once, at the start; nothing here changes the system.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pegel_archive::ArchiveSettings;
use pegel_collect::{CollectSettings, Host, REGISTRY};
use pegel_config::{ByteSize, ListenAddress, Secret, TimeSpan, UserRef};
use pegel_history::HistorySettings;
use pegel_ingest::admission::AdmissionSettings;
use pegel_ingest::lanes::{LANES_MAX, LaneDirectory, LanesSettings};
use pegel_ingest::otlp::OtlpInputSettings;
use pegel_ingest::pull::PullConfig;
use pegel_ingest::reserved_names::ReservedNames;
use pegel_ingest::rules::RelabelRules;
use pegel_ingest::statsd::StatsdListenOptions;
use pegel_jobs::JobsSettings;
use pegel_metric::quantity;
use pegel_run::PROGRAMS_MAX;
use pegel_serve::socket::default_socket;
use pegel_serve::{LocalUsers, ServeSettings};
use pegel_session::SessionSettings;
use pegel_sink::graphite::GraphiteServer;
use pegel_sink::otlp::OtlpReceiver;
use pegel_sink::remote_write::RemoteWriteTarget;
use pegel_snapshot::SnapshotOptions;
use pegel_store::{DiskFiles, StoreOptions};
use pegel_tree::TreeSettings;

use crate::archive;
use crate::check_config::config_warnings;
use crate::config::Config;
use crate::config_json;
use crate::config_sources::{EnvironmentLookup, LoadedConfig};
use crate::descriptors::{DescriptorBudget, LimitedSettings, OpenFiles, configured_descriptors};
use crate::graphite;
use crate::history;
use crate::jobs;
use crate::log_output::LogOutput;
use crate::marks;
use crate::memory_limit::MemoryLimit;
use crate::otlp;
use crate::pull_metrics;
use crate::remote_write;
use crate::rules::{self, RuleSources};
use crate::service_notifier::ServiceNotifier;
use crate::sessions;
use crate::snapshots::{self, snapshot_options};
use crate::store_dir::{self, FileSystemKind};
use crate::store_metrics;
use crate::tree;

/// Maximum size of a store on a tmpfs, unless the configuration sets one.
const TMPFS_BYTES: u64 = 64 << 20;

/// Everything that an agent needs to start.
#[derive(Debug)]
pub struct AgentSettings {
    pub node: String,
    pub level: u8,
    pub host: Host,
    pub store: StoreOptions,
    pub collect: CollectSettings,
    pub admission: AdmissionSettings,
    /// Where programs' lanes are; `None` if `PEGEL_DISABLE` is set.
    pub lanes: Option<LanesSettings>,
    pub statsd: StatsdListenOptions,
    pub serve: ServeSettings,
    /// The sources that the agent reads by itself.
    pub pull: PullConfig,
    pub rules: RuleSources,
    pub graphite: Vec<GraphiteServer>,
    pub otlp: Vec<OtlpReceiver>,
    pub otlp_input: OtlpInputSettings,
    pub remote_write: Vec<RemoteWriteTarget>,
    pub history: HistorySettings,
    pub archive: ArchiveSettings,
    pub tree: TreeSettings,
    pub session: SessionSettings,
    pub jobs: JobsSettings,
    /// The agent was started by `pegel session start`, which may replace it.
    pub is_supervised: bool,
    /// The agent cannot outlive the task that started it: records end when it stops.
    pub ends_records: bool,
    /// The agent ends with its job: jobs that programs named end when it stops.
    pub ends_jobs: bool,
    /// See [`AgentSettings::only_serve_stored`].
    pub(crate) serves_stored_only: bool,
    /// Maximum number of programs that are counted for wrappers at one time.
    pub(crate) programs_max: usize,
    /// What a snapshot of this machine reads.
    pub snapshot: SnapshotOptions,
    /// The output of log messages, if the caller set one up.
    pub log: Option<Arc<dyn LogOutput>>,
    pub(crate) notify: Option<ServiceNotifier>,
    /// The agent was started for a job, which may stop it: by Dragon's keys or variable, or
    /// `--until-pid`.
    pub ends_with_job: bool,
    /// The agent stops when all participants of the job on this node are done.
    pub ends_with_participants: bool,
    /// Remove the store after an orderly stop.
    pub remove_store: bool,
    /// The limit on open files that all components are sized for.
    pub(crate) open_files: OpenFiles,
    pub(crate) memory_limit: Option<MemoryLimit>,
    /// Notes for the user: defaults that this machine changed.
    pub remarks: Vec<String>,
    /// The absolute path of the configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// The configuration in force, for `GET /api/v1/config`.
    pub(crate) config_json: serde_json::Value,
}

impl AgentSettings {
    pub fn new(loaded: &LoadedConfig, environment: EnvironmentLookup<'_>) -> AgentSettings {
        let config = &loaded.config;
        let host_name = store_dir::host_name();
        let mut remarks = Vec::new();
        let memory_limit = MemoryLimit::read(environment);
        let dir = store_dir(loaded, &host_name, environment, &mut remarks);
        let mut store = store_options(config, dir, memory_limit, &mut remarks);
        let mut serve = serve_settings(loaded, environment);
        if serve.socket.is_none() {
            let (socket, remark) = default_socket();
            serve.socket = Some(socket);
            remarks.extend(remark);
        }
        remarks.extend(exposure_remarks(&serve));
        remarks.extend(config_warnings(loaded));
        let without_effect = config.dragon.keys_without_effect();
        if !without_effect.is_empty() {
            let keys = without_effect.join(", ");
            remarks.push(format!("keys of Dragon's that have no effect here: {keys}"));
        }
        let mut statsd = StatsdListenOptions::new(
            &config.agent.statsd,
            serve.socket.as_deref(),
            serve.port_search,
        );
        statsd.supervisor = store.supervisor.clone();
        let mut tree = tree_settings(config, environment);
        let mut session = config.agent.session.clone();
        let node = config.agent.node.clone().unwrap_or(host_name);
        let admission = admission_settings(config, &node, store.keep.bytes_max());
        let mut rules = RuleSources::new(loaded, admission.reserved.clone());
        if let Some(limit) = memory_limit {
            limit.fit_fixed(&mut serve, &mut statsd, &mut tree, &mut rules.settings);
            remarks.push(limit.remark(config));
        }
        let mut lanes = lanes_settings(&store.dir, &serve.admitted_users(), environment);
        let (connections, threads) = (serve.limits.connections, statsd.threads);
        let (children, tasks) = (tree.children_max, session.sessions);
        let mut programs_max = PROGRAMS_MAX;
        let limited = LimitedSettings {
            store: &mut store,
            serve: &mut serve,
            statsd: &mut statsd,
            lanes: lanes.as_mut(),
            programs_max: &mut programs_max,
            tree: &mut tree,
            session: &mut session,
        };
        let configured = configured_descriptors(&config.agent);
        let open_files = DescriptorBudget::distribute(limited, configured);
        if serve.limits.connections < connections
            || statsd.threads < threads
            || tree.children_max < children
            || session.sessions < tasks
        {
            let mut remark = format!(
                "open files are limited to {}: at most {} connections, {} statsd connections, {} threads for statsd datagrams, {} lanes, {} sessions",
                open_files.limit,
                serve.limits.connections,
                statsd.connections,
                statsd.threads,
                lanes.as_ref().map_or(0, |lanes| lanes.lanes_max),
                session.sessions,
            );
            if tree.accept.is_some() {
                remark.push_str(&format!(", {} children", tree.children_max));
            }
            remarks.push(remark);
        }
        let remote_write = remote_write::targets(&config.agent.remote_write.0, &store.dir);
        store.keep_log = !remote_write.is_empty();
        AgentSettings {
            level: config.agent.level.get(),
            host: host(environment),
            lanes,
            collect: CollectSettings {
                rate: sample_rate(loaded),
                collectors: config.agent.collectors.0.clone(),
                supervisor: store.supervisor.clone(),
            },
            admission,
            node,
            store,
            statsd,
            serve,
            pull: config.agent.inputs.clone(),
            rules,
            graphite: config.agent.graphite.clone(),
            otlp: config.agent.otlp.clone(),
            otlp_input: config.agent.otlp_input.clone(),
            remote_write,
            history: config.agent.history.0.clone(),
            archive: config.agent.archive.clone(),
            tree,
            session,
            jobs: config.agent.jobs.clone(),
            is_supervised: false,
            ends_records: false,
            ends_jobs: false,
            serves_stored_only: false,
            programs_max,
            snapshot: snapshot_options(loaded, environment),
            log: None,
            notify: ServiceNotifier::new(environment),
            config_file: absolute_file(loaded),
            config_json: config_json::config_as_json(loaded),
            ends_with_job: loaded.uses_dragon_keys(environment),
            ends_with_participants: loaded.uses_dragon_keys(environment),
            remove_store: config.dragon.delete_tmdb == Some(true),
            open_files,
            memory_limit,
            remarks,
        }
    }
}

/// The longest time for which samples are kept: a hundred years.
pub(crate) const FOREVER: u64 = 36_500 * 86_400;
/// The largest store that is served.
pub(crate) const STORED_BYTES_MAX: u64 = 1 << 40;

impl AgentSettings {
    /// Leaves only what serves stored samples: nothing is collected, received or sent, and no
    /// sample is removed for its age.
    pub fn only_serve_stored(&mut self) {
        self.serves_stored_only = true;
        for entry in REGISTRY {
            let settings = self
                .collect
                .collectors
                .entry(entry.name.to_owned())
                .or_default();
            settings.enabled = Some(false);
        }
        self.store.keep.disk = TimeSpan::seconds(FOREVER);
        self.store.keep.bytes = Some(ByteSize::bytes(STORED_BYTES_MAX));
        self.lanes = None;
        self.pull = PullConfig::default();
        self.graphite = Vec::new();
        self.otlp = Vec::new();
        // What waits for receivers is sent by the agent that collected it.
        self.remote_write = Vec::new();
        self.store.keep_log = true;
        self.history = HistorySettings::default();
        self.archive = ArchiveSettings::default();
        self.statsd.keys.udp = Vec::new();
        self.statsd.keys.tcp = Vec::new();
        self.statsd.unix = None;
        self.statsd.unix_stream = None;
    }
}

fn store_options(
    config: &Config,
    dir: PathBuf,
    limit: Option<MemoryLimit>,
    remarks: &mut Vec<String>,
) -> StoreOptions {
    let mut store = StoreOptions::new(dir);
    store.keep = config.agent.keep.clone();
    store.limits = config.agent.limits.store.clone();
    if let Some(window) = &config.dragon.default_tmdb_window {
        for span in [&mut store.keep.memory, &mut store.keep.disk] {
            if window.duration() < span.duration() {
                *span = window.clone();
            }
        }
    }
    let is_in_memory = store_dir::file_system_kind(&store.dir) == FileSystemKind::Memory;
    if store.keep.bytes.is_none() && is_in_memory {
        let bytes = limit.map_or(TMPFS_BYTES, |limit| limit.share(TMPFS_BYTES, 4 << 20));
        remarks.push(format!(
            "{} is in memory (tmpfs): the store is limited to {}",
            store.dir.display(),
            quantity::bytes(bytes)
        ));
        store.keep.bytes = Some(ByteSize::bytes(bytes));
    }
    store
}

fn sample_rate(loaded: &LoadedConfig) -> Duration {
    match &loaded.config.dragon.collector_rate {
        Some(rate) if loaded.origin_of("rate").is_none() => rate.duration(),
        _ => loaded.config.agent.rate.duration(),
    }
}

fn admission_settings(config: &Config, node: &str, keep_bytes: u64) -> AdmissionSettings {
    let limits = &config.agent.limits;
    let mut senders = limits.senders.clone();
    // By default, no sender can replace the whole store in less than a day.
    const LEAST: u64 = 4 << 10;
    let per_day = || ByteSize::bytes((keep_bytes / 86_400).max(LEAST));
    senders.sender_bytes.get_or_insert_with(per_day);
    AdmissionSettings {
        level: config.agent.level.get(),
        series_max: u64::from(limits.store.series.get()),
        senders,
        text_bytes_max: limits.store.memory.count() / 16,
        rules: RelabelRules::new(config.agent.relabel.clone()),
        reserved: reserved_names(config, node),
    }
}

/// The directories of programs' lanes: `$PEGEL_LANES`, or the system's directory and the user's
/// own. If `allow_users` is set, those users have a directory beside it, in which only their lanes
/// are read.
fn lanes_settings(
    dir: &Path,
    allow_users: &[UserRef],
    environment: EnvironmentLookup<'_>,
) -> Option<LanesSettings> {
    if pegel_lane::is_disabled() {
        return None;
    }
    let uid = rustix::process::geteuid().as_raw();
    // The first usable directory is created now, so that programs find it; the others are read if
    // they exist.
    let (first, _) = pegel_lane::private_directory::choose(pegel_lane::user_directories(uid), uid);
    let own = pegel_lane::user_directories(uid).map(|path| LaneDirectory {
        is_optional: path != first,
        ..LaneDirectory::for_user(path, uid)
    });
    let directories = match environment("PEGEL_LANES").filter(|path| !path.is_empty()) {
        Some(path) => vec![LaneDirectory::for_all_users(path)],
        None if Path::new(pegel_lane::SYSTEM_DIRECTORY).is_dir() => {
            let system = LaneDirectory::for_all_users(pegel_lane::SYSTEM_DIRECTORY);
            std::iter::once(system).chain(own).collect()
        }
        None if !allow_users.is_empty() => {
            // An unknown user is reported at the start of the agent.
            let users = LocalUsers::new(allow_users).map(|users| users.uids());
            let path = pegel_lane::guests_directory(uid);
            let guests = LaneDirectory::for_guests(path, users.unwrap_or_default());
            own.chain([guests]).collect()
        }
        None => own.collect(),
    };
    Some(LanesSettings {
        directories,
        journal: dir.join("lanes.journal"),
        files: Arc::new(DiskFiles),
        lanes_max: LANES_MAX,
    })
}

/// The names of all metrics that the agent collects itself, and of the node.
fn reserved_names(config: &Config, node: &str) -> Arc<ReservedNames> {
    let collected = REGISTRY.iter().flat_map(|entry| entry.families);
    let own = store_metrics::families()
        .chain(snapshots::families())
        .chain(rules::families())
        .chain(graphite::families())
        .chain(otlp::families())
        .chain(remote_write::families())
        .chain(history::families())
        .chain(archive::families())
        .chain(tree::families())
        .chain(pull_metrics::families())
        .chain(marks::families())
        .chain(jobs::families())
        .chain([&pegel_serve::JOB_INFO])
        .chain(sessions::families());
    let own = own.map(|family| &*family.name);
    let names = collected.map(|family| &*family.name).chain(own);
    let configured = config.serve.promql.instance.clone();
    let ports = config.serve.listen.iter();
    let ports = ports.map(|address| format!("{node}:{}", address.socket().port()));
    let names = ReservedNames::new(names).of_node(node);
    Arc::new(names.of_instances(ports.chain(configured)))
}

/// Returns the path for messages; a path that cannot be made absolute stays as it is.
pub(crate) fn absolute_file(loaded: &LoadedConfig) -> Option<PathBuf> {
    let file = loaded.file.as_ref()?;
    Some(std::path::absolute(file).unwrap_or_else(|_| file.clone()))
}

/// The machine to collect from: this one, or one made of files (`PEGEL_ROOT`); with another NVIDIA
/// library if `PEGEL_NVML` is set.
pub(crate) fn host(environment: EnvironmentLookup<'_>) -> Host {
    let named = |key| environment(key).filter(|path| !path.is_empty());
    let mut host =
        named("PEGEL_ROOT").map_or_else(Host::local, |root| Host::at(&PathBuf::from(root)));
    if let Some(path) = named("PEGEL_NVML") {
        host.nvml = vec![PathBuf::from(path)];
    }
    host
}

fn store_dir(
    loaded: &LoadedConfig,
    host: &str,
    environment: EnvironmentLookup<'_>,
    remarks: &mut Vec<String>,
) -> PathBuf {
    let config = &loaded.config;
    if let Some(dir) = &config.agent.dir {
        // The store requires absolute paths; a missing current directory is reported there.
        return std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    }
    if let Some(dir) = &config.dragon.default_tmdb_dir {
        return std::path::absolute(dir)
            .unwrap_or_else(|_| dir.clone())
            .join(format!("pegel-{host}"));
    }
    let default = store_dir::default_store_dir(host, environment, store_dir::file_system_kind);
    remarks.extend(default.remark);
    default.path
}

fn tree_settings(config: &Config, environment: EnvironmentLookup<'_>) -> TreeSettings {
    TreeSettings {
        token_variable: token_variable(environment),
        ..config.agent.tree.clone()
    }
}

/// The token of the environment. A value that is not UTF-8 is not a valid token, and is refused as
/// one.
fn token_variable(environment: EnvironmentLookup<'_>) -> Option<Secret> {
    let token = environment("PEGEL_TOKEN").filter(|value| !value.is_empty());
    token.map(|value| Secret::new(value.to_string_lossy()))
}

fn serve_settings(loaded: &LoadedConfig, environment: EnvironmentLookup<'_>) -> ServeSettings {
    let (config, dragon) = (&loaded.config.serve, &loaded.config.dragon);
    let mut listen = config.listen.clone();
    if let Some(port) = dragon.aggregator_port {
        // Unless `listen` was set, Dragon's port replaces the second listener, the one for Grafana.
        if loaded.origin_of("listen").is_none() {
            listen.truncate(1);
        }
        add_loopback(&mut listen, port);
    }
    if loaded.uses_dragon_keys(environment) {
        add_loopback(&mut listen, dragon.tsdb_server_port.unwrap_or(4243));
    }
    ServeSettings {
        listen,
        limits: loaded.config.agent.limits.serve.clone(),
        token_variable: token_variable(environment),
        auth_key: dragon.auth_key.clone(),
        ..config.clone()
    }
}

/// Warnings for an agent that other machines can reach.
fn exposure_remarks(serve: &ServeSettings) -> Vec<String> {
    let exposed = serve.listen.iter().filter(|address| !address.is_loopback());
    let exposed: Vec<String> = exposed.map(ListenAddress::to_string).collect();
    if exposed.is_empty() || !serve.insecure {
        return Vec::new();
    }
    let (addresses, mut remarks) = (exposed.join(", "), Vec::new());
    let has_token = serve.token().is_some() || serve.auth_key.is_some();
    if !has_token && serve.tls.ca.is_none() {
        remarks.push(format!(
            "NOT PROTECTED (--insecure): everyone who can reach {addresses} may read and write here"
        ));
    }
    if serve.tls.files().is_none() {
        let what = if has_token {
            "samples and the token"
        } else {
            "samples"
        };
        remarks.push(format!(
            "NOT ENCRYPTED (--insecure): {what} can be read in transit to {addresses}"
        ));
    }
    remarks
}

fn add_loopback(listen: &mut Vec<ListenAddress>, port: u16) {
    let address = ListenAddress::loopback(port);
    if port == 0
        || !listen
            .iter()
            .any(|known| known.socket() == address.socket())
    {
        listen.push(address);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use pegel_serve::TokenSource;

    use super::*;
    use crate::config_sources::{ConfigArgument, load_config};

    fn plan(keys: &[(&'static str, &str)], variables: &[(&str, &str)]) -> AgentSettings {
        let arguments: Vec<ConfigArgument> = keys
            .iter()
            .map(|(key, text)| ConfigArgument {
                key,
                flag: "--test",
                texts: vec![(*text).to_owned()],
            })
            .collect();
        let environment = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        let loaded = load_config(None, &arguments, &environment).expect("valid");
        AgentSettings::new(&loaded, &environment)
    }

    fn listeners(plan: &AgentSettings) -> Vec<String> {
        plan.serve
            .listen
            .iter()
            .map(ListenAddress::to_string)
            .collect()
    }

    #[test]
    fn defaults() {
        let plan = plan(&[("dir", "/nonexistent/x")], &[]);
        assert_eq!(listeners(&plan), ["127.0.0.1:1337", "127.0.0.1:4242"]);
        assert_eq!(plan.store.keep.disk.duration().as_secs(), 172_800);
        assert_eq!(plan.store.keep.memory.duration().as_secs(), 300);
        assert_eq!(plan.store.limits.series.get(), 200_000);
        assert_eq!(plan.collect.rate, Duration::from_millis(500));
        assert_eq!((plan.level, plan.remove_store), (3, false));
        assert_eq!(plan.host.proc, PathBuf::from("/proc"));
    }

    #[test]
    fn dragons_keys_have_their_meaning() {
        let keys = [
            ("aggregator_port", "5242"),
            ("collector_rate", "0.25"),
            ("default_tmdb_window", "60"),
            ("default_tmdb_dir", "/nonexistent"),
            ("delete_tmdb", "1"),
        ];
        let plan = plan(&keys, &[]);
        assert_eq!(
            listeners(&plan),
            ["127.0.0.1:1337", "127.0.0.1:5242", "127.0.0.1:4243"]
        );
        assert_eq!(plan.collect.rate, Duration::from_millis(250));
        assert_eq!(plan.store.keep.memory.duration().as_secs(), 60);
        assert_eq!(plan.store.keep.disk.duration().as_secs(), 60);
        let expected = format!("/nonexistent/pegel-{}", store_dir::host_name());
        assert_eq!(plan.store.dir, PathBuf::from(expected));
        assert!(plan.remove_store);
    }

    #[test]
    fn keys_of_dragons_without_effect_are_reported() {
        let keys = [
            ("dir", "/nonexistent/x"),
            ("remote_tunnel_node", "login1"),
            ("dump_dir", "/scratch"),
        ];
        let remarks = plan(&keys, &[]).remarks.join("\n");
        let expected = "keys of Dragon's that have no effect here: remote_tunnel_node, dump_dir";
        assert!(remarks.contains(expected), "{remarks}");
    }

    #[test]
    fn dragons_level_opens_the_node_port() {
        let plan = plan(
            &[("dir", "/nonexistent/x")],
            &[
                ("DRAGON_TELEMETRY_LEVEL", "2"),
                ("PEGEL_ROOT", "/fix"),
                ("PEGEL_NVML", "/fix/nvml.so"),
            ],
        );
        assert_eq!(
            listeners(&plan),
            ["127.0.0.1:1337", "127.0.0.1:4242", "127.0.0.1:4243"]
        );
        assert_eq!(plan.level, 2);
        assert_eq!(plan.host.proc, PathBuf::from("/fix/proc"));
        assert_eq!(plan.host.nvml, [PathBuf::from("/fix/nvml.so")]);
    }

    #[test]
    fn the_token_comes_from_the_environment_or_from_a_file_and_is_never_shown() {
        let keys = [("dir", "/nonexistent/x"), ("token_file", "/t")];
        let from_file = plan(&keys, &[("PEGEL_TOKEN", "")]);
        assert!(
            matches!(from_file.serve.token(), Some(TokenSource::File(path)) if path.ends_with("t"))
        );
        let from_variable = plan(&keys, &[("PEGEL_TOKEN", "planted")]);
        match from_variable.serve.token() {
            Some(TokenSource::Variable(secret)) => assert_eq!(secret.reveal(), "planted"),
            other => panic!("{other:?}"),
        }
        assert!(!format!("{from_variable:?}").contains("planted"));
    }

    #[test]
    fn opening_the_agent_to_others_is_said_aloud() {
        let keys = [
            ("dir", "/nonexistent/x"),
            ("listen", "0.0.0.0:1"),
            ("insecure", "1"),
        ];
        let open = plan(&keys, &[]).remarks.join("\n");
        assert!(
            open.contains("NOT PROTECTED") && open.contains("NOT ENCRYPTED"),
            "{open}"
        );
        let with_token = plan(&keys, &[("PEGEL_TOKEN", "planted")])
            .remarks
            .join("\n");
        assert!(!with_token.contains("NOT PROTECTED"), "{with_token}");
        assert!(
            with_token.contains("samples and the token can be read"),
            "{with_token}"
        );
        assert!(!with_token.contains("planted"), "{with_token}");
    }

    #[test]
    fn our_own_keys_win_over_dragons() {
        let plan = plan(
            &[
                ("rate", "1s"),
                ("collector_rate", "0.25"),
                ("dir", "/nonexistent/a"),
                ("default_tmdb_dir", "/b"),
            ],
            &[],
        );
        assert_eq!(plan.collect.rate, Duration::from_secs(1));
        assert_eq!(plan.store.dir, PathBuf::from("/nonexistent/a"));
    }
}
