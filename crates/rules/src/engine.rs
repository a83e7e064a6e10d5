//! The thread that evaluates groups of rules at their times.
//!
//! One thread evaluates all groups, one after the other: rules use at most one core, and each
//! expression is bounded in time. A group is due at multiples of its interval, shifted by a hash of
//! its name so that groups do not come all at once. A group that is late is evaluated once for the
//! times it missed, and these are counted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pegel_config::{ConfigError, ConfigProblem};
use pegel_metric::{Clock, Millis};
use pegel_query::promql::{LabelSet, PromqlLimits, QueryCancellation};
use pegel_supervisor::{RestartedThread, Supervisor};

use crate::delivery::{AlertPresentation, Delivery, ReceiverCounts};
use crate::group::RuleGroup;
use crate::rule_file::{RULES_MAX, RuleFile, RuleGroupSpec};
use crate::rule_state::{EvaluationContext, as_millis};
use crate::rule_status::GroupStatus;
use crate::settings::{AlertSettings, RuleFilePattern};
use crate::storage::RuleStorage;

/// The time limit of one expression, whatever that of queries is: rules run unattended.
const EXPRESSION_TIME_MAX: Duration = Duration::from_secs(10);

/// Everything that the engine needs to start.
pub struct RuleEngineOptions {
    pub groups: Vec<RuleGroupSpec>,
    pub settings: AlertSettings,
    /// The name of this node.
    pub node: String,
    pub external_url: String,
    pub storage: Box<dyn RuleStorage>,
    pub clock: Arc<dyn Clock>,
    pub supervisor: Supervisor,
}

impl std::fmt::Debug for RuleEngineOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleEngineOptions").finish_non_exhaustive()
    }
}

/// The running engine. Dropping it ends its threads.
#[derive(Debug)]
pub struct RuleEngine {
    shared: Arc<EngineShared>,
    /// Ends before delivery, which sends what the last evaluation produced.
    thread: Option<RestartedThread>,
}

struct EngineShared {
    settings: AlertSettings,
    external_labels: LabelSet,
    external_url: String,
    storage: Box<dyn RuleStorage>,
    clock: Arc<dyn Clock>,
    delivery: Delivery,
    /// Locked by the evaluating thread while it evaluates; by no one else.
    groups: Mutex<Vec<ScheduledGroup>>,
    status: Mutex<EngineStatus>,
    wake: Condvar,
    /// Ends the expression that is being evaluated when the agent stops.
    cancellation: QueryCancellation,
}

impl std::fmt::Debug for EngineShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineShared").finish_non_exhaustive()
    }
}

/// What other threads see and ask for.
#[derive(Debug, Default)]
struct EngineStatus {
    groups: Vec<(Arc<GroupStatus>, Arc<GroupCounts>)>,
    new_rules: Option<Vec<RuleGroupSpec>>,
    is_stopped: bool,
}

#[derive(Debug)]
struct ScheduledGroup {
    group: RuleGroup,
    due: Millis,
    counts: Arc<GroupCounts>,
}

/// The counts of a group since the start of the agent.
#[derive(Debug, Default)]
pub struct GroupCounts {
    /// The file and the name, as in Prometheus: `FILE;NAME`.
    pub key: String,
    evaluations: AtomicU64,
    failures: AtomicU64,
    incomplete: AtomicU64,
    missed: AtomicU64,
    /// The duration of the last evaluation, as bits of a double.
    last_seconds: AtomicU64,
}

impl GroupCounts {
    pub fn evaluations(&self) -> u64 {
        self.evaluations.load(Ordering::Relaxed)
    }

    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The evaluations of rules for which nodes did not answer.
    pub fn incomplete(&self) -> u64 {
        self.incomplete.load(Ordering::Relaxed)
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    pub fn last_seconds(&self) -> f64 {
        f64::from_bits(self.last_seconds.load(Ordering::Relaxed))
    }
}

/// Reads all rule files; patterns are relative to `dir`. A name without wildcards must exist.
pub fn load_rule_files(
    patterns: &[RuleFilePattern],
    dir: &Path,
) -> Result<Vec<RuleGroupSpec>, ConfigError> {
    let mut problems = Vec::new();
    let mut groups = Vec::new();
    let mut problem = |key: &str, message: String| {
        problems.push(ConfigProblem {
            origin: None,
            key: key.to_owned(),
            message,
            hint: String::new(),
        });
    };
    let mut failures = Vec::new();
    for RuleFilePattern(pattern) in patterns {
        match pegel_config::matching_files(dir, pattern) {
            Err(message) => problem("rules", message),
            Ok(paths) => {
                for path in paths {
                    match RuleFile::load(&path) {
                        Ok(file) => groups.extend(file.groups),
                        Err(error) => failures.extend(error.problems),
                    }
                }
            }
        }
    }
    let count: usize = groups
        .iter()
        .map(|group: &RuleGroupSpec| group.rules.len())
        .sum();
    if count > RULES_MAX {
        problem(
            "rules",
            format!("{count} rules; at most {RULES_MAX} are accepted"),
        );
    }
    problems.extend(failures);
    if problems.is_empty() {
        Ok(groups)
    } else {
        Err(ConfigError { problems })
    }
}

impl RuleEngine {
    pub fn start(options: RuleEngineOptions) -> io::Result<RuleEngine> {
        let settings = options.settings;
        let external_labels = match &settings.external_labels {
            Some(labels) => LabelSet::new(labels),
            None => LabelSet::new([("node", &options.node)]),
        };
        let presentation = AlertPresentation {
            external_labels: external_labels.clone(),
            external_url: options.external_url.clone(),
        };
        let delivery = Delivery::start(&settings, presentation, &options.supervisor)?;
        let shared = Arc::new(EngineShared {
            settings,
            external_labels,
            external_url: options.external_url,
            storage: options.storage,
            clock: options.clock,
            delivery,
            groups: Mutex::default(),
            status: Mutex::new(EngineStatus {
                new_rules: Some(options.groups),
                ..EngineStatus::default()
            }),
            wake: Condvar::new(),
            cancellation: QueryCancellation::default(),
        });
        // Readers see the groups before their first evaluation.
        shared.take_new_rules();
        let for_thread = shared.clone();
        let thread = options.supervisor.thread("rules");
        let thread = thread.restarted(move || for_thread.run())?;
        Ok(RuleEngine {
            shared,
            thread: Some(thread),
        })
    }

    /// Replaces all rules. Rules that did not change keep their state.
    pub fn replace_rules(&self, groups: Vec<RuleGroupSpec>) {
        self.shared.status.lock().new_rules = Some(groups);
        self.shared.wake.notify_all();
    }

    /// Returns all groups after their last evaluations.
    pub fn groups(&self) -> Vec<Arc<GroupStatus>> {
        let status = self.shared.status.lock();
        let groups = status.groups.iter();
        groups.map(|(group, _)| group.clone()).collect()
    }

    pub fn group_counts(&self) -> Vec<Arc<GroupCounts>> {
        let status = self.shared.status.lock();
        status
            .groups
            .iter()
            .map(|(_, counts)| counts.clone())
            .collect()
    }

    pub fn receiver_counts(&self) -> Vec<ReceiverCounts> {
        self.shared.delivery.counts()
    }
}

impl Drop for RuleEngine {
    fn drop(&mut self) {
        self.shared.status.lock().is_stopped = true;
        self.shared.cancellation.cancel();
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl EngineShared {
    fn run(&self) {
        loop {
            self.take_new_rules();
            let next = self.next_due();
            if !self.wait_until(next.map(|(_, due)| due)) {
                return;
            }
            if let Some((index, due)) = next
                && due <= self.clock.utc()
            {
                self.evaluate(index);
            }
        }
    }

    /// Returns the group that is due first, and when.
    fn next_due(&self) -> Option<(usize, Millis)> {
        let now = self.clock.utc();
        let mut groups = self.groups.lock();
        for scheduled in groups.iter_mut() {
            // The clock was set back.
            if scheduled.due - now > scheduled.group.interval {
                scheduled.due = first_due(&scheduled.group, now);
            }
        }
        let due = groups.iter().enumerate();
        due.map(|(index, scheduled)| (index, scheduled.due))
            .min_by_key(|(_, due)| *due)
    }

    /// Waits until a time of the clock, new rules, or the stop. Returns false for the stop.
    fn wait_until(&self, due: Option<Millis>) -> bool {
        let mut status = self.status.lock();
        if status.is_stopped || status.new_rules.is_some() {
            return !status.is_stopped;
        }
        match due {
            None => self.wake.wait(&mut status),
            Some(due) => {
                let left = (due - self.clock.utc()).max(0).unsigned_abs();
                if left > 0 {
                    // Bounded, so that a step of the clock is noticed.
                    let left = Duration::from_millis(left).min(Duration::from_secs(10));
                    self.wake.wait_for(&mut status, left);
                }
            }
        }
        !status.is_stopped
    }

    fn evaluate(&self, index: usize) {
        let mut groups = self.groups.lock();
        let Some(scheduled) = groups.get_mut(index) else {
            return;
        };
        let interval = scheduled.group.interval;
        // Late: only the latest of the times that have passed is evaluated.
        let missed = (self.clock.utc() - scheduled.due) / interval;
        let time = scheduled.due + missed * interval;
        scheduled.due = time + interval;
        let counts = &scheduled.counts;
        counts
            .missed
            .fetch_add(missed.unsigned_abs(), Ordering::Relaxed);
        let nodes = self.storage.nodes();
        let context = EvaluationContext {
            storage: &*self.storage,
            nodes: nodes.as_deref(),
            limits: self.limits(interval),
            external_labels: &self.external_labels,
            external_url: &self.external_url,
        };
        let resend = as_millis(self.settings.resend_delay.duration());
        let repeat = self
            .settings
            .repeat_interval
            .duration()
            .map_or(0, as_millis);
        let outcome = scheduled.group.evaluate(time, (resend, repeat), &context);
        counts
            .evaluations
            .fetch_add(outcome.evaluations, Ordering::Relaxed);
        counts
            .failures
            .fetch_add(outcome.failures, Ordering::Relaxed);
        counts
            .incomplete
            .fetch_add(outcome.incomplete, Ordering::Relaxed);
        let seconds = scheduled.group.evaluation_seconds.to_bits();
        counts.last_seconds.store(seconds, Ordering::Relaxed);
        let published = Arc::new(GroupStatus::of(&scheduled.group));
        if let Some((status, _)) = self.status.lock().groups.get_mut(index) {
            *status = published;
        }
        self.delivery.send(&outcome.due);
    }

    /// Returns the limits of one expression. It must leave time for the other groups.
    fn limits(&self, interval: Millis) -> PromqlLimits {
        let interval = Duration::from_millis(interval.unsigned_abs());
        PromqlLimits {
            bytes_max: self.settings.expression_bytes_max,
            time_max: EXPRESSION_TIME_MAX.min(interval.max(Duration::from_secs(1))),
            cancellation: self.cancellation.clone(),
            ..PromqlLimits::default()
        }
    }

    /// Installs rules that were handed over, if there are any.
    fn take_new_rules(&self) {
        let Some(specs) = self.status.lock().new_rules.take() else {
            return;
        };
        let now = self.clock.utc();
        let default_interval = as_millis(self.settings.evaluation_interval.duration());
        let mut groups = self.groups.lock();
        let mut old = std::mem::take(&mut *groups);
        for spec in specs {
            let key = format!("{};{}", spec.file.display(), spec.name);
            let mut group = RuleGroup::new(spec, default_interval);
            let known = old.iter_mut().find(|old| old.counts.key == key);
            let counts = match known {
                Some(old) => {
                    group.take_state(&mut old.group);
                    old.counts.clone()
                }
                None => Arc::new(GroupCounts {
                    key,
                    ..GroupCounts::default()
                }),
            };
            groups.push(ScheduledGroup {
                due: first_due(&group, now),
                group,
                counts,
            });
        }
        mark_unique_names(&mut groups);
        let gone = old.iter().flat_map(|old| &old.group.rules);
        let ends: Vec<_> = gone.flat_map(|rule| rule.end_marks(now)).collect();
        if let Err(error) = self.storage.append(&ends) {
            tracing::warn!(error, "cannot end the series of removed rules");
        }
        let published = groups.iter().map(|scheduled| {
            let status = Arc::new(GroupStatus::of(&scheduled.group));
            (status, scheduled.counts.clone())
        });
        self.status.lock().groups = published.collect();
    }
}

/// Marks the rules whose name no other rule has.
fn mark_unique_names(groups: &mut [ScheduledGroup]) {
    let mut names = std::collections::HashMap::new();
    for rule in groups.iter().flat_map(|scheduled| &scheduled.group.rules) {
        *names.entry(rule.spec.name.clone()).or_insert(0) += 1;
    }
    let rules = groups
        .iter_mut()
        .flat_map(|scheduled| &mut scheduled.group.rules);
    for rule in rules {
        rule.has_unique_name = names[&rule.spec.name] == 1;
    }
}

/// Returns the first time after `now` at which a group is due.
fn first_due(group: &RuleGroup, now: Millis) -> Millis {
    let interval = group.interval;
    let text = format!("{};{}", group.spec.file.display(), group.spec.name);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let offset = (hash % interval.unsigned_abs()) as Millis;
    let since = (now - offset).rem_euclid(interval);
    now - since + interval
}
