//! Queries and their results: the range, step and limits of a query, the visitor that receives the
//! result, and the errors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pegel_metric::{MetricKind, Millis, Selector, Series};

use crate::read_filters::ReadFilter;

/// A query over a range of time.
#[derive(Debug, Clone)]
pub struct RangeQuery {
    pub selector: Selector,
    /// Both ends are inclusive.
    pub start: Millis,
    pub end: Millis,
    /// One value per step; `None` returns every sample.
    pub step: Option<QueryStep>,
    /// The limit on memory while the result is produced, and the deadline. The memory of all
    /// points counts, or with `ticks` that of one series at a time.
    pub bytes_max: usize,
    pub deadline: Instant,
    pub cancellation: QueryCancellation,
    /// Completes the samples of tick groups; `None` returns the stored samples only. Columns only.
    pub ticks: Option<TickCompletion>,
    /// Leaves out series before their samples are read.
    pub choice: Option<SeriesChoice>,
}

type ChooseSeries = dyn Fn(&mut Vec<Arc<Series>>) + Send + Sync;

/// A function that removes series from the sorted list of those that match.
#[derive(Clone)]
pub struct SeriesChoice(pub Arc<ChooseSeries>);

impl fmt::Debug for SeriesChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeriesChoice")
    }
}

/// How the samples of tick groups are completed.
///
/// A series that is absent from a row of its group gets a sample of the value
/// [`STALE_NAN`](pegel_metric::STALE_NAN) there, once until its next value. A group of programs'
/// series is written when a value changes, and else once a minute: in between, its values are
/// repeated at each multiple of `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickCompletion {
    pub interval: Millis,
}

/// Ends a running query: its next check of the deadline fails. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct QueryCancellation(Arc<AtomicBool>);

impl QueryCancellation {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_canceled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag that [`cancel`](QueryCancellation::cancel) sets, for waits on other
    /// servers.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl RangeQuery {
    /// Returns a query with the default limits: 32 MiB and ten seconds.
    pub fn new(
        selector: Selector,
        start: Millis,
        end: Millis,
        step: Option<QueryStep>,
    ) -> RangeQuery {
        let deadline = Instant::now() + Duration::from_secs(10);
        RangeQuery {
            selector,
            start,
            end,
            step,
            bytes_max: 32 << 20,
            deadline,
            cancellation: QueryCancellation::default(),
            ticks: None,
            choice: None,
        }
    }
}

/// The step of a query. Samples are grouped into buckets `[k × millis, (k + 1) × millis)`; a
/// bucket's time is its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryStep {
    pub millis: Millis,
    /// `None` depends on the kind: the last value of a counter, the average of anything else.
    pub aggregation: Option<StepAggregation>,
}

/// The aggregation of the samples of one bucket into one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAggregation {
    First,
    Last,
    Min,
    Max,
    Avg,
    Sum,
    Count,
}

impl StepAggregation {
    pub const ALL: [StepAggregation; 7] = [
        StepAggregation::First,
        StepAggregation::Last,
        StepAggregation::Min,
        StepAggregation::Max,
        StepAggregation::Avg,
        StepAggregation::Sum,
        StepAggregation::Count,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            StepAggregation::First => "first",
            StepAggregation::Last => "last",
            StepAggregation::Min => "min",
            StepAggregation::Max => "max",
            StepAggregation::Avg => "avg",
            StepAggregation::Sum => "sum",
            StepAggregation::Count => "count",
        }
    }

    pub fn parse(text: &str) -> Option<StepAggregation> {
        StepAggregation::ALL
            .into_iter()
            .find(|fold| fold.as_str() == text)
    }

    pub(crate) fn default_for(kind: MetricKind) -> StepAggregation {
        match kind {
            MetricKind::Counter => StepAggregation::Last,
            MetricKind::Gauge | MetricKind::Unknown => StepAggregation::Avg,
        }
    }
}

/// Enforces a deadline without reading the clock for every series.
#[derive(Debug)]
pub struct TimeLimit {
    deadline: Option<Instant>,
    cancellation: QueryCancellation,
    /// The work done since the clock was last read.
    spent: usize,
    /// The work for each series besides its text.
    series_work: usize,
}

impl TimeLimit {
    /// Bytes of text to match, or equivalent work, between two readings of the clock.
    pub(crate) const CHECK_EVERY: usize = 4096;
    /// The work of any other step, such as finding a run.
    pub const STEP: usize = 64;

    pub(crate) fn new(deadline: Option<Instant>) -> TimeLimit {
        TimeLimit {
            deadline,
            cancellation: QueryCancellation::default(),
            spent: TimeLimit::CHECK_EVERY,
            series_work: TimeLimit::STEP,
        }
    }

    /// Returns a limit that ends at a deadline, or earlier when the query is canceled.
    pub fn until(deadline: Instant, cancellation: QueryCancellation) -> TimeLimit {
        TimeLimit {
            cancellation,
            ..TimeLimit::new(Some(deadline))
        }
    }

    /// Returns the limit of a query.
    pub fn of(query: &RangeQuery) -> TimeLimit {
        TimeLimit::until(query.deadline, query.cancellation.clone())
    }

    /// Counts the filters that will be tried on each series as work.
    pub(crate) fn count_filters(&mut self, filters: &[ReadFilter]) {
        self.series_work = TimeLimit::STEP * (1 + filters.len());
    }

    /// Counts work that is about to be done; fails after the deadline.
    pub fn spend(&mut self, work: usize) -> Result<(), QueryError> {
        self.spent += work;
        if self.spent < TimeLimit::CHECK_EVERY {
            return Ok(());
        }
        self.check_now()
    }

    /// Counts a series that is about to be matched.
    pub fn spend_on(&mut self, series: &Series) -> Result<(), QueryError> {
        self.spend(self.series_work + series.text().len())
    }

    /// Reads the clock now; for use before a step that takes long by itself.
    pub fn check_now(&mut self) -> Result<(), QueryError> {
        self.spent = 0;
        if self.cancellation.is_canceled() {
            return Err(QueryError::Canceled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() > deadline => Err(QueryError::TooLong),
            _ => Ok(()),
        }
    }
}

/// Receives a result series by series, with its points in the order of their times.
pub type SeriesVisitor<'a> = dyn FnMut(&Arc<Series>, &[(Millis, f64)]) + 'a;

/// The samples of one series, in the order of their times.
#[derive(Debug, Clone, Copy)]
pub struct SampleColumn<'a> {
    /// Series of one tick group usually share them.
    pub times: &'a Arc<[Millis]>,
    pub values: &'a [f64],
}

/// Receives a result series by series.
pub type ColumnVisitor<'a> = dyn FnMut(&Arc<Series>, SampleColumn<'_>) + 'a;

/// The current value of a live series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatestValue {
    pub value: f64,
    /// The time at which the value last changed.
    pub last_changed: Millis,
    /// The time of the last sample.
    pub last_sampled: Millis,
}

#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(
        "the response exceeds {0} bytes; request fewer series, a shorter time range or a larger step"
    )]
    TooLarge(usize),
    #[error("the query timed out; request fewer series, a shorter time range or a larger step")]
    TooLong,
    #[error("the query was canceled")]
    Canceled,
    #[error("the step must be at least 1 ms")]
    Step,
    #[error("the start is after the end")]
    Reversed,
    #[error("cannot read block {path}")]
    Read {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
}
