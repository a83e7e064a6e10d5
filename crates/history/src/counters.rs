//! Counts the use of the history for `/status` and `pegel_history_*`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_query::{HistoryProblem, HistoryProblemKind};

/// The time between two messages in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

const KINDS: usize = HistoryProblemKind::ALL.len();

#[derive(Debug, Default)]
pub(crate) struct HistoryCounters {
    requests: AtomicU64,
    received_bytes: AtomicU64,
    samples: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    problems: [AtomicU64; KINDS],
    last: Mutex<LastProblem>,
}

#[derive(Debug, Default)]
struct LastProblem {
    /// The message of the last request, if it failed.
    current: Option<HistoryProblem>,
    logged: Option<Instant>,
}

/// The state of the history.
#[derive(Debug, Clone, Default)]
pub struct HistoryStatus {
    /// The engine, without secrets.
    pub address: String,
    /// The API that is used; `auto` before the first request.
    pub api: &'static str,
    pub requests: u64,
    pub received_bytes: u64,
    pub samples: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub cache_bytes: u64,
    /// Incomplete answers, by reason.
    pub problems: Vec<(&'static str, u64)>,
    /// Why the last request failed; `None` after a success.
    pub last_error: Option<String>,
    /// The reason of the last error, as in `problems`.
    pub last_error_kind: Option<&'static str>,
}

impl HistoryCounters {
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the samples of a response that could be used.
    pub(crate) fn count_answer(&self, samples: u64) {
        self.samples.fetch_add(samples, Ordering::Relaxed);
        self.last.lock().current = None;
    }

    pub(crate) fn count_cached(&self, is_hit: bool) {
        let counter = match is_hit {
            true => &self.cache_hits,
            false => &self.cache_misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an incomplete answer and logs it, at most once a minute.
    pub(crate) fn count_problem(&self, problem: &HistoryProblem) {
        let kinds = HistoryProblemKind::ALL.iter().zip(&self.problems);
        for (kind, counter) in kinds.filter(|(kind, _)| **kind == problem.kind) {
            counter.fetch_add(1, Ordering::Relaxed);
            // Neither is a new failure of the engine: the last error stays as it is.
            if matches!(kind, HistoryProblemKind::Reach | HistoryProblemKind::Busy) {
                return;
            }
        }
        let mut last = self.last.lock();
        last.current = Some(problem.clone());
        if last.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            last.logged = Some(Instant::now());
            tracing::warn!(problem = problem.message, "history is incomplete");
        }
    }

    pub(crate) fn status(&self) -> HistoryStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let problems = HistoryProblemKind::ALL.iter().zip(&self.problems);
        let last = self.last.lock().current.clone();
        HistoryStatus {
            requests: load(&self.requests),
            received_bytes: load(&self.received_bytes),
            samples: load(&self.samples),
            cache_hits: load(&self.cache_hits),
            cache_misses: load(&self.cache_misses),
            problems: problems
                .map(|(kind, count)| (kind.as_str(), load(count)))
                .collect(),
            last_error_kind: last.as_ref().map(|problem| problem.kind.as_str()),
            last_error: last.map(|problem| problem.message),
            ..HistoryStatus::default()
        }
    }
}
