//! Applies the lines of a few datagrams to the table under one lock.
//!
//! Every reader of statsd lines (datagrams, streams, the push socket) opens a [`StatsdBatch`],
//! passes whole lines and drops it. Each value is recorded in the table, queued as a timed gauge,
//! or dropped with a reason; the counts reach the ledger when the batch ends. A batch holds the
//! table's lock: it must not block or do I/O.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::{Mutex, MutexGuard};
use pegel_metric::DropReason;
use pegel_wire::statsd::{StatsdLineFault, StatsdLines, StatsdMessage};

use super::line_counts::{LineCounts, LineRefusal};
use super::net::SocketErrors;
use super::table::{LineOrigin, StatsdTable};
use super::timed_gauges::{TimedGauges, has_own_time};
use crate::admission::Admission;
use crate::marks::{IncomingMark, MarkQueue};
use crate::senders::Sender;

/// State shared by the receiving threads and the program sampler.
#[derive(Debug)]
pub(crate) struct StatsdContext {
    table: Mutex<StatsdTable>,
    pub admission: Arc<Admission>,
    pub timed_gauges: TimedGauges,
    pub marks: MarkQueue,
    pub errors: SocketErrors,
    /// The number of helper threads that read UDP sockets now.
    pub active_helpers: AtomicUsize,
}

impl StatsdContext {
    pub(super) fn new(table: StatsdTable, admission: Arc<Admission>) -> StatsdContext {
        admission.name_owners().watch();
        StatsdContext {
            table: Mutex::new(table),
            admission,
            timed_gauges: TimedGauges::default(),
            marks: MarkQueue::default(),
            errors: SocketErrors::default(),
            active_helpers: AtomicUsize::new(0),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, StatsdTable> {
        // The table is consistent between any two lines, so a panic elsewhere does not corrupt it.
        self.table.lock()
    }

    pub(super) fn batch(&self) -> StatsdBatch<'_> {
        StatsdBatch {
            shared: self,
            table: self.table(),
            counts: LineCounts::default(),
            sender: None,
        }
    }
}

/// Holds the lock of the table. Counts are reported at the end, or when the sender changes.
#[derive(Debug)]
pub(crate) struct StatsdBatch<'a> {
    shared: &'a StatsdContext,
    table: MutexGuard<'a, StatsdTable>,
    counts: LineCounts,
    sender: Option<Arc<Sender>>,
}

impl StatsdBatch<'_> {
    /// Applies complete lines.
    pub(super) fn apply_lines(&mut self, bytes: &[u8], origin: &LineOrigin) {
        self.switch_sender(origin);
        for line in StatsdLines::new(bytes) {
            match line {
                Ok(StatsdMessage::Metric(metric)) if has_own_time(&metric) => {
                    self.shared
                        .timed_gauges
                        .add(&metric, origin, &mut self.counts);
                }
                Ok(StatsdMessage::Metric(metric)) => {
                    self.table
                        .record(&metric, origin, &self.shared.admission, &mut self.counts);
                }
                Ok(StatsdMessage::Event(event)) => {
                    let mark = IncomingMark::from_event(&event, origin.pid());
                    // A queued mark is counted when it is stored.
                    if let Err(reason) = self.shared.marks.push(&origin.sender, mark) {
                        self.counts.count_dropped(reason, 1);
                    }
                }
                Ok(StatsdMessage::Check(_)) => {
                    self.counts.count_dropped(DropReason::Unsupported, 1);
                }
                Err(error) => self.counts.count_dropped(reason_for_fault(error.fault), 1),
            }
        }
    }

    /// Counts input that cannot be used.
    pub(super) fn count_dropped(&mut self, reason: DropReason, count: u64, origin: &LineOrigin) {
        self.switch_sender(origin);
        self.counts.count_dropped(reason, count);
    }

    /// Returns the first reason for a drop since the sender last changed.
    pub(super) fn refusal(&self) -> Option<LineRefusal> {
        self.counts.first_refusal()
    }

    fn switch_sender(&mut self, origin: &LineOrigin) {
        let is_same = |sender: &Arc<Sender>| Arc::ptr_eq(sender, &origin.sender);
        if !self.sender.as_ref().is_some_and(is_same) {
            self.report_counts();
            self.table.set_sender(&origin.sender);
            self.sender = Some(origin.sender.clone());
        }
    }

    fn report_counts(&mut self) {
        if let Some(sender) = &self.sender {
            self.counts.report(&self.shared.admission, sender);
        }
    }
}

impl Drop for StatsdBatch<'_> {
    fn drop(&mut self) {
        self.report_counts();
    }
}

fn reason_for_fault(fault: StatsdLineFault) -> DropReason {
    match fault {
        StatsdLineFault::NameEmpty
        | StatsdLineFault::NameTooLong
        | StatsdLineFault::NameCharacter
        | StatsdLineFault::Tag => DropReason::BadName,
        StatsdLineFault::Value(_) | StatsdLineFault::MemberEmpty => DropReason::BadValue,
        _ => DropReason::Malformed,
    }
}
