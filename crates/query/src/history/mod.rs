//! Samples that are older than the store: the interface to an engine that keeps them, and the join
//! of its samples with those of the store.
//!
//! ```text
//!             border: the store is complete from here on
//!                                ▼
//!   history ─────────────────────┤
//!                    (late) ·  · ├───────────────────── store
//! ```
//!
//! The border is that of a series' class of inputs ([`CompleteSince`](pegel_store::CompleteSince)).
//! At or after it samples come from the store only, before it from the history only: no time is
//! read twice. A series that the history does not have, and times for which it cannot be read, keep
//! the samples of the store. Series are the same if PromQL shows them with the same labels.
//!
//! A range that begins at or after the border is read from the store alone, at the cost of one
//! comparison. This module has no HTTP: `pegel-history` implements [`HistoryReader`].

mod join;
mod record;
mod selector_matchers;
mod store_reader;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use pegel_metric::Millis;
use pegel_store::{QueryCancellation, Store};

use crate::promql::{LabelMatcher, LabelSet, NodeLabels};

pub(crate) use join::{JoinRule, JoinedHistory, StoredColumn};
pub use record::{HistoryMark, HistoryRecord};
pub use store_reader::StoreWithHistory;

/// The series and times to read, and the limits for reading them.
#[derive(Debug)]
pub struct HistoryRequest<'a> {
    /// A series must match all of them, with the labels that PromQL shows.
    pub matchers: &'a [LabelMatcher],
    /// The labels of this node's series.
    pub node: &'a NodeLabels,
    /// Both ends are included.
    pub start: Millis,
    pub end: Millis,
    pub now: Millis,
    pub bytes_max: usize,
    pub deadline: Instant,
    pub cancellation: &'a QueryCancellation,
}

/// The samples of one series, in the order of their times.
#[derive(Debug, Clone, PartialEq)]
pub struct HistorySeries {
    pub labels: LabelSet,
    pub times: Vec<Millis>,
    pub values: Vec<f64>,
}

/// What an engine returned.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryAnswer<T> {
    /// Each series once, in any order.
    pub series: Vec<T>,
    /// The time before which nothing could be read.
    pub complete_from: Millis,
    /// Why the answer is incomplete.
    pub problem: Option<HistoryProblem>,
}

/// The reason why an answer of an engine is missing or incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryProblem {
    pub kind: HistoryProblemKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryProblemKind {
    /// No connection, or it was lost.
    Unreachable,
    Timeout,
    /// The samples exceed a limit of this agent.
    TooLarge,
    /// The engine refused the request.
    Refused,
    /// The answer cannot be parsed, or has samples that were not requested.
    Malformed,
    /// The engine reports that its answer is incomplete.
    Partial,
    /// Too many requests at one time, or the engine failed a moment ago.
    Busy,
    /// The range begins before the configured reach.
    Reach,
}

impl HistoryProblemKind {
    pub const ALL: [HistoryProblemKind; 8] = [
        HistoryProblemKind::Unreachable,
        HistoryProblemKind::Timeout,
        HistoryProblemKind::TooLarge,
        HistoryProblemKind::Refused,
        HistoryProblemKind::Malformed,
        HistoryProblemKind::Partial,
        HistoryProblemKind::Busy,
        HistoryProblemKind::Reach,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            HistoryProblemKind::Unreachable => "unreachable",
            HistoryProblemKind::Timeout => "timeout",
            HistoryProblemKind::TooLarge => "too_large",
            HistoryProblemKind::Refused => "refused",
            HistoryProblemKind::Malformed => "malformed",
            HistoryProblemKind::Partial => "partial",
            HistoryProblemKind::Busy => "busy",
            HistoryProblemKind::Reach => "reach",
        }
    }
}

/// An engine that keeps samples for longer than the store. All methods block within the limits of
/// the request and never fail: an answer states what could not be read.
pub trait HistoryReader: fmt::Debug + Send + Sync {
    /// Returns the samples of the series that match. If not all can be read, the newest are
    /// returned.
    fn read(&self, request: &HistoryRequest<'_>) -> HistoryAnswer<HistorySeries>;

    /// Returns the labels of the series that match and have samples in the range, whose ends may be
    /// extended by up to ten minutes.
    fn list(&self, request: &HistoryRequest<'_>) -> HistoryAnswer<LabelSet>;

    /// Returns the oldest time that is read from the engine.
    fn oldest(&self, now: Millis) -> Millis;

    /// Returns the address of the engine, without secrets.
    fn address(&self) -> &str;
}

/// How far beyond the border the engine is read for stale markers: a series that ended at the
/// border has its marker after it, and no sample in the store.
const MARKER_RANGE_MS: Millis = 300_000;
/// The most attempts to read the history while the store drops blocks.
const READS_MAX: usize = 3;

/// A reader, and the record of its use for the response.
#[derive(Debug, Clone)]
pub(crate) struct HistoryAccess {
    reader: Arc<dyn HistoryReader>,
    record: Option<Arc<HistoryRecord>>,
}

impl HistoryAccess {
    pub(crate) fn new(reader: Arc<dyn HistoryReader>) -> HistoryAccess {
        HistoryAccess {
            reader,
            record: None,
        }
    }

    pub(crate) fn recording(self, record: Arc<HistoryRecord>) -> HistoryAccess {
        HistoryAccess {
            record: Some(record),
            ..self
        }
    }

    pub(crate) fn reader(&self) -> &dyn HistoryReader {
        &*self.reader
    }

    /// Returns whether a range begins before the border.
    pub(crate) fn is_needed(&self, store: &Store, start: Millis) -> bool {
        start < store.complete_since().of_all()
    }

    /// Reads the part of a range before the border; `None` if the store has the whole range.
    pub(crate) fn join(
        &self,
        store: &Store,
        request: &HistoryRequest<'_>,
    ) -> Option<JoinedHistory> {
        let mut complete = store.complete_since();
        if request.start >= complete.of_all() || request.start > request.end {
            return None;
        }
        let mut reads = 0;
        loop {
            let after_border = complete.of_all().saturating_add(MARKER_RANGE_MS);
            let end = request.end.min(after_border);
            let answer = self.reader.read(&limited(request, end, complete.now));
            reads += 1;
            // Retention may have dropped blocks in the meantime.
            let now_complete = store.complete_since();
            let covers = end == request.end || now_complete.of_all() <= after_border;
            if !covers && reads < READS_MAX {
                complete = now_complete;
                continue;
            }
            let border = now_complete.of_all();
            self.note(border.min(request.end), &answer);
            return Some(JoinedHistory::new(
                answer,
                now_complete,
                (request.start, request.end),
            ));
        }
    }

    /// Lists the series of the part of a range before the border.
    pub(crate) fn list(&self, store: &Store, request: &HistoryRequest<'_>) -> Vec<LabelSet> {
        let complete = store.complete_since();
        if request.start >= complete.of_all() || request.start > request.end {
            return Vec::new();
        }
        // A request without a start means all times: it begins at the oldest that is read.
        let oldest = self.reader.oldest(complete.now);
        let end = request.end.min(complete.of_all());
        let request = HistoryRequest {
            start: request.start.max(oldest).min(end),
            ..limited(request, end, complete.now)
        };
        let answer = self.reader.list(&request);
        self.note(end, &answer);
        answer.series
    }

    fn note<T>(&self, until: Millis, answer: &HistoryAnswer<T>) {
        if let Some(record) = &self.record {
            record.add(self.reader.address(), until, answer);
        }
    }
}

/// Returns a request that leaves half of the time and of the memory to the store.
fn limited<'a>(request: &HistoryRequest<'a>, end: Millis, now: Millis) -> HistoryRequest<'a> {
    let began = Instant::now();
    let left = request.deadline.saturating_duration_since(began);
    HistoryRequest {
        end,
        now,
        bytes_max: request.bytes_max / 2,
        deadline: began + left / 2,
        ..*request
    }
}
