//! The query engine: the source of samples, the annotations, and the limits that apply to every
//! request. The HTTP routes of OpenTSDB call it; the other modules of this crate add its methods.
//! It only reads from the source.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::{Millis, Selector, Series};
use pegel_store::{QueryError, RangeQuery};

use crate::annotations::Annotations;
use crate::error::OpentsdbError;
use crate::sample_source::SampleReader;

/// Answers queries over a store, or over the nodes of a tree.
#[derive(Debug, Clone)]
pub struct QueryEngine {
    pub source: Arc<dyn SampleReader>,
    pub annotations: Arc<Annotations>,
    /// The host of every series without a `host` tag.
    pub node: Arc<str>,
    /// Answers as Dragon's dashboards expect: a filter on `*` returns one series per host and
    /// value, suggestions match anywhere in a name, and an unknown metric yields an empty result.
    pub dragon_compat: bool,
    pub limits: QueryLimits,
    metric_names: Arc<Mutex<MetricNameCache>>,
}

/// How long the cached names are valid. The cache only decides between an empty result and "no such
/// name".
const METRIC_NAMES_TTL: Duration = Duration::from_secs(10);

/// The hashed names of all metrics in the store, and when they were read.
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

/// The limits of one request.
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
        source: impl SampleReader + 'static,
        annotations: Arc<Annotations>,
        node: &str,
        dragon_compat: bool,
    ) -> QueryEngine {
        QueryEngine {
            source: Arc::new(source),
            annotations,
            node: node.into(),
            dragon_compat,
            limits: QueryLimits::default(),
            metric_names: Arc::default(),
        }
    }

    /// Returns this engine over another source and other annotations.
    pub fn over(
        &self,
        source: Arc<dyn SampleReader>,
        annotations: Arc<Annotations>,
    ) -> QueryEngine {
        QueryEngine {
            source,
            annotations,
            ..self.clone()
        }
    }

    /// Returns this engine over a part of its source.
    pub fn restricted(&self, source: Arc<dyn SampleReader>) -> QueryEngine {
        QueryEngine {
            source,
            // The names of a part must not be taken for those of the whole.
            metric_names: Arc::default(),
            ..self.clone()
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.time_max
    }

    /// Fails after the deadline: for loops that do more for each series than the source did.
    pub(crate) fn check_time(deadline: Instant) -> Result<(), OpentsdbError> {
        match Instant::now() > deadline {
            true => Err(QueryError::TooLong.into()),
            false => Ok(()),
        }
    }

    /// Visits every matching series in the store, live or not.
    pub(crate) fn for_each_series(
        &self,
        selector: Selector,
        deadline: Instant,
        visit: &mut dyn FnMut(&Arc<Series>),
    ) -> Result<(), OpentsdbError> {
        let mut range_query = RangeQuery::new(selector, 0, Millis::MAX, None);
        range_query.bytes_max = self.limits.bytes_max;
        range_query.deadline = deadline;
        Ok(self.source.series(&range_query, visit)?)
    }

    /// Returns an error if no series has this name.
    ///
    /// Only the indexes of all blocks know whether a series of this name ever existed. Dashboards
    /// keep querying metrics that a node does not have, so the indexes are scanned at most once in
    /// ten seconds.
    pub(crate) fn check_metric_exists(
        &self,
        metric: &str,
        deadline: Instant,
    ) -> Result<(), OpentsdbError> {
        let mut is_known = false;
        let selector = Selector::name(metric);
        self.source
            .latest(deadline, &selector, &mut |_, _| is_known = true)?;
        if !is_known && self.source.is_distributed() {
            self.for_each_series(selector, deadline, &mut |_| is_known = true)?;
            return match is_known {
                true => Ok(()),
                false => Err(OpentsdbError::unknown_name("metrics", metric)),
            };
        }
        if is_known {
            return Ok(());
        }
        let mut names = self.metric_names.lock();
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
        if names.hashes.contains(&wanted) {
            Ok(())
        } else {
            Err(OpentsdbError::unknown_name("metrics", metric))
        }
    }
}
