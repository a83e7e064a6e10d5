//! Counts every sample: per input, how many were received, kept, and dropped by reason.
//!
//! Inputs add to `received` and to the drops that they cause; the store adds to `kept` and to its
//! own drops. When no sample is in flight, received = kept + dropped for every input; a black-box
//! test checks the sum. Counting never blocks and never allocates.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::label_enum;

label_enum! {
    /// The source of samples. The log stores the position in this list: append only.
    pub Input {
        /// The node's own collectors.
        Collect = "collect",
        /// Lines on the socket.
        Push = "push",
        /// The aggregated metrics of programs, sampled at each tick. The inputs below count what
        /// programs sent.
        Programs = "programs",
        /// Timestamped points in lanes.
        Lane = "lane",
        /// Values in statsd datagrams and streams.
        Statsd = "statsd",
        /// Points of `POST /api/metrics`.
        Http = "http",
        /// Points of OpenTSDB's `put`, over HTTP or by telnet.
        Put = "put",
        /// Series that rules recorded.
        Rules = "rules",
        /// Samples of Prometheus' remote write.
        RemoteWrite = "remote_write",
        /// Samples that the agent read by itself: scraped endpoints, programs, files.
        Pull = "pull",
        /// Fields of InfluxDB's line protocol.
        Influx = "influx",
        /// Metrics of Pushgateway's groups, when they are pushed and when they are repeated.
        Pushgateway = "pushgateway",
        /// Reductions over the nodes of a tree.
        Tree = "tree",
        /// Samples of OpenTelemetry's metrics.
        Otlp = "otlp",
    }
}

label_enum! {
    /// Why a sample was dropped.
    pub DropReason {
        /// The store did not keep up and its queue was full.
        QueueFull = "queue_full",
        /// More series than `limits.series`.
        SeriesLimit = "series_limit",
        /// Older than the retention of the store.
        TooOld = "too_old",
        /// More than ten minutes ahead of the clock.
        Future = "future",
        /// The log could not be written and memory was full.
        Memory = "memory",
        /// The log could not be written, and the sender received an error.
        Degraded = "degraded",
        /// The agent was stopping.
        Closed = "closed",
        /// Does not follow the syntax of its protocol.
        Malformed = "malformed",
        /// The value is not a number, not finite, or out of range.
        BadValue = "bad_value",
        /// The name or a label is empty, too long, or contains invalid characters.
        BadName = "bad_name",
        /// The sender has more series than `limits.series_per_sender`.
        SenderLimit = "sender_limit",
        /// Dropped by a rule of the configuration.
        Rule = "rule",
        /// More detailed than the agent's level.
        Level = "level",
        /// The kernel's receive buffer was full. Counts datagrams, because their content is
        /// unknown.
        Kernel = "kernel",
        /// The ring of a lane was overwritten before it was read.
        Overrun = "overrun",
        /// The sender is not permitted to write.
        Denied = "denied",
        /// The body or the line exceeds the limit. Counts bodies and lines, because they were not
        /// parsed.
        TooLarge = "too_large",
        /// More concurrent bodies than the memory limit permits. Counts bodies.
        Busy = "busy",
        /// Not supported: an event or a service check of DogStatsD, a text field of InfluxDB.
        Unsupported = "unsupported",
        /// The sender wrote more bytes than `limits.sender_bytes`.
        SenderRate = "sender_rate",
    }
}

const INPUT_COUNT: usize = Input::ALL.len();
const REASON_COUNT: usize = DropReason::ALL.len();

/// The counters, shared by all inputs and the store. Cheap to update from any thread.
#[derive(Debug, Default)]
pub struct Ledger {
    received: [AtomicU64; INPUT_COUNT],
    kept: [AtomicU64; INPUT_COUNT],
    dropped: [[AtomicU64; REASON_COUNT]; INPUT_COUNT],
    duplicates: AtomicU64,
    out_of_order: AtomicU64,
}

/// The counters of one input at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputTotals {
    pub input: Input,
    pub received: u64,
    pub kept: u64,
    /// Every reason, in the order of [`DropReason::ALL`].
    pub dropped: Vec<(DropReason, u64)>,
}

impl Ledger {
    pub fn add_received(&self, input: Input, count: u64) {
        self.received[input as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_kept(&self, input: Input, count: u64) {
        self.kept[input as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub fn add_dropped(&self, input: Input, reason: DropReason, count: u64) {
        self.dropped[input as usize][reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts samples that replaced an earlier one of the same series and time. They also count as
    /// kept. Duplicates among late points are counted when these are merged, at the latest when
    /// they are written to a block.
    pub fn add_duplicates(&self, count: u64) {
        self.duplicates.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts samples that arrived out of order. They also count as kept.
    pub fn add_out_of_order(&self, count: u64) {
        self.out_of_order.fetch_add(count, Ordering::Relaxed);
    }

    pub fn duplicates_total(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    pub fn out_of_order_total(&self) -> u64 {
        self.out_of_order.load(Ordering::Relaxed)
    }

    pub fn received_total(&self, input: Input) -> u64 {
        self.received[input as usize].load(Ordering::Relaxed)
    }

    pub fn kept_total(&self, input: Input) -> u64 {
        self.kept[input as usize].load(Ordering::Relaxed)
    }

    pub fn dropped_total(&self, input: Input, reason: DropReason) -> u64 {
        self.dropped[input as usize][reason as usize].load(Ordering::Relaxed)
    }

    pub fn totals_by_input(&self) -> Vec<InputTotals> {
        Input::ALL
            .iter()
            .map(|&input| InputTotals {
                input,
                received: self.received_total(input),
                kept: self.kept_total(input),
                dropped: DropReason::ALL
                    .iter()
                    .map(|&reason| (reason, self.dropped_total(input, reason)))
                    .collect(),
            })
            .collect()
    }
}
