//! Gauges with their own timestamp (DogStatsD's `|T`): they are stored as points, not as current
//! values.
//!
//! Receiving threads queue them, so that they never wait for the store's log; the program sampler
//! writes the queue at each pass. The queue is bounded; gauges beyond it are dropped and counted.

use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::{DropReason, MetricKind, Millis};
use pegel_wire::PointBatch;
use pegel_wire::statsd::{NumberSign, StatsdLines, StatsdMessage, StatsdMetric, StatsdType};

use super::line_counts::LineCounts;
use super::table::{LineOrigin, PROGRAM_LEVEL};
use crate::point_writer::{IncomingPoint, PointWriter};
use crate::senders::Sender;

/// The most queued gauges. Further ones are dropped and counted.
const QUEUE_MAX: usize = 20_000;

/// Returns whether this is a value with its own timestamp. Counters with a time add to their total
/// like all others.
pub(super) fn has_own_time(metric: &StatsdMetric<'_>) -> bool {
    metric.time.is_some()
        && metric.kind == StatsdType::Gauge
        && metric
            .values()
            .all(|number| number.sign == NumberSign::None)
}

/// Adds the values of a line to a batch of points if it is a gauge with its own timestamp. Returns
/// whether it is. The push socket acknowledges lines, so that it cannot queue them.
pub(crate) fn add_timed_gauge(line: &[u8], batch: &mut PointBatch<'_>) -> bool {
    let Some(Ok(StatsdMessage::Metric(metric))) = StatsdLines::new(line).next() else {
        return false;
    };
    let Some(seconds) = metric.time.filter(|_| has_own_time(&metric)) else {
        return false;
    };
    for number in metric.values() {
        let (name, time) = (lossy_text(metric.name), seconds.saturating_mul(1000));
        batch.add(name, time, number.value, labels_of(&metric));
    }
    true
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn labels_of(metric: &StatsdMetric<'_>) -> Vec<(String, String)> {
    let mut tags = Vec::new();
    metric.tags().append_ordered(&mut tags);
    lossy_text(&tags)
        .split(',')
        .filter_map(|tag| tag.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The queue for the program sampler: receiving threads must not wait for the store's log.
#[derive(Debug, Default)]
pub(crate) struct TimedGauges {
    queue: Mutex<Vec<QueuedGauge>>,
}

#[derive(Debug)]
struct QueuedGauge {
    sender: Arc<Sender>,
    name: String,
    labels: Vec<(String, String)>,
    time: Millis,
    value: f64,
}

impl TimedGauges {
    pub(super) fn add(
        &self,
        metric: &StatsdMetric<'_>,
        origin: &LineOrigin,
        counts: &mut LineCounts,
    ) {
        let Some(seconds) = metric.time else { return };
        let labels = labels_of(metric);
        let mut waiting = self.queue.lock();
        // A quarter is reserved for the agent's user and root.
        let max = if origin.sender.is_trusted() {
            QUEUE_MAX
        } else {
            QUEUE_MAX - QUEUE_MAX / 4
        };
        for number in metric.values() {
            if waiting.len() >= max {
                counts.count_dropped(DropReason::QueueFull, 1);
                continue;
            }
            waiting.push(QueuedGauge {
                sender: origin.sender.clone(),
                name: lossy_text(metric.name),
                labels: labels.clone(),
                time: seconds.saturating_mul(1000),
                value: number.value,
            });
        }
    }

    /// Writes the queue to the store, sender by sender in the order of arrival.
    pub(super) fn write_queued(&self, points: &PointWriter, now: Millis) {
        let waiting = std::mem::take(&mut *self.queue.lock());
        for batch in waiting.chunk_by(|a, b| Arc::ptr_eq(&a.sender, &b.sender)) {
            let labels: Vec<Vec<(&str, &str)>> = batch
                .iter()
                .map(|one| one.labels.iter().map(|(k, v)| (&**k, &**v)).collect())
                .collect();
            let offered: Vec<IncomingPoint<'_>> = batch
                .iter()
                .zip(&labels)
                .map(|(one, labels)| IncomingPoint {
                    name: &one.name,
                    labels,
                    help: "",
                    kind: MetricKind::Unknown,
                    level: PROGRAM_LEVEL,
                    time: one.time,
                    value: one.value,
                })
                .collect();
            // Drops are counted by the writer, including those of a store that accepts nothing.
            if let Err(error) = points.write(&batch[0].sender, &offered, now) {
                tracing::warn!(%error, "cannot store statsd gauges with timestamps");
            }
        }
    }
}
