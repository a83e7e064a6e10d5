//! All configuration keys: those of the components, the agent's own, and Dragon's.

use std::path::PathBuf;

use pegel_archive::ArchiveSettings;
use pegel_collect::CollectorsConfig;
use pegel_config::{
    ConfigKey, DetailLevel, LogConfig, SampleInterval, Secret, Section, TimeSpan, settings,
};
use pegel_history::HistoryConfig;
use pegel_ingest::admission::SenderLimits;
use pegel_ingest::otlp::OtlpInputSettings;
use pegel_ingest::pull::PullConfig;
use pegel_ingest::rules::RelabelRule;
use pegel_ingest::statsd::StatsdSettings;
use pegel_jobs::JobsSettings;
use pegel_rules::{AlertSettings, RuleFilePattern};
use pegel_serve::{ServeLimits, ServeSettings};
use pegel_session::SessionSettings;
use pegel_sink::graphite::GraphiteServer;
use pegel_sink::otlp::{OtlpReceiver, OtlpSettings};
use pegel_sink::remote_write::{RemoteWriteSettings, RemoteWriteTargets};
use pegel_snapshot::SnapshotSettings;
use pegel_store::{RetentionSettings, StoreLimits};
use pegel_tree::TreeSettings;

settings! {
    /// All keys of a configuration file.
    pub struct Config {
        ..serve: ServeSettings;
        ..agent: AgentConfig;
        ..dragon: DragonConfig;
    }
}

settings! {
    /// The agent's own keys, and the sections of its components.
    pub struct AgentConfig {
        /// The directory of the store. Without this key: pegel/HOST in $XDG_STATE_HOME, else in
        /// ~/.local/state; on a network file system pegel-UID/HOST in $TMPDIR, else in /tmp.
        dir: Option<PathBuf> = None => "/var/lib/pegel",
        /// The name of this node. Without this key: the host name.
        node: Option<String> = None => "nid0001",
        /// How often the node is sampled. Expensive collectors have slower default rates.
        rate: SampleInterval = SampleInterval::from_millis(500),
        /// How much detail is kept: every metric has a level, and those above this one are omitted.
        level: DetailLevel = DetailLevel::DEFAULT,
        /// How long samples are kept.
        keep: RetentionSettings = RetentionSettings::default(),
        /// Limits on the resources that the agent uses.
        limits: LimitsConfig = LimitsConfig::default(),
        /// The addresses that accept statsd lines, and how the lines are processed.
        statsd: StatsdSettings = StatsdSettings::default(),
        /// How metrics that programs send by OpenTelemetry's protocol are named: docs/otlp.md.
        otlp_input: OtlpInputSettings = OtlpInputSettings::default(),
        /// Sources that the agent reads by itself: docs/inputs.md lists the keys.
        inputs: PullConfig = PullConfig::default(),
        /// Collectors to disable, or to run at a different rate.
        collectors: CollectorsConfig = CollectorsConfig::default(),
        /// How this machine is described: `pegel snapshot`.
        snapshot: SnapshotSettings = SnapshotSettings::default(),
        /// Rules for the series that programs send, applied in order: keep, drop, rename, label.
        relabel: Vec<RelabelRule> = Vec::new(),
        /// Rule files in Prometheus' format, relative to this file: recording and alerting rules
        /// over the stored series. They are read again on SIGHUP.
        rules: Vec<RuleFilePattern> = Vec::new(),
        /// How rules are evaluated, and where alerts are sent.
        alerts: AlertSettings = AlertSettings::default(),
        /// Graphite servers to which current values are sent: docs/graphite.md lists the keys.
        graphite: Vec<GraphiteServer> = Vec::new(),
        /// Receivers of OpenTelemetry's protocol to which current values are sent: docs/otlp.md
        /// lists the keys.
        otlp: Vec<OtlpReceiver> = Vec::new(),
        /// Receivers of Prometheus' remote write to which all samples are sent:
        /// docs/remote-write.md lists the keys.
        remote_write: RemoteWriteTargets = RemoteWriteTargets::default(),
        /// An engine with Prometheus' API that has samples from before the store: docs/history.md.
        history: HistoryConfig = HistoryConfig::default(),
        /// Where finished blocks are copied as Parquet files: docs/archive.md.
        archive: ArchiveSettings = ArchiveSettings::default(),
        /// Agents that this one reports to, and how it accepts those that report to it:
        /// docs/tree.md.
        tree: TreeSettings = TreeSettings::default(),
        /// How jobs are kept: `pegel jobs`.
        jobs: JobsSettings = JobsSettings::default(),
        /// How tasks are recorded: `pegel session`.
        session: SessionSettings = SessionSettings::default(),
        /// Which messages are logged, and where: a level; or stderr, journal, syslog or a file
        /// (with a slash in its name); or both, as in journal:info. Without a destination: the
        /// journal if standard error is connected to it, else standard error. A file is reopened on
        /// SIGHUP.
        log: LogConfig = LogConfig::DEFAULT,
        /// More files to read, relative to this one, in the order of their names. A key may be set
        /// in one file only.
        include: Vec<String> = Vec::new(),
    }
}

impl Config {
    /// Returns the keys of the entries of a list of sections, for the manual; none for other keys.
    pub fn entry_keys(list: &str) -> Vec<ConfigKey> {
        match list {
            "otlp" => <OtlpSettings as Section>::keys(),
            "remote_write" => <RemoteWriteSettings as Section>::keys(),
            _ => Vec::new(),
        }
    }
}

settings! {
    /// The section `limits`, to which the components contribute keys.
    pub struct LimitsConfig {
        ..store: StoreLimits;
        ..senders: SenderLimits;
        ..serve: ServeLimits;
    }
}

settings! {
    /// The keys of Dragon's telemetry files, and their meaning here.
    pub struct DragonConfig {
        /// For files written for Dragon: the port of the OpenTSDB listener.
        aggregator_port: Option<u16> = None => "4242",
        /// For files written for Dragon: the port of the node's own store, on loopback. When any of
        /// Dragon's keys or $DRAGON_TELEMETRY_LEVEL is set: 4243.
        tsdb_server_port: Option<u16> = None => "4243",
        /// For files written for Dragon: the same as `rate`.
        collector_rate: Option<SampleInterval> = None => "0.5",
        /// For files written for Dragon: an upper bound for keep.memory and keep.disk.
        default_tmdb_window: Option<TimeSpan> = None => "300",
        /// For files written for Dragon: the store is pegel-HOST in this directory.
        default_tmdb_dir: Option<PathBuf> = None => "/tmp",
        /// For files written for Dragon: remove the store when the agent shuts down cleanly.
        delete_tmdb: Option<bool> = None => "1",
        /// For files written for Dragon: a client that sends this key to /api/token gets a token
        /// that grants full access until the agent stops.
        auth_key: Option<Secret> = None => "KEY",
        /// For files written for Dragon: `pegel job` opens a tunnel to this host. Has no effect
        /// elsewhere, which the agent reports at its start.
        remote_tunnel_node: Option<String> = None => "login1",
        /// For files written for Dragon: the port of that tunnel on the host.
        remote_tunnel_port: Option<u16> = None => "4242",
        /// For files written for Dragon: an older name of `remote_tunnel_node`.
        remote_port_forward: Option<String> = None => "login1",
        /// For files written for Dragon: has no effect, which the agent reports at its start.
        dump_node: Option<String> = None => "nid0001",
        /// For files written for Dragon: `pegel job` writes the samples of all nodes to telemetry/
        /// in this directory, as Dragon does. Has no effect elsewhere.
        dump_dir: Option<PathBuf> = None => "/scratch/telemetry",
    }
}

impl DragonConfig {
    /// Returns the keys that are set and have no effect here.
    pub(crate) fn keys_without_effect(&self) -> Vec<&'static str> {
        let keys = [
            ("remote_tunnel_node", self.remote_tunnel_node.is_some()),
            ("remote_tunnel_port", self.remote_tunnel_port.is_some()),
            ("remote_port_forward", self.remote_port_forward.is_some()),
            ("dump_node", self.dump_node.is_some()),
            ("dump_dir", self.dump_dir.is_some()),
        ];
        let set = keys.into_iter().filter(|(_, is_set)| *is_set);
        set.map(|(key, _)| key).collect()
    }
}

impl Config {
    /// All keys with their documentation, in the order of the default file.
    pub fn keys() -> Vec<ConfigKey> {
        <Config as Section>::keys()
    }

    /// The default file, which documents every key.
    pub fn default_file() -> String {
        const HEADING: &str = "\
The configuration of a Pegel agent. Every key is shown with its default; those that have none are
commented out. Use it with `pegel agent --config FILE` or $PEGEL_CONFIG; `pegel config check FILE`
reports errors. The command line overrides the environment, which overrides this file.";
        pegel_config::default_file(HEADING, &Config::keys())
    }
}

/// Whether a key is one of Dragon's.
pub(crate) fn is_dragon_key(key: &str) -> bool {
    <DragonConfig as Section>::keys()
        .iter()
        .any(|known| known.name == key)
}
