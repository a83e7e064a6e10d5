use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pegel_metric::{Millis, Selector, Series};
use pegel_store::{RangeQuery, Store};

use crate::annotations::Annotations;
use crate::error::OpentsdbError;

/// What questions are asked of: a store, and the node whose series it holds.
#[derive(Debug, Clone)]
pub struct QueryEngine {
    pub store: Store,
    pub annotations: Arc<Annotations>,
    /// The host of every series that names none.
    pub node: Arc<str>,
    /// Answers as Dragon's dashboards expect them: a filter on `*` gives one line per host and value, names are
    /// suggested wherever they hold the text, and an unknown metric has no lines.
    pub dragon_compat: bool,
    pub limits: QueryLimits,
    metric_names: Arc<Mutex<MetricNameCache>>,
}

/// How long the list of names serves. It decides between two ways to say that there is nothing, no more.
const METRIC_NAMES_TTL: Duration = Duration::from_secs(10);

/// The names of all metrics that the store holds, as hashes, and when they were looked up.
#[derive(Debug, Default)]
struct MetricNameCache {
    refreshed: Option<Instant>,
    hashes: HashSet<u64>,
}

fn hash_name(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What one request may take.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    pub bytes_max: usize,
    pub time_max: Duration,
}

impl Default for QueryLimits {
    fn default() -> QueryLimits {
        QueryLimits {
            bytes_max: 32 << 20,
            time_max: Duration::from_secs(10),
        }
    }
}

impl QueryEngine {
    pub fn new(
        store: Store,
        annotations: Arc<Annotations>,
        node: &str,
        dragon_compat: bool,
    ) -> QueryEngine {
        QueryEngine {
            store,
            annotations,
            node: node.into(),
            dragon_compat,
            limits: QueryLimits::default(),
            metric_names: Arc::default(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time_max
    }

    /// Visits every series that the store holds, whether it is live or not.
    pub(crate) fn for_each_series(
        &self,
        selector: Selector,
        deadline: Instant,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), OpentsdbError> {
        let mut question = RangeQuery::new(selector, 0, Millis::MAX, None);
        question.bytes_max = self.limits.bytes_max;
        question.deadline = deadline;
        Ok(self.store.series(&question, visit)?)
    }

    /// An error where no series has this name.
    ///
    /// Whether there ever was one only the indexes of all blocks can tell. A dashboard asks again and again for
    /// metrics that a node does not have, so that they are looked through at most once in ten seconds.
    pub(crate) fn check_metric_exists(
        &self,
        metric: &str,
        deadline: Instant,
    ) -> Result<(), OpentsdbError> {
        let mut is_known = false;
        let selector = Selector::name(metric);
        self.store.latest(&selector, 0, &mut |_, _| is_known = true);
        if is_known {
            return Ok(());
        }
        let mut names = self
            .metric_names
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let wanted = hash_name(metric);
        let is_fresh = names
            .refreshed
            .is_some_and(|at| at.elapsed() < METRIC_NAMES_TTL);
        if !is_fresh && !names.hashes.contains(&wanted) {
            let mut hashes = HashSet::new();
            self.for_each_series(Selector::all(), deadline, &mut |series| {
                hashes.insert(hash_name(series.name()));
            })?;
            *names = MetricNameCache {
                refreshed: Some(Instant::now()),
                hashes,
            };
        }
        match names.hashes.contains(&wanted) {
            true => Ok(()),
            false => Err(OpentsdbError::unknown_name("metrics", metric)),
        }
    }
}
