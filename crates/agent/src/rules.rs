//! Connects rules to the agent: their files, their series and their metrics.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_collect::SelfMetrics;
use pegel_config::{ConfigError, ConfigProblem};
use pegel_ingest::reserved_names::ReservedNames;
use pegel_metric::{Family, MetricKind};
use pegel_query::promql::{
    PromqlError, PushedAggregation, PushedSeries, Selection, SeriesSampleVisitor, SeriesSource,
    StoreSource,
};
use pegel_rules::{
    AlertSettings, MissingNode, RuleEngine, RuleEngineOptions, RuleFilePattern, RuleGroupSpec,
    RuleNodeSource, RuleSample, RuleStorage, StoreStorage, load_rule_files,
};
use pegel_serve::{NodeSeries, NodeSeriesNow};
use pegel_store::Store;

use crate::agent_settings::{AgentSettings, absolute_file};
use crate::agent_status::AgentStatus;
use crate::config_sources::LoadedConfig;

/// The rule files of the configuration and the settings of alerts.
#[derive(Debug, Clone)]
pub struct RuleSources {
    patterns: Vec<RuleFilePattern>,
    /// The directory of the configuration file, to which patterns are relative.
    dir: PathBuf,
    pub(crate) settings: AlertSettings,
    /// The names of the node's and the agent's metrics.
    reserved: Arc<ReservedNames>,
}

impl RuleSources {
    pub(crate) fn new(loaded: &LoadedConfig, reserved: Arc<ReservedNames>) -> RuleSources {
        let file = absolute_file(loaded);
        let dir = file.as_deref().and_then(Path::parent);
        RuleSources {
            patterns: loaded.config.agent.rules.clone(),
            dir: dir.unwrap_or(Path::new("")).to_owned(),
            settings: loaded.config.agent.alerts.clone(),
            reserved,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Reads and checks all rule files. No rule may record a series under a name of the node.
    pub(crate) fn load(&self) -> Result<Vec<RuleGroupSpec>, ConfigError> {
        let groups = load_rule_files(&self.patterns, &self.dir)?;
        let mut problems = Vec::new();
        for group in &groups {
            // No metric of the node has a colon, the mark of recorded series.
            let is_reserved = |name: &str| !name.contains(':') && self.reserved.contains(name);
            let recording = group.rules.iter().filter(|rule| rule.alert.is_none());
            for rule in recording.filter(|rule| is_reserved(&rule.name)) {
                problems.push(ConfigProblem {
                    origin: None,
                    key: format!("{}:{}", group.file.display(), rule.line),
                    message: format!("{} is the name of a metric of this node", rule.name),
                    hint: format!("record it under another name, such as node:{}", rule.name),
                });
            }
        }
        if problems.is_empty() {
            Ok(groups)
        } else {
            Err(ConfigError { problems })
        }
    }
}

/// What the rules of a parent read and write: the series of all nodes, and the own store.
struct TreeStorage {
    own: StoreStorage,
    nodes: NodeSeries,
}

impl RuleStorage for TreeStorage {
    fn source(&self) -> &dyn SeriesSource {
        self.own.source()
    }

    fn nodes(&self) -> Option<Box<dyn RuleNodeSource + '_>> {
        Some(Box::new(TreeNodes(self.nodes.now())))
    }

    fn append(&self, samples: &[RuleSample]) -> Result<(), String> {
        self.own.append(samples)
    }
}

/// The nodes of one evaluation.
struct TreeNodes(NodeSeriesNow);

impl SeriesSource for TreeNodes {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.0.select(selection, visit)
    }

    fn takes_aggregations(&self) -> bool {
        self.0.takes_aggregations()
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        self.0.aggregate(pushed)
    }
}

impl RuleNodeSource for TreeNodes {
    fn missing(&self) -> Vec<MissingNode> {
        let missing = self.0.missing().into_iter();
        missing
            .map(|(name, is_connected)| MissingNode { name, is_connected })
            .collect()
    }
}

/// Starts the evaluation of rules over `source`, the series of the store, or over those of all
/// nodes. `url` is that of the agent's page.
pub(crate) fn start_rules(
    plan: &AgentSettings,
    groups: Vec<RuleGroupSpec>,
    source: StoreSource,
    nodes: Option<NodeSeries>,
    store: &Store,
    url: Option<String>,
) -> std::io::Result<RuleEngine> {
    let own = StoreStorage::new(Box::new(source), store.clone());
    let storage: Box<dyn RuleStorage> = match nodes {
        Some(nodes) => Box::new(TreeStorage { own, nodes }),
        None => Box::new(own),
    };
    let settings = plan.rules.settings.clone();
    let external_url = settings.external_url.clone().or(url).unwrap_or_default();
    RuleEngine::start(RuleEngineOptions {
        groups,
        settings,
        node: plan.node.clone(),
        external_url,
        storage,
        clock: plan.store.clock.clone(),
        supervisor: store.supervisor().clone(),
    })
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, "", 0, help)
}

const EVALUATIONS: Family = counter(
    "pegel_rule_evaluations_total",
    "Total number of rule evaluations.",
);
const FAILURES: Family = counter(
    "pegel_rule_evaluation_failures_total",
    "Total number of rule evaluations that failed.",
);
const MISSED: Family = counter(
    "pegel_rule_group_iterations_missed_total",
    "Total number of evaluations of a rule group that were skipped because the previous ones took too long.",
);
const INCOMPLETE: Family = counter(
    "pegel_rule_evaluations_incomplete_total",
    "Total number of rule evaluations for which nodes of the tree did not answer.",
);
const LAST_DURATION: Family = Family::new(
    "pegel_rule_group_last_duration_seconds",
    MetricKind::Gauge,
    "seconds",
    0,
    "Duration of the last evaluation of a rule group, in seconds.",
);
const SENT: Family = counter(
    "pegel_alerts_sent_total",
    "Total number of alerts delivered to a receiver.",
);
const SEND_ERRORS: Family = counter(
    "pegel_alerts_send_errors_total",
    "Total number of failed attempts to deliver alerts to a receiver.",
);
const DROPPED: Family = counter(
    "pegel_alerts_dropped_total",
    "Total number of alerts dropped because a receiver refused them or its queue was full.",
);
const WAITING: Family = Family::new(
    "pegel_alerts_queue_length",
    MetricKind::Gauge,
    "",
    0,
    "Number of alerts that wait for a receiver.",
);

/// The families of groups, then those of receivers.
static FAMILIES: [Family; 9] = [
    EVALUATIONS,
    FAILURES,
    INCOMPLETE,
    MISSED,
    LAST_DURATION,
    SENT,
    SEND_ERRORS,
    DROPPED,
    WAITING,
];

/// The families of the metrics of rules and alerts.
pub(crate) fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter()
}

/// Publishes the counts of rules and receivers.
#[derive(Debug)]
pub(crate) struct RuleMetrics {
    status: Arc<AgentStatus>,
    families: Vec<Arc<Family>>,
}

impl RuleMetrics {
    pub(crate) fn new(status: &Arc<AgentStatus>) -> Arc<RuleMetrics> {
        Arc::new(RuleMetrics {
            status: status.clone(),
            families: FAMILIES.iter().cloned().map(Arc::new).collect(),
        })
    }
}

impl SelfMetrics for RuleMetrics {
    fn readings(&self, put: &mut dyn FnMut(&Arc<Family>, &[(&str, &str)], f64)) {
        let read = |engine: &RuleEngine| (engine.group_counts(), engine.receiver_counts());
        let Some((groups, receivers)) = self.status.with_rules(read) else {
            return;
        };
        for group in groups {
            let labels = [("rule_group", group.key.as_str())];
            let values = [
                group.evaluations() as f64,
                group.failures() as f64,
                group.incomplete() as f64,
                group.missed() as f64,
                group.last_seconds(),
            ];
            for (family, value) in self.families.iter().zip(values) {
                put(family, &labels, value);
            }
        }
        for receiver in receivers {
            let labels = [("receiver", receiver.name.as_str())];
            let values = [
                receiver.sent,
                receiver.errors,
                receiver.dropped,
                receiver.waiting,
            ];
            for (family, value) in self.families[5..].iter().zip(values) {
                put(family, &labels, value as f64);
            }
        }
    }
}
